"""Numbers -> other numbers that look drawn by chance, and back: what lets a page be told without the pages before it.

`Permutation` puts a range in another order, `Split` parts children among parents; both answer in either direction and
keep nothing, so a world of a million pages costs as much memory as one of a hundred.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from hashlib import blake2b


class Permutation:
    """A one-to-one map of `range(size)` onto itself."""

    __slots__ = ("_keys", "_mask", "_shift", "size")

    def __init__(self, size: int, key: bytes) -> None:
        self.size = size
        bits = max(2, (size - 1).bit_length())
        self._mask = (1 << bits) - 1
        self._shift = (bits + 1) // 2  # at least half the bits, so that a shifted xor undoes itself
        drawn = blake2b(b"permutation", key=key, digest_size=48).digest()
        numbers = [int.from_bytes(drawn[at : at + 8], "big") for at in range(0, 48, 8)]
        # Three rounds of an odd factor and a summand, each with the factor that undoes it.
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
            if number < self.size:  # otherwise walk on: the cycle comes back into the range
                return number

    def inverse(self, number: int) -> int:
        mask, shift = self._mask, self._shift
        while True:
            for _, add, undo in reversed(self._keys):
                number ^= number >> shift
                number = (number - add) * undo & mask
            if number < self.size:
                return number


class Split:
    """`children` in a row, parted among `parents`: some get many, some few, none fewer than `least` where they suffice.

    Parents are taken in groups with an equal share, and a group parts its share by weights drawn for it.
    """

    def __init__(self, children: int, parents: int, key: bytes, *, least: int = 0, group: int = 8) -> None:
        self.children, self.parents, self.least = children, parents, least
        self._key = key
        self._groups = max(1, parents // group)
        self._bounds = lru_cache(maxsize=4096)(self._parted)

    def of(self, parent: int) -> range:
        """The children of a parent."""
        group = ((parent + 1) * self._groups - 1) // self.parents
        first = group * self.parents // self._groups
        bounds = self._bounds(group)
        return range(bounds[parent - first], bounds[parent - first + 1])

    def parent(self, child: int) -> int:
        group = ((child + 1) * self._groups - 1) // self.children
        bounds = self._bounds(group)
        return group * self.parents // self._groups + bisect_right(bounds, child) - 1

    def _parted(self, group: int) -> tuple[int, ...]:
        """Where the children of each parent of a group begin, and where the last one's end."""
        count = (group + 1) * self.parents // self._groups - group * self.parents // self._groups
        low, high = group * self.children // self._groups, (group + 1) * self.children // self._groups
        least = min(self.least, (high - low) // count)
        spare = high - low - least * count
        drawn = blake2b(b"split %d" % group, key=self._key, digest_size=64).digest()
        weights = [1 + drawn[place % 64] % 24 for place in range(count)]
        whole, so_far, bounds = sum(weights), 0, [low]
        for place, weight in enumerate(weights, 1):
            so_far += weight
            bounds.append(low + least * place + spare * so_far // whole)
        return tuple(bounds)
