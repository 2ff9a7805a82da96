"""One random generator per environment, cheap to begin, and child seeds that do not collide."""

from __future__ import annotations

import os
from random import Random
from typing import Any

from palestra.errors import BadValue

__all__ = ["Random", "Rng", "check_seed", "child_seed", "copy_rng", "fresh_seed", "nth_seed"]

_64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # what SplitMix64 adds at every draw
_EARLY = 12  # draws that are cheaper one by one than seeding the twister for them


def check_seed(seed: object) -> int:
    """`seed` as a plain int, or BadValue."""
    if not isinstance(seed, bool) and hasattr(seed, "__index__"):
        number = seed.__index__()  # numpy integers too
        if number >= 0:
            return int(number)
    raise BadValue(f"a seed is a whole number from 0 up, got {seed!r}")


def fresh_seed() -> int:
    """A seed nobody chose, from the operating system."""
    return int.from_bytes(os.urandom(6), "big")


def child_seed(seed: int, *path: int | str) -> int:
    """A 48-bit seed for the thing that `path` names below `seed`; the same in every process."""
    from hashlib import blake2b

    key = "/".join(map(repr, (seed, *path))).encode()
    return int.from_bytes(blake2b(key, digest_size=6).digest(), "big")


def nth_seed(seed: int, number: int) -> int:
    """A 48-bit seed for the episode `number` of a line of episodes that begins with `seed`; quick."""
    if seed > _64:
        return child_seed(seed, number)
    z = seed + (number + 1) * _GOLDEN & _64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _64  # _mixed, without the call
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _64
    return (z ^ z >> 31) >> 16


class Rng(Random):
    """Python's generator, begun in a tenth of the time: most episodes draw a few numbers, and the Mersenne Twister has
    to fill 624 words before its first.

    The first draws come from SplitMix64; the next one seeds the twister and turns this object into a plain Random.
    """

    gauss_next: float | None = None  # Random sets it where it seeds

    def __init__(self, seed: int) -> None:  # leaves out Random's, which seeds
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """As a new one of that seed."""
        self._at = seed if seed <= _64 else child_seed(seed)
        self._left = _EARLY
        if self.gauss_next is not None:
            self.gauss_next = None

    def getrandbits(self, k: int, /) -> int:
        left = self._left
        if left == 0 or not 0 <= k <= 64:
            return _plain(self).getrandbits(k)
        self._left = left - 1
        self._at = at = self._at + _GOLDEN & _64
        return _mixed(at) >> 64 - k

    def random(self) -> float:
        left = self._left
        if left == 0:
            return _plain(self).random()
        self._left = left - 1
        self._at = at = self._at + _GOLDEN & _64
        return (_mixed(at) >> 11) * 2.0**-53

    def randint(self, a: int, b: int) -> int:
        width = b - a + 1
        left = self._left
        if left and type(width) is int and 0 < width <= _64:
            shift = 64 - width.bit_length()
            while left:
                left -= 1
                self._at = z = self._at + _GOLDEN & _64
                z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _64  # _mixed, without the call
                z = (z ^ z >> 27) * 0x94D049BB133111EB & _64
                number = (z ^ z >> 31) >> shift
                if number < width:
                    self._left = left
                    return a + number
            self._left = 0
        return super().randint(a, b)

    def seed(self, a: Any = None, version: int = 2) -> None:
        _plain(self).seed(a, version)

    def getstate(self) -> tuple[Any, ...]:
        return "early", self._at, self._left, self.gauss_next

    def setstate(self, state: tuple[Any, ...]) -> None:
        if state[0] == "early":
            _, self._at, self._left, self.gauss_next = state
        else:
            _plain(self).setstate(state)

    def __reduce__(self) -> tuple[Any, ...]:
        return Rng, (0,), self.getstate()


def _plain(rng: Rng) -> Random:
    """The same object as the generator it turns into."""
    if type(rng) is Rng:  # else: a method of Random began before it turned, and holds on to ours
        rng.__class__ = Random  # type: ignore[assignment]
        Random.seed(rng, _mixed(rng._at))
    return rng


def _mixed(z: int) -> int:
    """SplitMix64's output for a state: every bit of the 64 depends on every bit."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _64
    return z ^ z >> 31


def copy_rng(rng: Random) -> Random:
    """A generator that will draw what `rng` will draw."""
    twin: Random
    if type(rng) is Rng:
        twin = Rng.__new__(Rng)
        twin.__dict__.update(rng.__dict__)
        return twin
    twin = Random.__new__(Random)
    twin.setstate(rng.getstate())
    return twin
