"""Test that an invalid reward, a hang or an exit in an environment fails only its own episode."""

from __future__ import annotations

import asyncio
import sys
import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from palestra.core import Env, Reset
from palestra.rollout import RolloutResult, collect
from palestra.rollout.env_provider import EnvBackend
from palestra.types import Step
from tests.rollout.players import Solver

REWARDS = [float("nan"), float("inf"), -float("inf"), None, "1", True, 10**400, 1j, [1.0], np.array([1.0, 2.0])]


class OneStep(Env):
    """Env with one step; the keyword arguments determine what each call does."""

    def __init__(
        self, *, reward: Any = 1.0, exits: str = "", interrupts: str = "", hangs: str = "", inline: bool = False
    ) -> None:
        self.reward = reward
        self.exits = exits
        self.interrupts = interrupts
        self.hangs = hangs
        self.inline = inline
        self._at("make")

    def _at(self, call: str) -> None:
        if self.exits == call:
            sys.exit(0)
        if self.interrupts == call:
            raise KeyboardInterrupt
        if self.hangs == call:
            threading.Event().wait()

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        seed = self.start_episode(seed)
        self._at("reset")
        return "Say yes.", {"seed": seed}

    def step(self, action: str) -> Step:
        self._at("step")
        return Step("Done.", self.reward, True, False, {"success": True})

    def expert_action(self) -> str | None:
        self._at("agent")
        return "yes"

    def close(self) -> None:
        self._at("close")


def play(backend: EnvBackend = "inline", **kwargs: Any) -> RolloutResult:
    timeouts = {key: kwargs.pop(key) for key in ("step_timeout", "reset_timeout", "call_timeout") if key in kwargs}
    return asyncio.run(
        collect(Solver(), OneStep, episodes=2, seed=1, kwargs=kwargs, retries=1, env_backend=backend, **timeouts)
    )


@pytest.mark.parametrize("backend", ["inline", "thread"])
@pytest.mark.parametrize("reward", REWARDS, ids=repr)
def test_a_reward_that_is_not_a_finite_number_is_an_env_failure(backend: EnvBackend, reward: Any) -> None:
    result = play(backend, reward=reward)
    assert result.trajectories == []
    assert result.metrics["failures_by_boundary"] == {"env": 2}
    for failed in result.failures:
        assert failed.failure is not None
        assert "the reward of a step must be a finite number, got" in failed.failure.message
        assert (failed.success, failed.turns, failed.attempts) == (None, (), 2)


@pytest.mark.parametrize("reward", [1, np.float32(0.5), np.int64(2), Fraction(1, 2)], ids=repr)
def test_any_real_number_is_a_reward(reward: Any) -> None:
    for trajectory in play(reward=reward).trajectories:
        assert type(trajectory.turns[0].reward) is float
        assert trajectory.total_reward == float(reward)


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("call", ["make", "reset", "step", "agent"])
def test_sys_exit_is_a_failure_of_the_episode(call: str, inline: bool) -> None:
    result = play(exits=call, inline=inline)
    assert result.metrics["failures_by_boundary"] == {"agent" if call == "agent" else "env": 2}
    for failed in result.failures:
        assert failed.failure is not None
        assert (failed.failure.kind, failed.failure.message) == (
            "SystemExit",
            "the code tried to end the process: SystemExit(0)",
        )


@pytest.mark.parametrize("backend", ["inline", "thread"])
@pytest.mark.parametrize("call", ["reset", "step"])
def test_keyboard_interrupt_in_a_thread_is_a_failure_of_the_episode(call: str, backend: EnvBackend) -> None:
    assert play(backend, interrupts=call).metrics["failures_by_boundary"] == {"env": 2}


@pytest.mark.parametrize("backend", ["inline", "thread"])
def test_sys_exit_in_close_is_ignored(backend: EnvBackend) -> None:
    assert [t.success for t in play(backend, exits="close").trajectories] == [True, True]


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize(("call", "limit"), [("make", "reset"), ("reset", "reset"), ("step", "step")])
def test_a_call_that_hangs_is_a_failure_of_the_episode(call: str, limit: str, inline: bool) -> None:
    options: dict[str, Any] = {f"{limit}_timeout": 0.02}
    result = play(hangs=call, inline=inline, **options)
    assert result.metrics["failures_by_boundary"] == {"env": 2}


def test_a_close_that_hangs_does_not_block_the_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palestra.rollout.env_provider.CLOSE_TIMEOUT", 0.02)
    assert [t.success for t in play(hangs="close").trajectories] == [True, True]
