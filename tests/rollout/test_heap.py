"""Test that rollouts reduce garbage collection and restore Python's settings."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from palestra.agents import RandomAgent
from palestra.rollout import heap, stream
from palestra.rollout.heap import THRESHOLDS, frozen_heap


@pytest.fixture(autouse=True)
def unfrozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Unfreeze the heap, which the test process may have frozen, during a test."""
    monkeypatch.setattr(heap, "_frozen_by_process", False)
    frozen = gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    if frozen:
        gc.freeze()


def test_existing_objects_are_not_collected_until_the_last_block_ends() -> None:
    before = gc.get_threshold()
    with frozen_heap():
        with frozen_heap():
            assert gc.get_freeze_count() > 1000
        assert gc.get_threshold() == (*THRESHOLDS, before[2])
        assert gc.get_freeze_count() > 1000
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == before


def test_the_heap_of_a_process_that_froze_it_stays_frozen() -> None:
    gc.freeze()
    for _ in range(2):
        with frozen_heap():
            assert gc.get_threshold()[:2] == THRESHOLDS
        assert gc.get_freeze_count() > 0
    gc.unfreeze()


def test_a_stream_that_is_closed_early_restores_the_settings() -> None:
    async def first() -> int:
        async with stream(RandomAgent(), "game:GuessTheNumber-v0-easy", episodes=4, seed=1) as trajectories:
            async for _ in trajectories:
                return gc.get_freeze_count()
        return 0

    assert asyncio.run(first()) > 0
    assert gc.get_freeze_count() == 0
