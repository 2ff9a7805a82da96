"""Wrapper that adds latency to an environment, for `gem.py async`: `--wrappers slow:Slow`."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from palestra.core import Env, Reset, Wrapper
from palestra.seeding import child_seed
from palestra.types import Step


class Slow(Wrapper):
    """Wait `median` seconds in most steps and `tail` times as long in one step out of twenty.

    The latency depends only on the seed and the turn, so that it is the same for all variants.
    """

    def __init__(self, env: Env, *, median: float = 0.1, tail: float = 20.0) -> None:
        super().__init__(env)
        self._median = median
        self._tail = tail
        self._latency = Random(0)

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self._latency = Random(child_seed(seed or 0, "latency"))
        return await self.env.areset(seed=seed, options=options)

    async def astep(self, action: str) -> Step:
        factor = self._tail if self._latency.random() < 0.05 else 1.0
        await asyncio.sleep(factor * self._median * self._latency.lognormvariate(0.0, 0.5))
        return await self.env.astep(action)
