"""Test streams over an asynchronous source of tasks, and calls to `Env.prepare` with the seeds of later tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.agents import Agent, AgentSession, ExpertAgent
from palestra.rollout import Task, collect, stream
from palestra.types import Action
from palestra.wrappers import Horizon
from tests.conformance.defective_envs import Sound


def test_tasks_from_an_async_iterator() -> None:
    """Check that every task is played once, even if the iterator waits for finished episodes."""
    finished: list[int] = []
    gate = asyncio.Semaphore(2)

    async def tasks() -> AsyncIterator[Task]:
        for seed in range(9):
            await gate.acquire()  # start at most two more episodes than the consumer has received
            yield Task(env_id="game:GuessTheNumber-v0-easy", seed=seed)

    async def main() -> None:
        async with stream(ExpertAgent(), tasks(), concurrency=4) as trajectories:
            async for trajectory in trajectories:
                finished.append(trajectory.seed)
                gate.release()

    asyncio.run(main())
    assert sorted(finished) == list(range(9))


@given(episodes=st.integers(1, 12), concurrency=st.integers(1, 5), group_size=st.sampled_from([1, 2]))
def test_prepare_is_called_before_the_episode_starts(episodes: int, concurrency: int, group_size: int) -> None:
    """Check that `prepare` is called in order, even through wrappers, for all tasks that do not start immediately."""
    events: list[tuple[str, int]] = []

    class RecordingEnv(Sound):
        def prepare(self, seed: int) -> None:
            events.append(("prepare", seed))

        def start_episode(self, seed: int | None) -> int:
            events.append(("start", super().start_episode(seed)))
            return self.seed

    result = asyncio.run(
        collect(
            ExpertAgent(),
            RecordingEnv,
            episodes=episodes * group_size,
            group_size=group_size,
            concurrency=concurrency,
            seed=5,
            wrappers=[lambda env: Horizon(env, turns=3)],
        )
    )
    played = [trajectory.seed for trajectory in result.trajectories]
    assert [seed for event, seed in events if event == "prepare"] == played[concurrency:]
    for number, seed in enumerate(played[concurrency:], concurrency):
        prepared = events.index(("prepare", seed))
        started = [index for index, event in enumerate(events) if event[0] == "start"][number]
        assert prepared < started


def test_prepare_is_called_on_an_env_of_the_same_id_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also check that tasks with reset options are not prepared, because the seed alone does not define them."""
    prepared: list[tuple[type, int]] = []
    monkeypatch.setattr(palestra.Env, "prepare", lambda env, seed: prepared.append((type(env), seed)))
    names = ["game:GuessTheNumber-v0-easy", "game:TowerofHanoi-v0-easy"]
    guess, hanoi = (type(palestra.make(name)) for name in names)
    tasks = [Task(env_id=names[seed % 2], seed=seed) for seed in range(6)]
    asyncio.run(collect(ExpertAgent(), tasks, concurrency=1))
    assert prepared == [(guess, 2), (hanoi, 3), (guess, 4), (hanoi, 5)]  # there was no env yet for the task with seed 1
    prepared.clear()
    tasks = [Task(env_id=names[0], seed=seed, options={"sizes": 3} if seed == 2 else {}) for seed in range(4)]
    asyncio.run(collect(ExpertAgent(), tasks, concurrency=1, retries=0))
    assert prepared == [(guess, 1), (guess, 3)]


def test_closing_ends_workers_whose_cancellation_is_lost() -> None:
    """Close a stream whose agent swallows the cancellation while the source of tasks waits forever."""

    class Stubborn(Agent):
        def start(self, env: palestra.Env, *, seed: int | None = None) -> AgentSession:
            return StubbornSession()

    class StubbornSession(AgentSession):
        async def act(self, observation: Any, info: dict[str, Any]) -> Action:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            return Action(text=r"\boxed{1}")

    async def tasks() -> AsyncIterator[Task]:
        for seed in range(2):
            yield Task(env_id="math:Arithmetic-v0-easy", seed=seed, group=seed)
        await asyncio.Event().wait()

    async def close_early() -> None:
        async with stream(Stubborn(), tasks(), concurrency=2) as episodes:
            first = asyncio.ensure_future(anext(aiter(episodes)))
            await asyncio.sleep(0.2)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)

    asyncio.run(asyncio.wait_for(close_early(), 30))
