"""Wrapper for benchmarks with untrained models, in a separate module so that worker processes can import it."""

from __future__ import annotations

from palestra.core import Wrapper


class RandomActions(Wrapper):
    """Replace the replies of an untrained model with random actions."""

    def before_step(self, action: str) -> str:
        del action
        return self.env.sample_random_action()
