"""Test SFT and DPO on stored trajectories: data selection, tokens, gradients and runs."""

from __future__ import annotations

import asyncio
import math
import runpy
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from palestra.agents import Agent, AgentSettings, ExpertAgent, RandomAgent
from palestra.algorithms.dpo import DPO, Pair, make_pairs
from palestra.engines.default_model import default_model
from palestra.errors import BadValue
from palestra.rollout import Failure, Trajectory, Writer, collect, to_samples
from palestra.training import data, train
from palestra.training.config import TrainConfig
from palestra.training.demonstrations import Demonstrator
from palestra.training.learner import Learner
from palestra.training.policy import Policy, load_policy
from palestra.training.recipe import from_mapping
from palestra.training.step import cloning_step, preference_step
from palestra.training.transcripts import Transcriber
from tests.training.killed_runs import start

torch.set_num_threads(1)
GAME = "game:GuessTheNumber-v0-easy"


def played(agent: Agent, episodes: int = 24) -> list[Trajectory]:
    return asyncio.run(collect(agent, GAME, episodes=episodes, seed=3, concurrency=16)).trajectories


def write(path: Path, trajectories: Sequence[Trajectory]) -> str:
    with Writer(path) as writer:
        for trajectory in trajectories:
            writer.write(trajectory)
    return str(path)


@pytest.fixture(scope="module")
def expert() -> list[Trajectory]:
    return played(ExpertAgent())


@pytest.fixture(scope="module")
def random_play() -> list[Trajectory]:
    return played(RandomAgent())


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory, expert: list[Trajectory], random_play: list[Trajectory]) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    write(folder / "expert.jsonl.gz", expert)
    write(folder / "random_play.jsonl", random_play)
    return folder


def tiny(out: Path, **values: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "model": "default:0.1M",
        "out": str(out),
        "batch": 8,
        "concurrency": 8,
        "eval_every": 2,
        "eval_episodes": 8,
        "save_every": 1,
        "max_tokens": 8,
        "lr": 3e-3,
        "lr_warmup": 1,
    }
    return from_mapping({**settings, **values})


def curve(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if "second" not in k} for row in rows]


# Selection of data


def test_data_can_be_files_folders_runs_and_globs(stores: Path, tmp_path: Path) -> None:
    both = data.find([str(stores)])
    assert [path.name for path in both] == ["expert.jsonl.gz", "random_play.jsonl"]
    assert data.find([str(stores / "*.jsonl*")]) == both
    assert data.find([str(stores / "random_play.jsonl"), str(stores)]) == [both[1], both[0]], (
        "each file must be listed once"
    )
    run = tmp_path / "run"
    (run / "trajectories").mkdir(parents=True)
    (run / "run.json").touch()
    (run / "metrics.jsonl").write_text("{}\n")
    write(run / "trajectories" / "step-000000.jsonl.gz", [])
    assert [path.name for path in data.find([str(run)])] == ["step-000000.jsonl.gz"], "metrics.jsonl must be ignored"
    with pytest.raises(BadValue, match="no trajectories found"):
        data.find([str(tmp_path / "nothing")])


def test_an_evaluation_is_used_only_if_its_tasks_are_not_held_out(tmp_path: Path, expert: list[Trajectory]) -> None:
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        (tmp_path / split / "run.json").touch()
        write(tmp_path / split / "episodes.jsonl", [replace(t, kwargs={"split": split}) for t in expert])
    assert len(data.load([str(tmp_path / "train")]).trajectories) == len(expert)
    with pytest.raises(BadValue, match=r"held out from training. Evaluate with --set split=train.*episodes.jsonl"):
        data.find([str(tmp_path / "test")])
    assert len(data.load([str(tmp_path / "test" / "episodes.jsonl")]).trajectories) == len(expert)


def test_failures_are_skipped_and_counted(tmp_path: Path, expert: list[Trajectory]) -> None:
    broken = replace(expert[0], failure=Failure(boundary="env", kind="EnvFailed", message="gone"))
    unplayed = replace(expert[0], turns=())
    stored = data.load([write(tmp_path / "a.jsonl", [broken, unplayed, *expert[:3]])])
    assert len(stored.trajectories) == 3
    assert stored.skipped == "1 failed, 1 without a turn"


def test_unusable_data_raises_with_a_fix(random_play: list[Trajectory], tmp_path: Path) -> None:
    lost = [t for t in random_play if not t.success]
    path = write(tmp_path / "lost.jsonl", lost)
    with pytest.raises(BadValue, match="is successful.*--data-keep all"):
        train(tiny(tmp_path / "run", algorithm="sft", data=path))
    with pytest.raises(BadValue, match="no preference pairs.*--group-size 2 or more"):
        train(tiny(tmp_path / "run", algorithm="dpo", data=path))
    assert not (tmp_path / "run").exists(), "unusable data must be reported before the run folder is created"


@settings(deadline=None)
@given(count=st.integers(1, 40), batch=st.integers(1, 12), passes=st.integers(1, 3), seed=st.integers(0, 9))
def test_an_epoch_visits_every_example_once(count: int, batch: int, passes: int, seed: int) -> None:
    updates = data.updates_per_pass(count, batch)
    for number in range(passes):
        steps = range(number * updates, (number + 1) * updates)
        seen = [i for step in steps for i in data.batch_at(step, count=count, batch=batch, seed=seed)]
        assert sorted(seen) == list(range(count))
    if count > 12:
        one, other = (data.batch_at(start, count=count, batch=count, seed=seed) for start in (0, 1))
        assert one != other, "the order must differ between passes"


# Tokens in the loss


def test_actions_without_tokens_are_rendered_like_demonstrations(expert: list[Trajectory]) -> None:
    _, tokenizer = default_model("0.1M")
    settings = AgentSettings(system="Play well.")
    readied = asyncio.run(Transcriber(tokenizer, settings=settings).tokenize(expert))
    shown = played(Demonstrator(tokenizer, "expert", max_tokens=64, settings=settings))
    assert readied.rendered == len(expert)
    for mine, theirs in zip(readied.trajectories, shown, strict=True):
        assert mine is not None
        assert [s.ids for s in to_samples(mine)] == [s.ids for s in to_samples(theirs)]
        assert [s.mask for s in to_samples(mine)] == [s.mask for s in to_samples(theirs)]


def test_stored_tokens_are_used_only_if_the_vocabulary_matches() -> None:
    _, tokenizer = default_model("0.1M")
    [own, *_] = played(Demonstrator(tokenizer, "random", max_tokens=64), episodes=1)
    foreign = _shifted(own)
    bare = replace(own, turns=tuple(_bare(turn) for turn in own.turns))
    readied = asyncio.run(Transcriber(tokenizer).tokenize([own, foreign, bare]))
    assert readied.rendered == 1
    first, second, third = readied.trajectories
    assert first == own
    for other in (second, third):
        assert other is not None
        assert [call.ids for turn in other.turns for call in turn.action.calls] == [
            call.ids for turn in own.turns for call in turn.action.calls
        ], "the texts are equal, so the token ids must be equal"
    assert second is not None
    assert [call.prompt_ids for turn in second.turns for call in turn.action.calls] == [
        call.prompt_ids for turn in own.turns for call in turn.action.calls
    ]
    assert third is not None
    assert to_samples(third), "missing log-probabilities must not prevent training"


def _shifted(trajectory: Trajectory) -> Trajectory:
    """Return the trajectory with ids from another tokenizer."""
    turns = []
    for turn in trajectory.turns:
        calls = tuple(
            replace(call, prompt_ids=[i + 1 for i in call.prompt_ids], ids=[i + 1 for i in call.ids])
            for call in turn.action.calls
        )
        turns.append(replace(turn, action=replace(turn.action, calls=calls)))
    return replace(trajectory, turns=tuple(turns))


def _bare(turn: Any) -> Any:
    return replace(turn, action=replace(turn.action, calls=tuple(replace(c, logprobs=[]) for c in turn.action.calls)))


def test_samples_longer_than_the_context_are_skipped(expert: list[Trajectory]) -> None:
    _, tokenizer = default_model("0.1M")
    whole = asyncio.run(Transcriber(tokenizer).tokenize(expert)).trajectories
    lengths = [max(map(len, to_samples(t))) for t in whole if t is not None]
    window = sorted(lengths)[len(lengths) // 2]
    readied = asyncio.run(Transcriber(tokenizer, window=window).tokenize(expert))
    assert [t is None for t in readied.trajectories] == [length > window for length in lengths]
    assert readied.too_long == sum(length > window for length in lengths) > 0


# Gradients


def learner(**values: Any) -> Learner:
    config = tiny(Path("nowhere"), algorithm="sft", data="nowhere", max_grad_norm=1e9, **values)
    policy = load_policy(config)
    return Learner(policy, config, policy.frozen())


def gradients(policy: Policy) -> list[torch.Tensor]:
    return [p.grad.clone() for p in policy.model.parameters() if p.grad is not None]


def logprob(policy: Policy, trajectory: Trajectory) -> torch.Tensor:
    """Compute the sum of log p over the action tokens directly from its definition."""
    total = torch.zeros(())
    for turn in trajectory.turns:
        for call in turn.action.calls:
            ids = torch.tensor([[*call.prompt_ids, *call.ids]])
            logps = policy.model(ids).logits[0].log_softmax(-1)
            for place, token in enumerate(call.ids, start=len(call.prompt_ids)):
                total = total + logps[place - 1, token]
    return total


def demonstrated(player: Literal["expert", "random"] = "random", episodes: int = 4) -> list[Trajectory]:
    return played(Demonstrator(default_model("0.1M")[1], player, max_tokens=64), episodes)


def some_pairs(count: int) -> list[Pair]:
    """Return pairs of episodes with the same seed, one by the expert and one by the random player."""
    found = make_pairs([*demonstrated("expert", 8), *demonstrated("random", 8)])
    assert len(found) >= count
    return found[:count]


@pytest.mark.parametrize("token_budget", [2048, 300], ids=["together", "apart"])
def test_sft_loss_is_the_weighted_mean_over_action_tokens(token_budget: int) -> None:
    shown = demonstrated()
    weights = [0.5, 2.0, 0.0, 1.0]
    it = learner(token_budget=token_budget)
    total = torch.stack([-w * logprob(it.policy, t) for w, t in zip(weights, shown, strict=True)]).sum()
    expected = total / sum(w * t.sampled_tokens for w, t in zip(weights, shown, strict=True))
    expected.backward()  # type: ignore[no-untyped-call]
    theirs = gradients(it.policy)
    found = cloning_step(it, shown, [[w] * len(t.turns) for w, t in zip(weights, shown, strict=True)], 0.0)
    assert found["loss"] == pytest.approx(expected.item(), rel=1e-5)
    for mine, their in zip(gradients(it.policy), theirs, strict=True):
        assert torch.allclose(mine, their, atol=1e-6)


def test_turns_of_weight_zero_are_not_learned() -> None:
    [shown] = [t for t in demonstrated() if len(t.turns) > 2][:1]
    rest = [0.0] * (len(shown.turns) - 1)
    it = learner()
    assert cloning_step(it, [shown], [[0.0, *rest]], 0.1) == {"signal": 0.0}
    assert not gradients(it.policy)
    cloning_step(it, [shown], [[1.0, *rest]], 0.0)
    only_first = gradients(it.policy)
    cloning_step(it, [replace(shown, turns=shown.turns[:1])], [[1.0]], 0.0)
    assert any(g.abs().max() > 1e-3 for g in only_first)
    for one, other in zip(only_first, gradients(it.policy), strict=True):
        assert torch.allclose(one, other, atol=1e-6), "later turns with weight 0 must not change the gradient"


@pytest.mark.parametrize("token_budget", [2048, 300], ids=["together", "apart"])
def test_dpo_loss_equals_its_definition_for_any_split(token_budget: int) -> None:
    pairs = some_pairs(2)
    it = learner(token_budget=token_budget)
    with torch.no_grad():  # different from the reference, so that the loss depends on beta
        for p in it.policy.model.parameters():
            p.add_(0.02 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
    assert it.reference is not None
    loss = torch.zeros(())
    for pair in pairs:
        won, lost = (logprob(it.policy, t) - logprob(it.reference, t) for t in (pair.chosen, pair.rejected))
        loss = loss - torch.nn.functional.logsigmoid(0.3 * (won - lost)) / len(pairs)
    loss.backward()  # type: ignore[no-untyped-call]
    theirs = gradients(it.policy)
    found = preference_step(it, pairs, 0.0, DPO(beta=0.3).loss)
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-4)
    for mine, their in zip(gradients(it.policy), theirs, strict=True):
        assert torch.allclose(mine, their, atol=1e-5)


def test_dpo_starts_without_preference_and_learns_one() -> None:
    pairs = some_pairs(3)
    it = learner()
    first = preference_step(it, pairs, 3e-3, DPO(beta=0.1).loss)
    assert first["loss"] == pytest.approx(math.log(2))
    for _ in range(5):
        last = preference_step(it, pairs, 3e-3, DPO(beta=0.1).loss)
    assert last["loss"] < 0.6
    assert last["accuracy"] == 1.0
    assert last["chosen_reward"] > last["rejected_reward"]
    it.reference = None
    with pytest.raises(BadValue, match="reference"):
        preference_step(it, pairs, 0.1, DPO(beta=0.1).loss)


# Runs


def test_sft_learns_and_writes_a_run(stores: Path, tmp_path: Path) -> None:
    messages: list[str] = []
    rare = {"eval_every": 0, "save_every": 100}
    expert = str(stores / "expert.jsonl.gz")
    config = tiny(tmp_path / "run", algorithm="sft", data=expert, env=GAME, epochs=4, lr=1e-2, **rare)
    run = train(config, log=messages.append)
    assert [row["step"] for row in run.rows] == list(range(-1, 12)), "4 passes over 24 trajectories, 8 per update"
    assert run.rows[-1]["epoch"] == 4.0
    assert run.rows[-1]["loss"] < 0.7 * run.rows[1]["loss"]
    assert "eval_success" in run.rows[0]
    assert "eval_success" in run.rows[-1]
    assert any("24 of 24 trajectories have no token ids" in line for line in messages)
    AutoModelForCausalLM.from_pretrained(run.folder / "last")
    assert data.with_planned_steps(config, 24).run.steps == 12


@pytest.mark.parametrize("algorithm", ["sft", "dpo"])
def test_a_killed_run_resumes_exactly(algorithm: str, stores: Path, tmp_path: Path) -> None:
    options = {"algorithm": algorithm, "data": str(stores), "epochs": 2, "batch": 8 if algorithm == "dpo" else 16}
    whole = train(tiny(tmp_path / "whole", **options))
    assert start(tiny(tmp_path / "cut", **options).to_dict(), kill_at=2).wait() == -signal.SIGKILL
    resumed = train(tiny(tmp_path / "cut", **options))
    assert len(whole.rows) > 4
    assert curve(resumed.rows) == curve(whole.rows)
    one, other = (AutoModelForCausalLM.from_pretrained(run.folder / "last").state_dict() for run in (whole, resumed))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert whole.first_success is None, "without an environment there must be no evaluation"


def test_a_run_does_not_resume_with_other_data(tmp_path: Path, expert: list[Trajectory]) -> None:
    path = write(tmp_path / "a.jsonl", expert[:8])
    train(tiny(tmp_path / "run", algorithm="sft", data=path, steps=1))
    write(tmp_path / "a.jsonl", expert[8:9])
    with pytest.raises(BadValue, match="have changed since the run in"):
        train(tiny(tmp_path / "run", algorithm="sft", data=path, steps=2))


def test_pairs_are_episodes_of_the_same_seed(stores: Path, tmp_path: Path, random_play: list[Trajectory]) -> None:
    messages: list[str] = []
    run = train(tiny(tmp_path / "run", algorithm="dpo", data=str(stores), lr=1e-3), log=messages.append)
    pairs = DPO().select(data.load([str(stores)]).trajectories)
    assert len(pairs) == sum(t.total_reward < 1 for t in random_play)
    assert all(isinstance(pair, Pair) and pair.chosen.success and not pair.rejected.success for pair in pairs)
    assert messages[0] == f"training on {len(pairs)} pairs"
    assert run.rows[0]["step"] == -1
    assert run.rows[1]["loss"] == pytest.approx(math.log(2))
    assert run.rows[-1]["reward_margin"] > 0
    assert (run.folder / "start" / "config.json").exists(), "the reference model must be saved"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"algorithm": "sft"}, "sft trains on stored trajectories; set --data"),
        ({"algorithm": "dpo"}, "dpo trains on stored trajectories; set --data"),
        ({"env": GAME, "data": "x"}, "rebn has no option 'data'; it is an option of agentevol, sft, dpo"),
        ({"algorithm": "dpo", "data": "x", "dpo_beta": 0.0}, "dpo_beta must be greater than 0"),
        ({"algorithm": "dpo", "data": "x", "dpo_smoothing": 0.5}, "dpo_smoothing must be less than 0.5"),
        ({"algorithm": "sft", "data": "x", "data_keep": "some"}, "data_keep must be one of success, all"),
        ({"algorithm": "sft", "data": "x", "batch": 0}, "batch must be at least 1"),
        ({"algorithm": "sft", "data": "x", "asynchronous": True}, "sft has no asynchronous trainer"),
    ],
)
def test_invalid_settings_are_rejected(values: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        from_mapping(values)


def test_the_recipe_compares_before_and_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = Path(__file__).parents[2] / "recipes" / "distil.py"
    sizes = ["--episodes", "24", "--eval-episodes", "4", "--rounds", "1"]
    monkeypatch.setattr("sys.argv", ["distil.py", "--out", str(tmp_path / "distil"), *sizes])
    runpy.run_path(str(recipe), run_name="__main__")
    table = capsys.readouterr().out.rpartition("\n\n")[2]
    rates = {line[:18].strip(): float(line[18:].strip(" %")) / 100 for line in table.splitlines()}
    assert list(rates) == [
        "expert",
        "random player",
        "untrained model",
        "after sft",
        "after dpo",
        "after agentevol",
    ]
    assert rates["expert"] == 1.0
    assert rates["untrained model"] == 0.0
    assert all((tmp_path / "distil" / name / "last" / "config.json").exists() for name in ("sft", "dpo", "agentevol"))
