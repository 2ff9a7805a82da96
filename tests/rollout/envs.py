"""Environment with faults for the tests of rollouts. Worker processes import it, so it imports no test library."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Any

from palestra.core import Env


class Counter(Env):
    """Env that returns plain five-tuples and does not call super(); some seeds hang, crash or block the interpreter."""

    def __init__(
        self, *, turns: int = 4, trouble: str = "", bad_seeds: tuple[int, ...] = (), step_seconds: float = 0.0
    ) -> None:
        self.turns = turns
        self.trouble = trouble
        self.bad_seeds = bad_seeds
        self.step_seconds = step_seconds

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.number = seed or 0
        self.turn = 0
        return f"start {self.number}", {"pid": os.getpid(), "options": options}

    def step(self, action: str) -> Any:
        if self.step_seconds:
            time.sleep(self.step_seconds)
        if self.number in self.bad_seeds and self.turn == 1:
            if self.trouble == "hang":
                while True:
                    time.sleep(0.01)
            if self.trouble == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.trouble == "raise":
                raise OSError("out of order")
        if self.trouble == "gil":
            ctypes.PyDLL(None).usleep(300_000)  # holds the GIL, like a CPU-bound step
        self.turn += 1
        done = self.turn >= self.turns
        info: dict[str, Any] = {"turn": self.turn, "pid": os.getpid()}
        return f"{action} {self.turn}", float(done), done, False, info

    def sample_random_action(self) -> str:
        return f"act {self.number} {self.turn}"


class InlineCounter(Counter):
    """Env whose steps run in the event loop."""

    inline = True
