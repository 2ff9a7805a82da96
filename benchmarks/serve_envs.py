"""Environment for serve_soak.py that counts its steps, so that missing or repeated steps are detected."""

from __future__ import annotations

import os
from typing import Any

from palestra import registry
from palestra.core import Env, Reset
from palestra.types import Step


class Counter(Env):
    """Return the number of steps as observation. The `crash` action exits the process; `raise` raises an exception."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:  # noqa: ARG002
        self.count = 0
        return "0", {"seed": self.start_episode(seed)}

    def step(self, action: str) -> Step:
        if action == "crash":
            os._exit(70)
        if action == "raise":
            raise RuntimeError("requested by the action")
        self.count += 1
        return Step(f"{self.count} {action}", 0.0, False, False, {})


registry.register("soak:Counter-v0", Counter)
