"""Shuffle the rows in a dataset with a keyed permutation that takes constant time and memory per row.

A Feistel network permutes the integers below the smallest power of four that is not less than the number of rows. A
result that is not a valid row is permuted again until it is valid (cycle walking), which takes at most four passes on
average.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

_ROUNDS = 6  # four rounds would be enough for large datasets, but small datasets need more


@lru_cache(maxsize=64)
def _keys(seed: int, epoch: int) -> tuple[bytes, ...]:
    """Return the Feistel network's round keys for an epoch."""
    return tuple(
        blake2b(f"{seed}/{epoch}/{round_index}".encode(), digest_size=32, person=b"palestra rows").digest()
        for round_index in range(_ROUNDS)
    )


def _round(key: bytes, half: int, mask: int) -> int:
    return int.from_bytes(blake2b(half.to_bytes(8, "big"), key=key, digest_size=8).digest(), "big") & mask


def row_at(position: int, rows: int, *, seed: int, epoch: int) -> int:
    """Return the row at `position` in the order for an epoch with `rows` rows."""
    bits = _half_bits(rows)
    mask = (1 << bits) - 1
    value = position
    while True:
        left, right = value >> bits, value & mask
        for key in _keys(seed, epoch):
            left, right = right, left ^ _round(key, right, mask)
        value = left << bits | right
        if value < rows:
            return value


def position_of(row: int, rows: int, *, seed: int, epoch: int) -> int:
    """Return the position of `row` in the order for an epoch; this is the inverse of `row_at`."""
    bits = _half_bits(rows)
    mask = (1 << bits) - 1
    value = row
    while True:
        left, right = value >> bits, value & mask
        for key in reversed(_keys(seed, epoch)):
            left, right = right ^ _round(key, left, mask), left
        value = left << bits | right
        if value < rows:
            return value


def _half_bits(rows: int) -> int:
    return max(1, (max(rows - 1, 1).bit_length() + 1) // 2)
