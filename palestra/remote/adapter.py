"""What environments on other projects' servers share: who may step when, no copies, and how an episode ends."""

from __future__ import annotations

from typing import Any, NoReturn, Self

from palestra.core import Env
from palestra.errors import BadValue, EpisodeOver, ResetNeeded
from palestra.types import Step


class ForeignEnv(Env):
    """An environment elsewhere. What goes wrong on the way is an EnvFailed, never a reward; `reset` then begins anew.

    `max_turns` truncates an episode that the server would let go on.
    """

    reward_range = (float("-inf"), float("inf"))

    def __init__(self, *, max_turns: int | None) -> None:
        if max_turns is not None and (isinstance(max_turns, bool) or max_turns < 1):
            raise BadValue(f"max_turns is a whole number from 1 up, or None, got {max_turns!r}")
        self.max_turns = max_turns
        self._state = "reset"  # or "running", "over", "failed"
        self._turn = 0
        self._total = 0.0

    def _check_running(self, action: object) -> None:
        if self._state == "over":
            raise EpisodeOver("this episode is over; call reset() for the next one")
        if self._state != "running":
            why = "what it ran on failed" if self._state == "failed" else "none has begun"
            raise ResetNeeded(f"there is no running episode: {why}; call reset()")
        if not isinstance(action, str):
            raise BadValue(f"an action is a string, got {type(action).__name__}")

    def _begun(self) -> None:
        self._state = "running"
        self._turn = 0
        self._total = 0.0

    def _stepped(self, text: Any, reward: float, done: bool, info: dict[str, Any], *, cut: bool = False) -> Step:
        """`cut`: the server says that it was cut short."""
        self._turn += 1
        self._total += reward
        horizon = not done and self.max_turns is not None and self._turn >= self.max_turns
        info = {"turn": self._turn, **info}
        if done or horizon:
            self._state = "over"
            solved = done and not cut and self._total >= 1 - 1e-9
            info.setdefault("success", solved)
            info.setdefault("ending", "horizon" if horizon or cut else "solved" if info["success"] else "lost")
        return Step(text, reward, done and not cut, horizon or (done and cut), info)

    def __repr__(self) -> str:
        args, kwargs = self._call
        shown = [repr(arg) for arg in args] + [f"{name}={value!r}" for name, value in kwargs.items() if name != "token"]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _no_copies(self) -> NoReturn:
        raise BadValue(f"an episode on another project's server cannot be copied; {type(self).__name__} has no fork")

    def fork(self) -> Self:
        self._no_copies()

    def _copy(self, memo: dict[int, Any]) -> Self:  # noqa: ARG002
        self._no_copies()

    def snapshot(self) -> bytes:
        self._no_copies()
