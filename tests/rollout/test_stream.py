"""Streams whose tasks are not all known from the start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from palestra.agents import Expert
from palestra.rollout import Task, stream


def test_tasks_that_come_to_be_known_one_by_one() -> None:
    """A source may wait, for what was played so far too; every task it gives is played once."""
    finished: list[int] = []
    gate = asyncio.Semaphore(2)

    async def tasks() -> AsyncIterator[Task]:
        for seed in range(9):
            await gate.acquire()  # at most two episodes ahead of what the reader has seen
            yield Task(env_id="game:GuessTheNumber-v0-easy", seed=seed)

    async def main() -> None:
        async with stream(Expert(), tasks(), concurrency=4) as trajectories:
            async for trajectory in trajectories:
                finished.append(trajectory.seed)
                gate.release()

    asyncio.run(main())
    assert sorted(finished) == list(range(9))
