"""Base class for environments on other projects' servers, which do not support forks."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NoReturn, Self

from palestra.core import Env
from palestra.errors import BadValue, EnvFailed, EpisodeOver, ResetNeeded
from palestra.types import Step, finite_reward


class AdapterEnv(Env):
    """Environment on another project's server.

    Server and network failures raise EnvFailed instead of returning a reward, and the next `reset` starts a
    new episode. Episodes are truncated after `max_turns` turns.
    """

    reward_range = (float("-inf"), float("inf"))

    def __init__(self, *, max_turns: int | None) -> None:
        if max_turns is not None and (isinstance(max_turns, bool) or max_turns < 1):
            raise BadValue(f"max_turns must be a positive integer or None, got {max_turns!r}")
        self.max_turns = max_turns
        self._state = "reset"  # one of "reset", "running", "over" and "failed"
        self._turn = 0
        self._total = 0.0

    def _check_running(self, action: object) -> None:
        if self._state == "over":
            raise EpisodeOver("the episode is over; call reset() to start the next one")
        if self._state != "running":
            reason = "the server failed" if self._state == "failed" else "none was started"
            raise ResetNeeded(f"there is no running episode: {reason}; call reset()")
        if not isinstance(action, str):
            raise BadValue(f"an action must be a string, got {type(action).__name__}")

    def _started(self) -> None:
        self._state = "running"
        self._turn = 0
        self._total = 0.0

    @abstractmethod
    def _drop_episode(self) -> None:
        """Stop using the server's environment after an invalid reply. The next `reset` starts a new episode."""

    def _step_result(
        self, text: Any, reward: float, done: bool, info: dict[str, Any], *, truncated: bool = False
    ) -> Step:
        """Return the result of a step. `truncated` is True if the server reports that it truncated the episode."""
        try:
            reward = finite_reward(reward)
        except EnvFailed:
            self._drop_episode()
            raise
        self._turn += 1
        self._total += reward
        horizon = not done and self.max_turns is not None and self._turn >= self.max_turns
        info = {"turn": self._turn, **info}
        if done or horizon:
            self._state = "over"
            solved = done and not truncated and self._total >= 1 - 1e-9
            info.setdefault("success", solved)
            info.setdefault("ending", "horizon" if horizon or truncated else "solved" if info["success"] else "lost")
        return Step(text, reward, done and not truncated, horizon or (done and truncated), info)

    def __repr__(self) -> str:
        args, kwargs = self._call
        shown = [repr(arg) for arg in args] + [f"{name}={value!r}" for name, value in kwargs.items() if name != "token"]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _refuse_copy(self) -> NoReturn:
        raise BadValue(f"{type(self).__name__} cannot be forked, because its server cannot copy episodes")

    def fork(self) -> Self:
        self._refuse_copy()

    def _copy(self, memo: dict[int, Any]) -> Self:  # noqa: ARG002
        self._refuse_copy()

    def snapshot(self) -> bytes:
        self._refuse_copy()
