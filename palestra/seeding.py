"""Random generator that is fast to seed, and functions that derive seeds from other seeds."""

from __future__ import annotations

import os
from functools import cache
from random import Random
from typing import Any

from palestra.errors import BadValue

__all__ = ["Random", "Rng", "check_seed", "child_seed", "copy_rng", "fresh_seed", "hash_seed", "nth_seed"]

_64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # amount by which SplitMix64's state increases per random number
_EARLY = 12  # number of random numbers to generate with SplitMix64 before seeding a Mersenne Twister


def check_seed(seed: object) -> int:
    """Return `seed` as a plain int. Raise BadValue if it is not a non-negative integer."""
    if not isinstance(seed, bool) and hasattr(seed, "__index__"):
        number = seed.__index__()  # also accepts NumPy integers
        if number >= 0:
            return int(number)
    raise BadValue(f"a seed must be an integer of at least 0, got {seed!r}")


def fresh_seed() -> int:
    """Return a random seed from the operating system."""
    return int.from_bytes(os.urandom(6), "big")


def child_seed(seed: int, *path: int | str) -> int:
    """Return a 48-bit seed derived from `seed` and `path`. The result is the same in every process."""
    key = "/".join([repr(seed), *map(repr, path)]).encode()
    return int.from_bytes(_blake2b()(key, digest_size=6).digest(), "big")


def hash_seed(seed: int) -> int:
    """Hash a seed of any size to a signed 64-bit integer."""
    return int.from_bytes(_blake2b()(str(seed).encode(), digest_size=8).digest(), "big", signed=True)


@cache
def _blake2b() -> Any:
    from hashlib import blake2b  # imported late, so that `import palestra` stays fast

    return blake2b


def nth_seed(seed: int, number: int) -> int:
    """Return the 48-bit seed of episode `number`, derived from the root seed `seed`. Faster than `child_seed`."""
    if seed > _64:
        return child_seed(seed, number)
    z = seed + (number + 1) * _GOLDEN & _64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _64  # _mix, inlined for speed
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _64
    return (z ^ z >> 31) >> 16


class Rng(Random):
    """A `random.Random` that can be seeded in a tenth of the time.

    Most episodes need only a few random numbers, but seeding a Mersenne Twister initializes 624 words. This class
    generates the first numbers with SplitMix64. If more numbers are needed, it seeds the Mersenne Twister and turns
    into a plain `Random`.
    """

    gauss_next: float | None = None  # normally set by Random.seed, which this class does not call

    def __init__(self, seed: int) -> None:  # Random.__init__ would seed the Mersenne Twister
        self.restart(seed)

    def restart(self, seed: int) -> None:
        """Seed the generator again, as if it had been created with this seed."""
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
        return _mix(at) >> 64 - k

    def random(self) -> float:
        left = self._left
        if left == 0:
            return _plain(self).random()
        self._left = left - 1
        self._at = at = self._at + _GOLDEN & _64
        return (_mix(at) >> 11) * 2.0**-53

    def randint(self, a: int, b: int) -> int:
        width = b - a + 1
        left = self._left
        if left and type(width) is int and 0 < width <= _64:
            shift = 64 - width.bit_length()
            while left:
                left -= 1
                self._at = z = self._at + _GOLDEN & _64
                z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _64  # _mix, inlined for speed
                z = (z ^ z >> 27) * 0x94D049BB133111EB & _64
                number = (z ^ z >> 31) >> shift
                if number < width:
                    self._left = left
                    return a + number
            self._left = 0
        return Random.randint(self, a, b)  # super() fails if evaluating an argument of this call converted `self`

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
    """Convert `rng` to a plain Random in place, and return it."""
    if type(rng) is Rng:  # otherwise another method has already converted it
        rng.__class__ = Random  # type: ignore[assignment]
        Random.seed(rng, _mix(rng._at))
    return rng


def _mix(z: int) -> int:
    """Return the random number that SplitMix64 generates from the state `z`."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _64
    return z ^ z >> 31


def copy_rng(rng: Random) -> Random:
    """Return an independent copy of `rng`, which will generate the same numbers."""
    copy: Random
    if type(rng) is Rng:
        copy = Rng.__new__(Rng)
        copy.__dict__.update(rng.__dict__)
        return copy
    copy = Random.__new__(Random)
    copy.setstate(rng.getstate())
    return copy
