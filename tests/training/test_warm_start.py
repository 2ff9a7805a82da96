"""Test that the warm start weights actions by their returns and trains on the last observation."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from palestra.algorithms.episode import Episode
from palestra.engines.default_model import default_tokenizer
from palestra.rollout import Task, Writer, collect
from palestra.rollout.samples import TrainingSample
from palestra.rollout.types import Trajectory
from palestra.training import step, train
from palestra.training import warm_start as module
from palestra.training.batch import with_observations
from palestra.training.config import TrainConfig
from palestra.training.demonstrations import Demonstrator, samples_with_end
from palestra.training.learner import Learner
from palestra.training.recipe import from_mapping
from palestra.training.reporting.metrics import Metrics, read
from palestra.training.reporting.report import page
from palestra.training.reporting.run_folder import read_run
from palestra.training.resume import ADDED, changed_settings, with_added
from palestra.training.step import clone_samples
from palestra.training.trainer_selection import run_trainer
from palestra.training.warm_start import MAX_WEIGHT, action_weights, rewarded, warm_start
from tests.training.helpers import learner_of

GUESS = "game:GuessTheNumber-v0-easy"


def played(count: int, player: Any = "random") -> tuple[list[Trajectory], Any]:
    tokenizer = default_tokenizer()
    tasks = [Task(env_id=GUESS, seed=seed, group=seed) for seed in range(count)]
    result = asyncio.run(collect(Demonstrator(tokenizer, player, max_tokens=0), tasks))
    return result.trajectories, tokenizer


def config_of(**settings: Any) -> TrainConfig:
    return from_mapping({"env": GUESS, "model": "default:0.1M", **settings})


def episodes_of(*rewards: Sequence[float]) -> list[Episode]:
    return [Episode(rewards=row, group=i) for i, row in enumerate(rewards)]


def test_the_last_sample_of_an_episode_contains_the_final_observation_which_is_not_an_action() -> None:
    trajectories, tokenizer = played(6)
    lost = next(t for t in trajectories if not t.success)
    (sample,) = samples_with_end(lost, 3)
    end = tokenizer.decode(sample.ids).rpartition("<|im_start|>user\n")[2]
    assert end.startswith(str(lost.final_observation))
    assert len(sample.ids) == len(sample.mask) == len(sample.logprobs) == len(sample.turn_index)
    assert sum(sample.mask) == sum(len(call.ids) for turn in lost.turns for call in turn.action.calls)
    assert sample.turn_index[-1] == -1
    assert sample.episode == 3


def test_actions_with_higher_returns_have_larger_weights_with_a_mean_of_one() -> None:
    weights = action_weights(config_of(), episodes_of([0.0, 1.0], [0.0, 0.0], [0.0, 0.0]))
    assert weights[0][0] > 1 > weights[1][0] == weights[2][0] > 0
    assert sum(map(sum, weights)) == pytest.approx(6)
    favored = action_weights(config_of(warm_beta=0.5), episodes_of([0.0, 1.0], [0.0, 0.0], [0.0, 0.0]))
    assert favored[0][1] / favored[1][1] > weights[0][1] / weights[1][1]


def test_the_weight_of_a_rare_success_is_limited() -> None:
    weights = action_weights(config_of(), episodes_of([1.0], *[[0.0]] * 999))
    assert weights[0][0] / weights[1][0] == pytest.approx(MAX_WEIGHT, rel=0.05)


@pytest.mark.parametrize(
    "settings", [{"warm_beta": 0}, {"warm_player": "expert"}, {"model": "tests/data/model", "warm_start": 8}]
)
def test_all_actions_have_the_same_weight_without_beta_and_for_an_expert_or_a_pretrained_model(
    settings: dict[str, Any],
) -> None:
    assert action_weights(config_of(**settings), episodes_of([1.0], [0.0])) == [[1.0], [1.0]]


def early_rewards(trajectories: Sequence[Trajectory]) -> list[list[float]]:
    return [[1.0, *[0.0] * (len(t.turns) - 1)] for t in trajectories]


def test_rewards_from_a_hook_replace_those_of_the_environment() -> None:
    trajectories, _ = played(2)
    changed = rewarded(config_of(reward_hook="tests.training.test_warm_start:early_rewards"), trajectories)
    assert [t.rewards for t in changed] == early_rewards(trajectories)
    assert rewarded(config_of(), trajectories) == trajectories


def test_the_last_epoch_weights_the_actions_of_all_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learner_of(env=GUESS, warm_start=6, warm_epochs=2, warm_batch=3)
    unweighted: list[bool] = []
    episodes: list[set[int]] = []

    def clone(given: Learner, samples: Sequence[TrainingSample], weights: Any, lr: float, **options: Any) -> Any:
        unweighted.append(all(w == 1.0 for sample in samples for w in weights[sample.episode]))
        episodes.append({sample.episode for sample in samples})
        return clone_samples(given, samples, weights, lr, **options)

    monkeypatch.setattr(module, "clone_samples", clone)
    monkeypatch.setattr(module, "CHUNK", 4)
    assert asyncio.run(warm_start(learner, learner.config)) == 4
    assert unweighted[:2] == [True, True]
    assert unweighted[2:] != [True, True]
    assert episodes[0] | episodes[1] == episodes[2] | episodes[3] == set(range(6))


def test_observation_tokens_have_their_own_weight() -> None:
    learner = learner_of(env=GUESS)
    trajectories, _ = played(2)
    samples = [sample for i, t in enumerate(trajectories) for sample in samples_with_end(t, i)]
    ones = [[1.0] * len(t.turns) for t in trajectories]
    actions, half, same = (
        clone_samples(learner, samples, ones, 0.0, observation_weight=w)["loss"] for w in (0, 0.5, 1)
    )
    tokens = sum(sum(sample.mask) for sample in samples)
    observed = sum(sum(sample.mask) for sample in with_observations(samples)) - tokens
    sum_of_observations = same * (tokens + observed) - actions * tokens
    assert half == pytest.approx((actions * tokens + 0.5 * sum_of_observations) / (tokens + 0.5 * observed), rel=1e-4)


@pytest.mark.parametrize("algorithm", ["rebn", "agentevol"])
def test_evaluations_during_the_warm_start_have_negative_steps(tmp_path: Path, algorithm: str) -> None:
    lines: list[str] = []
    settings: dict[str, Any] = {
        "env": GUESS,
        "model": "default:0.1M",
        "algorithm": algorithm,
        "episodes": 4,
        "eval_episodes": 4,
        "steps": 1,
        "warm_start": 8,
        "warm_epochs": 2,
        "warm_evaluate": True,
    }
    config = from_mapping({**settings, "out": str(tmp_path / "run")})
    run = asyncio.run(run_trainer(config, log=lines.append))
    assert [(row["step"], row.get("warm_epoch")) for row in run.rows] == [(-3, 0), (-2, 1), (-1, None), (0, None)]
    assert all("eval_success" in row for row in run.rows)
    told = [line.partition(":")[0] for line in lines if "on new" in line]
    assert told == ["before the warm start", "warm start", "before training"]
    assert "negative: epochs of the warm start" in page(read_run(tmp_path / "run"))


def test_a_run_that_was_killed_in_the_warm_start_keeps_no_rows(tmp_path: Path) -> None:
    killed = Metrics(tmp_path)
    killed.add({"step": -3, "warm_epoch": 0, "eval_success": 0.0})
    killed.close()
    assert Metrics(tmp_path).rows == []
    assert read(tmp_path / "metrics.jsonl") == []


def test_a_run_without_newer_options_can_be_resumed_unless_they_are_changed() -> None:
    tables = config_of().to_dict()
    tables["algorithm"] |= {"entropy_failed": 1.0, "kl_unsolved": 0.0}
    older = {name: {k: v for k, v in table.items() if (name, k) not in ADDED} for name, table in tables.items()}
    saved = with_added(older)
    assert changed_settings(saved, tables) == []
    assert changed_settings(saved, config_of(kl_unsolved=0.0).to_dict()) == [("algorithm", "entropy_failed")]
    options = {"warm_ignore_small_gradients": True, "warm_observation_weight": 0.5}
    options |= {"entropy_failed": 1.0, "kl_unsolved": 0.0}
    changed = config_of(**options, warm_player="expert", warm_rounds=2, warm_own_actions=0.3).to_dict()
    assert changed_settings(saved, changed) == [
        ("warm_start", "batch"),  # depends on the number of rounds
        ("warm_start", "ignore_small_gradients"),
        ("warm_start", "observation_weight"),
        ("warm_start", "own_actions"),
        ("warm_start", "player"),
        ("warm_start", "rounds"),
    ]
    assert changed_settings({**tables, "warm_start": {}}, tables) != []


def test_unused_embeddings_move_less_if_small_gradients_are_ignored(tmp_path: Path) -> None:
    sizes = {"episodes": 4, "eval_episodes": 4, "steps": 1, "warm_start": 8, "warm_epochs": 2, "warm_batch": 2}
    lengths = []  # of the mean embedding after the warm start: tokens that do not occur move in the same direction
    for ignore in (False, True):
        out = tmp_path / str(ignore)
        config = config_of(**sizes, warm_ignore_small_gradients=ignore, seed=1, out=str(out))
        asyncio.run(run_trainer(config))
        embeddings = load_file(out / "checkpoints" / "step-0" / "model.safetensors")["model.embed_tokens.weight"]
        lengths.append(float(embeddings.mean(0).norm()))
    assert lengths[1] < 0.5 * lengths[0]


@pytest.mark.parametrize("algorithm", ["rebn", "agentevol"])
def test_ctrl_c_ends_imitation_after_the_current_update(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[float] = []

    def interrupted(*args: Any, **options: Any) -> dict[str, float]:
        made.append(0.0)
        if len(made) == 2:
            signal.raise_signal(signal.SIGINT)
        return clone_samples(*args, **options)

    settings: dict[str, Any] = {"steps": 1, "warm_start": 64, "warm_batch": 4, "eval_episodes": 2, "store": False}
    if algorithm == "agentevol":  # imitates stored episodes instead of a warm start
        monkeypatch.setattr(step, "clone_samples", interrupted)
        with Writer(tmp_path / "expert.jsonl") as writer:
            for trajectory in played(32, "expert")[0]:
                writer.write(trajectory)
        settings |= {"algorithm": algorithm, "data": str(tmp_path / "expert.jsonl"), "batch": 4}
    else:
        monkeypatch.setattr(module, "clone_samples", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(config_of(out=str(tmp_path / "run"), **settings), log=lambda _: None)
    assert len(made) == 2
