"""Test the warning about environments that do not return."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

import palestra
from palestra.core import Env, Reset
from palestra.rollout import collect, slow_calls
from palestra.rollout.types import Task
from palestra.types import Step
from tests.rollout.players import Solver

LIMIT = 0.3  # seconds


class Slow(Env):
    """Env with one step, of which one call takes longer than the limit."""

    inline = True

    def __init__(self, *, slow: str = "") -> None:
        self.slow = slow

    def _wait(self, call: str) -> None:
        if call == self.slow:
            time.sleep(3 * LIMIT)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        seed = self.start_episode(seed)
        self._wait("reset")
        return "Say yes.", {"seed": seed}

    def step(self, action: str) -> Step:
        self._wait("step")
        return Step("Done.", 1.0, True, False, {"success": True})

    def expert_action(self) -> str | None:
        return "yes"


@pytest.fixture
def warnings(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    monkeypatch.setattr(slow_calls, "SECONDS", LIMIT)
    monkeypatch.setattr("palestra.rollout.episode.slow_calls", slow_calls.SlowCalls())
    caplog.set_level(logging.WARNING, logger=slow_calls.__name__)
    return lambda: [record.getMessage() for record in caplog.records if record.name == slow_calls.__name__]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["reset", "step"])
def test_slow_calls_are_reported_once(method: str, warnings: Callable[[], list[str]]) -> None:
    result = asyncio.run(collect(Solver(), lambda: Slow(slow=method), episodes=2, seed=5))
    assert all(t.success for t in result.trajectories)
    (message,) = warnings()
    assert f"has not returned from {method}" in message
    assert f"--{method}-timeout" in message
    assert any(str(t.seed) in message for t in result.trajectories)


def test_the_id_is_found_for_tasks_of_rollout_workers(warnings: Callable[[], list[str]]) -> None:
    calls = slow_calls.SlowCalls()
    number = calls.begin(palestra.make("game:GuessTheNumber-v0-easy"), Task(env_id="", seed=7), "step")
    deadline = time.monotonic() + 30
    while not warnings() and time.monotonic() < deadline:
        time.sleep(0.01)
    calls.end(number)
    (message,) = warnings()
    assert message.startswith("game:GuessTheNumber-v0-easy with seed 7 has not returned from step")


def test_fast_calls_and_timeouts_are_not_reported(warnings: Callable[[], list[str]]) -> None:
    for slow, timeout in (("", None), ("reset", LIMIT)):
        result = asyncio.run(
            collect(Solver(), lambda slow=slow: Slow(slow=slow), episodes=1, retries=0, reset_timeout=timeout)
        )
        assert len(result.failures) == (timeout is not None)
    time.sleep(2 * LIMIT)
    assert warnings() == []


def test_the_thread_ends_without_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_calls, "SECONDS", LIMIT)
    calls = slow_calls.SlowCalls()
    for _ in range(2):  # a later call starts another thread
        number = calls.begin(Slow(), Task(env_id="game:Test-v0", seed=1), "step")
        assert calls.watching
        time.sleep(LIMIT)
        assert calls.watching
        calls.end(number)
        deadline = time.monotonic() + 30
        while calls.watching and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not calls.watching
