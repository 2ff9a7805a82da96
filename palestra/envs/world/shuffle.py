"""Invertible pseudo-random functions on integers, used to generate a page without generating any other page.

`Permutation` reorders a range, and `Split` distributes children among parents. Both can be evaluated in both directions
and store no tables, so a world of a million pages takes no more memory than a world of a hundred pages.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from hashlib import blake2b


class Permutation:
    """A pseudo-random permutation of `range(size)`."""

    __slots__ = ("_keys", "_mask", "_shift", "size")

    def __init__(self, size: int, key: bytes) -> None:
        self.size = size
        bits = max(2, (size - 1).bit_length())
        self._mask = (1 << bits) - 1
        self._shift = (bits + 1) // 2  # at least half the bits, so that the shifted xor is its own inverse
        drawn = blake2b(b"permutation", key=key, digest_size=48).digest()
        numbers = [int.from_bytes(drawn[at : at + 8], "big") for at in range(0, 48, 8)]
        # Each of the three rounds has an odd factor, a constant to add, and the inverse of the factor.
        self._keys = [
            ((factor | 1) & self._mask, add & self._mask, pow(factor | 1, -1, self._mask + 1))
            for factor, add in zip(numbers[:3], numbers[3:], strict=True)
        ]

    def __call__(self, number: int) -> int:
        mask, shift = self._mask, self._shift
        while True:
            for factor, add, _ in self._keys:
                number = (number * factor + add) & mask
                number ^= number >> shift
            if number < self.size:  # otherwise repeat until the result is within the range
                return number

    def inverse(self, number: int) -> int:
        mask, shift = self._mask, self._shift
        while True:
            for _, add, inverse_factor in reversed(self._keys):
                number ^= number >> shift
                number = (number - add) * inverse_factor & mask
            if number < self.size:
                return number


class Split:
    """Uneven distribution of `children` among `parents`. If possible, each parent gets at least `least` children.

    The parents are divided into groups with nearly equal numbers of children. Within a group, random weights determine
    each parent's number of children.
    """

    def __init__(self, children: int, parents: int, key: bytes, *, least: int = 0, group: int = 8) -> None:
        self.children, self.parents, self.least = children, parents, least
        self._key = key
        self._groups = max(1, parents // group)
        self._bounds = lru_cache(maxsize=4096)(self._group_bounds)

    def of(self, parent: int) -> range:
        """Return the children of a parent."""
        group = ((parent + 1) * self._groups - 1) // self.parents
        first = group * self.parents // self._groups
        bounds = self._bounds(group)
        return range(bounds[parent - first], bounds[parent - first + 1])

    def parent(self, child: int) -> int:
        group = ((child + 1) * self._groups - 1) // self.children
        bounds = self._bounds(group)
        return group * self.parents // self._groups + bisect_right(bounds, child) - 1

    def _group_bounds(self, group: int) -> tuple[int, ...]:
        """Return the first child of each parent in a group, followed by the end of the last parent's children."""
        count = (group + 1) * self.parents // self._groups - group * self.parents // self._groups
        low, high = group * self.children // self._groups, (group + 1) * self.children // self._groups
        least = min(self.least, (high - low) // count)
        spare = high - low - least * count
        drawn = blake2b(b"split %d" % group, key=self._key, digest_size=64).digest()
        weights = [1 + drawn[index % 64] % 24 for index in range(count)]
        total, so_far, bounds = sum(weights), 0, [low]
        for number, weight in enumerate(weights, 1):
            so_far += weight
            bounds.append(low + least * number + spare * so_far // total)
        return tuple(bounds)
