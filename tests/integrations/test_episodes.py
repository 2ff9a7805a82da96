"""Test episodes that other frameworks sample."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from palestra.engines import ByteTokenizer
from palestra.engines.base import Sampling
from palestra.errors import BadValue, EnvFailed, UnknownEnv
from palestra.integrations.episodes import (
    FrameworkEngine,
    SteppedEpisode,
    play_episode,
    task_seeds,
    token_row,
    write_rows,
)

TOKENIZER = ByteTokenizer()
END = TOKENIZER.eos_token_id
ENV = "game:GuessTheNumber-v0-easy"


def guess(number: int) -> list[int]:
    return [*TOKENIZER.encode(f"\\boxed{{{number}}}"), END]


async def count(prompt: list[int], sampling: Sampling) -> tuple[list[int], list[float]]:
    """Guess a higher number in each turn."""
    ids = guess(prompt.count(END))
    return ids, [-0.5] * len(ids)


def test_an_episode_is_one_row_with_masked_observations() -> None:
    async def run() -> Any:
        engine = FrameworkEngine(count, TOKENIZER)
        return await play_episode(engine, ENV, seed=3, max_tokens=32)

    trajectory = asyncio.run(run())
    row = token_row(trajectory)
    sizes = {len(row.completion_ids), len(row.logprobs), len(row.mask), len(row.turn_index)}
    assert len(sizes) == 1
    sampled = [token for token, bit in zip(row.completion_ids, row.mask, strict=True) if bit]
    assert sampled == [token for turn in trajectory.turns for call in turn.action.calls for token in call.ids]
    assert {value for value, bit in zip(row.logprobs, row.mask, strict=True) if bit} == {-0.5}
    assert max(row.turn_index) == len(trajectory.turns) - 1


def test_a_stepped_episode_extends_its_prompts_and_equals_a_played_one() -> None:
    async def run() -> tuple[Any, Any]:
        played = await play_episode(FrameworkEngine(count, TOKENIZER), ENV, seed=3, max_tokens=32)
        episode = SteppedEpisode(TOKENIZER, ENV, seed=3)
        prompt = await episode.start()
        while prompt is not None:
            ids, _ = await count(prompt, Sampling())
            following = await episode.reply(ids)
            assert following is None or following[: len(prompt) + len(ids)] == prompt + ids
            prompt = following
        return played, episode.trajectory

    played, stepped = asyncio.run(run())
    assert [turn.action.text for turn in stepped.turns] == [turn.action.text for turn in played.turns]
    assert stepped.total_reward == played.total_reward


def test_failures_are_raised_and_unfinished_episodes_can_be_closed() -> None:
    async def broken(prompt: list[int], sampling: Sampling) -> tuple[list[int], list[float]]:
        raise RuntimeError("no server")

    async def run() -> None:
        with pytest.raises(EnvFailed, match="no server"):
            await play_episode(FrameworkEngine(broken, TOKENIZER), ENV, seed=1, rollout={"retries": 0})
        episode = SteppedEpisode(TOKENIZER, ENV, seed=1)
        with pytest.raises(BadValue, match="start"):
            await episode.reply([1])
        await episode.start()
        await episode.aclose()
        await episode.aclose()

    asyncio.run(run())


def test_tasks_alternate_between_environments() -> None:
    tasks = task_seeds([ENV, "game:Wordle-v0-easy"], 3, seed=1)
    assert [name for name, _ in tasks] == [ENV, "game:Wordle-v0-easy", ENV]
    assert len({seed for _, seed in tasks}) == 3
    with pytest.raises(UnknownEnv):
        task_seeds("game:Nothing-v0", 1)
    with pytest.raises(BadValue):
        task_seeds(ENV, 0)


def test_rows_are_written_as_json_lines(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "train.jsonl", [{"env": ENV, "seed": 1}, {"env": ENV, "seed": 2}])
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()] == [1, 2]
