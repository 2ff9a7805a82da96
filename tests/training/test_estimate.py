"""Test that `palestra train --dry-run` estimates memory and time from the lengths of real episodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from palestra.agents import ExpertAgent
from palestra.engines.default_model import default_model, default_tokenizer
from palestra.envs.games.sudoku import Sudoku
from palestra.errors import EngineFailed
from palestra.rollout import Writer, collect
from palestra.training.config import TrainConfig
from palestra.training.data import load
from palestra.training.demonstrations import Demonstrator, samples_with_end
from palestra.training.episode_lengths import EpisodeLengths, played_lengths, stored_lengths
from palestra.training.estimate import estimate, run_memory
from palestra.training.learner import Learner
from palestra.training.policy import load_policy
from palestra.training.recipe import from_mapping
from palestra.training.step import reinforcement_step
from tests.training.helpers import batch

GUESS, SUDOKU = "game:GuessTheNumber-v0-easy", "game:Sudoku-v0-easy"


class Unplayed(Sudoku):
    """Sudoku without a random player."""

    def sample_random_action(self) -> str:
        raise NotImplementedError


def config_of(**settings: Any) -> TrainConfig:
    return from_mapping({"model": "default:0.1M", "device": "cpu", **settings})


def lengths_of(**settings: Any) -> EpisodeLengths:
    return played_lengths(config_of(**settings), default_tokenizer(), required=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "env", [GUESS, SUDOKU, "game:Mastermind-v0-hard", "textcraft:Depth2-v0", "math:Arithmetic-v0-easy"]
)
def test_lengths_are_those_of_real_episodes(env: str) -> None:
    lengths = lengths_of(env=env)
    player = Demonstrator(default_tokenizer(), "random", max_tokens=0)
    played = asyncio.run(collect(player, env, episodes=32, seed=7, concurrency=32)).trajectories
    sizes = [sum(map(len, samples_with_end(t, 0))) for t in played]
    assert lengths.source == "4 episodes of the random player"
    assert min(sizes) * 0.8 <= lengths.tokens <= max(sizes) * 1.2
    assert max(sizes) <= 1.2 * lengths.longest(lengths.longest_reply)
    assert lengths.turns <= max(len(t.turns) for t in played) <= lengths.limit


def test_lengths_follow_weights_horizons_and_the_context_policy() -> None:
    sudoku, guess = lengths_of(env=SUDOKU), lengths_of(env=GUESS)
    mixed = lengths_of(env={SUDOKU: 1, GUESS: 3})
    assert mixed.tokens == pytest.approx((sudoku.tokens + 3 * guess.tokens) / 4)
    assert mixed.limit == sudoku.limit > guess.limit
    short = lengths_of(env=SUDOKU, horizon="2,5@10")
    assert short.limit == short.turns == 5
    latest = lengths_of(env=SUDOKU, context="latest")
    assert latest.longest(12) < sudoku.longest(12) / 2
    longer = sudoku.with_reply(sudoku.reply + 10)
    assert longer.tokens == pytest.approx(sudoku.tokens + 10 * sudoku.turns)
    assert longer.pairs > sudoku.pairs


def test_lengths_are_assumed_without_a_random_player_unless_it_is_imitated() -> None:
    env = f"{__name__}:Unplayed"
    assumed = estimate(config_of(env=env, warm_start=0)).lengths
    assert (assumed.source, assumed.limit) == ("", Unplayed().max_turns)
    with pytest.raises(EngineFailed, match="random player of the warm start.*--warm-start 0"):
        estimate(config_of(env=env, warm_start=8))


def test_longer_conversations_need_more_memory_and_time() -> None:
    short, long = (estimate(config_of(env=env, steps=7)) for env in (GUESS, SUDOKU))
    assert long.sampling["KV cache"] > 2 * short.sampling["KV cache"]
    assert long.step_seconds > 2 * short.step_seconds
    assert long.warm_seconds > 2 * short.warm_seconds
    lines = "\n".join(long.lines())
    assert "measured: 4 episodes of the random player had" in lines
    assert "for 7 steps" in lines


def test_an_offline_run_is_estimated_from_its_data(tmp_path: Path) -> None:
    path = tmp_path / "expert.jsonl"
    with Writer(path) as writer:
        for trajectory in asyncio.run(collect(ExpertAgent(), SUDOKU, episodes=20, seed=1)).trajectories:
            writer.write(trajectory)
    config = config_of(algorithm="sft", data=str(path), batch=8, epochs=2)
    plan = estimate(config)
    assert plan.steps == 6  # two passes over 20 episodes
    assert (plan.sampling, plan.warm_episodes) == ({}, 0)
    assert plan.lengths == stored_lengths(config, load([str(path)]).trajectories, default_tokenizer(), None)
    lines = "\n".join(plan.lines())
    assert "measured: 20 of the stored trajectories had 6 turns" in lines
    assert "sampled" not in lines


def size(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors if tensor is not None)


def test_memory_includes_other_models_than_the_policy() -> None:
    config = config_of(env=GUESS, algorithm="ppo", critic="model", kl=0.1)
    policy = load_policy(config)
    reference = policy.frozen()
    learner = Learner(policy, config, reference)
    parts, _ = run_memory(config, policy.model, 1, 512, None)
    assert parts["reference model"] == size(reference.model.parameters())
    reinforcement_step(learner, batch(4), 0)
    body: Any = policy.critic_body
    weights = list(body.parameters())
    states = [part.state[p] for part in learner.optimizer.parts for p in weights if p in part.state]
    moments = size(state[name] for state in states for name in ("exp_avg", "exp_avg_sq"))
    assert moments == 2 * size(weights)
    assert parts["critic"] == size(weights) + size(p.grad for p in weights) + moments
    teacher, _ = run_memory(config_of(env=GUESS, algorithm="distill", teacher="default:1M"), policy.model, 1, 512, None)
    assert teacher["teacher"] == size(default_model("1M")[0].parameters())
    assert "critic" not in run_memory(config_of(env=GUESS), policy.model, 1, 512, None)[0]


def test_the_number_of_threads_is_restored() -> None:
    before = torch.get_num_threads()
    estimate(config_of(env=GUESS, threads=before + 1))
    assert torch.get_num_threads() == before
