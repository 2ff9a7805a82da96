"""A position in an epoch -> a row: a keyed permutation of any size, in constant time and memory, and its inverse.

A Feistel network permutes the smallest square power of two that holds all rows; a value that falls outside of them is
sent through again until it lies inside (cycle walking), which takes fewer than four rounds on average.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

_ROUNDS = 6  # four make a good permutation of many rows; few rows need more


@lru_cache(maxsize=64)
def _keys(seed: int, epoch: int) -> tuple[bytes, ...]:
    """A key for every round of this epoch's network."""
    return tuple(
        blake2b(f"{seed}/{epoch}/{turn}".encode(), digest_size=32, person=b"palestra rows").digest()
        for turn in range(_ROUNDS)
    )


def _mixed(key: bytes, half: int, mask: int) -> int:
    return int.from_bytes(blake2b(half.to_bytes(8, "big"), key=key, digest_size=8).digest(), "big") & mask


def row_at(position: int, rows: int, *, seed: int, epoch: int) -> int:
    """The row at `position` of an epoch over `rows` rows."""
    bits = _half_bits(rows)
    mask = (1 << bits) - 1
    value = position
    while True:
        left, right = value >> bits, value & mask
        for key in _keys(seed, epoch):
            left, right = right, left ^ _mixed(key, right, mask)
        value = left << bits | right
        if value < rows:
            return value


def position_of(row: int, rows: int, *, seed: int, epoch: int) -> int:
    """Where `row` comes in an epoch: the inverse of `row_at`."""
    bits = _half_bits(rows)
    mask = (1 << bits) - 1
    value = row
    while True:
        left, right = value >> bits, value & mask
        for key in reversed(_keys(seed, epoch)):
            left, right = right ^ _mixed(key, left, mask), left
        value = left << bits | right
        if value < rows:
            return value


def _half_bits(rows: int) -> int:
    return max(1, (max(rows - 1, 1).bit_length() + 1) // 2)
