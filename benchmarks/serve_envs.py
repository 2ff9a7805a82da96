"""Environment of serve_soak.py: it counts its steps, so that a missing or repeated step is visible."""

from __future__ import annotations

import os
from typing import Any

from palestra import registry
from palestra.core import Env, Reset
from palestra.types import Step


class Counter(Env):
    """Observe the number of steps taken. The action `crash` ends the process, `raise` raises."""

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
