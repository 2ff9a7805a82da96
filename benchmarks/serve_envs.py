"""What serve_soak.py plays: an environment that counts, so that a step too many or too few shows in what it says."""

from __future__ import annotations

import os
from typing import Any

from palestra import registry
from palestra.core import Env, Reset
from palestra.types import Step


class Ledger(Env):
    """Says how many steps it has taken. `crash` ends its process, `raise` raises."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:  # noqa: ARG002
        self.count = 0
        return "0", {"seed": self.start_episode(seed)}

    def step(self, action: str) -> Step:
        if action == "crash":
            os._exit(70)
        if action == "raise":
            raise RuntimeError("told to")
        self.count += 1
        return Step(f"{self.count} {action}", 0.0, False, False, {})


registry.register("soak:Ledger-v0", Ledger)
