"""Streams whose tasks are not all known from the start, and envs that are told what they will play."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.agents import ExpertAgent
from palestra.rollout import Task, collect, stream
from palestra.wrappers import Horizon
from tests.conformance.defective_envs import Sound


def test_tasks_that_come_to_be_known_one_by_one() -> None:
    """A source may wait, for what was played so far too; every task it gives is played once."""
    finished: list[int] = []
    gate = asyncio.Semaphore(2)

    async def tasks() -> AsyncIterator[Task]:
        for seed in range(9):
            await gate.acquire()  # at most two episodes ahead of what the reader has seen
            yield Task(env_id="game:GuessTheNumber-v0-easy", seed=seed)

    async def main() -> None:
        async with stream(ExpertAgent(), tasks(), concurrency=4) as trajectories:
            async for trajectory in trajectories:
                finished.append(trajectory.seed)
                gate.release()

    asyncio.run(main())
    assert sorted(finished) == list(range(9))


@given(episodes=st.integers(1, 12), concurrency=st.integers(1, 5), group_size=st.sampled_from([1, 2]))
def test_envs_are_told_in_time_what_will_be_played(episodes: int, concurrency: int, group_size: int) -> None:
    """Every task that does not begin at once is told, in order, before it is its turn; wrappers pass it on."""
    said: list[tuple[str, int]] = []

    class Told(Sound):
        def prepare(self, seed: int) -> None:
            said.append(("prepare", seed))

        def start_episode(self, seed: int | None) -> int:
            said.append(("begin", super().start_episode(seed)))
            return self.seed

    result = asyncio.run(
        collect(
            ExpertAgent(),
            Told,
            episodes=episodes * group_size,
            group_size=group_size,
            concurrency=concurrency,
            seed=5,
            wrappers=[lambda env: Horizon(env, turns=3)],
        )
    )
    played = [trajectory.seed for trajectory in result.trajectories]
    assert [seed for what, seed in said if what == "prepare"] == played[concurrency:]
    for number, seed in enumerate(played[concurrency:], concurrency):
        told = said.index(("prepare", seed))
        begun = [at for at, one in enumerate(said) if one[0] == "begin"][number]
        assert told < begun


def test_only_an_env_of_its_kind_is_told_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only of tasks that a seed says all about."""
    told: list[tuple[type, int]] = []
    monkeypatch.setattr(palestra.Env, "prepare", lambda env, seed: told.append((type(env), seed)))
    names = ["game:GuessTheNumber-v0-easy", "game:TowerofHanoi-v0-easy"]
    guess, hanoi = (type(palestra.make(name)) for name in names)
    tasks = [Task(env_id=names[seed % 2], seed=seed) for seed in range(6)]
    asyncio.run(collect(ExpertAgent(), tasks, concurrency=1))
    assert told == [(guess, 2), (hanoi, 3), (guess, 4), (hanoi, 5)]  # of 1 there was none to be told
    told.clear()
    tasks = [Task(env_id=names[0], seed=seed, options={"sizes": 3} if seed == 2 else {}) for seed in range(4)]
    asyncio.run(collect(ExpertAgent(), tasks, concurrency=1, retries=0))
    assert told == [(guess, 1), (guess, 3)]
