"""Environments whose episodes fail."""

from __future__ import annotations

from palestra.types import Step
from tests.frameworks.letters import Letters


class FailsOnce(Letters):
    """Fails in the second turn of the first episode."""

    failures = 0
    limit = 1

    def step(self, action: str) -> Step:
        if self.turn == 1 and type(self).failures < self.limit:
            type(self).failures += 1
            raise RuntimeError("the environment is broken")
        return super().step(action)


class AlwaysFails(FailsOnce):
    """Fails in the second turn of every episode."""

    failures = 0
    limit = 1000
