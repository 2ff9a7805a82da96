"""A line of tokens handed out in blocks whose sizes are powers of two, so that neighbours merge when given back."""

from __future__ import annotations

from bisect import bisect_left, insort

SMALLEST = 64  # tokens; smaller blocks would split the attention over too many calls


def block_for(tokens: int) -> int:
    """The size of the smallest block that holds so many tokens."""
    return max(SMALLEST, 1 << (tokens - 1).bit_length())


class Regions:
    """Which parts of the line are free (a buddy allocator).

    A block of size s starts at a multiple of s. So all blocks of one size lie on one grid, and a stretch of the line is
    a table with a block a row, which is what lets one call attend over many of them.
    """

    def __init__(self) -> None:
        self.length = 0
        self._free: dict[int, list[int]] = {}  # size -> starts, in order

    def extend(self, length: int) -> None:
        """Make the line longer; `length` is a multiple of the smallest block."""
        start, self.length = self.length, length
        while start < length:
            size = SMALLEST
            while start % (2 * size) == 0 and start + 2 * size <= length:
                size *= 2
            self.give(start, size)
            start += size

    def take(self, size: int) -> int | None:
        """Where a free block of that size starts, the first one there is; None: there is none."""
        found = size
        while not self._free.get(found):
            found *= 2
            if found > self.length:
                return None
        start = self._free[found].pop(0)
        while found > size:
            found //= 2
            insort(self._free.setdefault(found, []), start + found)
        return start

    def give(self, start: int, size: int) -> None:
        """Take a block back."""
        while self._remove(start ^ size, size):
            start = min(start, start ^ size)
            size *= 2
        insort(self._free.setdefault(size, []), start)

    def widen(self, start: int, size: int) -> bool:
        """Double a block where it lies, if the other half of the double is free."""
        return start % (2 * size) == 0 and self._remove(start + size, size)

    @property
    def free(self) -> int:
        return sum(size * len(starts) for size, starts in self._free.items())

    def _remove(self, start: int, size: int) -> bool:
        starts = self._free.get(size, [])
        at = bisect_left(starts, start)
        if at == len(starts) or starts[at] != start:
            return False
        del starts[at]
        return True
