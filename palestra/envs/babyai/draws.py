"""A seed -> the numbers numpy would draw from it, as plain ints and floats, at a tenth of numpy's price for one."""

from __future__ import annotations

from typing import Any

from palestra.optional import require

_BATCH = 128
_32 = (1 << 32) - 1


class Draws:
    """What `numpy.random.default_rng(seed)` draws, number for number."""

    def __init__(self, seed: int) -> None:
        self._bits: Any = require("numpy.random", extra="babyai").PCG64(seed)
        self._halves: list[int] = []  # of 64 bits numpy uses both halves, the lower one first; the next one is last

    def _refill(self) -> None:
        self._halves.extend(self._bits.random_raw(_BATCH).astype("<u8").view("<u4")[::-1].tolist())

    def integers(self, low: int, high: int) -> int:
        """From `low` up to `high`, which is left out: Lemire's multiplication with rejection, as numpy does it."""
        span = high - low
        if span <= 1:
            return low
        halves = self._halves
        while True:
            if not halves:
                self._refill()
            product = halves.pop() * span
            rest = product & _32
            if rest >= span or rest >= (1 << 32) % span:
                return low + (product >> 32)

    def several(self, *spans: int) -> list[int]:
        """`integers(0, span)` for one after the other."""
        halves = self._halves
        drawn = []
        for span in spans:
            if span <= 1:
                drawn.append(0)
                continue
            while True:
                if not halves:
                    self._refill()
                product = halves.pop() * span
                rest = product & _32
                if rest >= span or rest >= (1 << 32) % span:
                    drawn.append(product >> 32)
                    break
        return drawn

    def uniform(self, low: float, high: float) -> float:
        halves = self._halves
        kept = halves.pop() if len(halves) % 2 else None  # a float takes 64 fresh bits, and leaves a half for later
        if not halves:
            self._refill()
        raw = halves.pop() | halves.pop() << 32
        if kept is not None:
            halves.append(kept)
        return low + (high - low) * ((raw >> 11) * 2.0**-53)
