"""One random generator per environment, and child seeds that do not collide."""

from __future__ import annotations

import os
from random import Random

from palestra.errors import BadValue

__all__ = ["Random", "check_seed", "child_seed", "copy_rng", "fresh_seed"]


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


def copy_rng(rng: Random) -> Random:
    """A generator that will draw what `rng` will draw."""
    twin: Random = Random.__new__(Random)
    twin.setstate(rng.getstate())
    return twin
