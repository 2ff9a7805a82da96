"""Buddy allocator for the KV cache: block sizes are powers of two, so adjacent blocks merge when freed."""

from __future__ import annotations

from bisect import bisect_left, insort

MIN_BLOCK = 64  # tokens; smaller blocks would require too many attention calls


def block_size_for(tokens: int) -> int:
    """Return the size of the smallest block that holds `tokens`."""
    return max(MIN_BLOCK, 1 << (tokens - 1).bit_length())


class BlockAllocator:
    """Tracks the free blocks in a range of token addresses.

    A block of size s starts at a multiple of s. Adjacent blocks of the same size therefore form a table with one block
    per row, so that one attention call can cover many of them.
    """

    def __init__(self) -> None:
        self.length = 0
        self._free: dict[int, list[int]] = {}  # size -> sorted start addresses

    def extend(self, length: int) -> None:
        """Enlarge the address range to `length`, a multiple of MIN_BLOCK."""
        start, self.length = self.length, length
        while start < length:
            size = MIN_BLOCK
            while start % (2 * size) == 0 and start + 2 * size <= length:
                size *= 2
            self.free(start, size)
            start += size

    def allocate(self, size: int) -> int | None:
        """Return the start of the first free block of `size`, or None if there is none."""
        available = size
        while not self._free.get(available):
            available *= 2
            if available > self.length:
                return None
        start = self._free[available].pop(0)
        while available > size:
            available //= 2
            insort(self._free.setdefault(available, []), start + available)
        return start

    def free(self, start: int, size: int) -> None:
        """Free a block and merge it with free adjacent blocks."""
        while self._remove(start ^ size, size):
            start = min(start, start ^ size)
            size *= 2
        insort(self._free.setdefault(size, []), start)

    def grow_in_place(self, start: int, size: int) -> bool:
        """Double the size of a block without moving it; return False if the block to its right is not free."""
        return start % (2 * size) == 0 and self._remove(start + size, size)

    @property
    def free_tokens(self) -> int:
        return sum(size * len(starts) for size, starts in self._free.items())

    def _remove(self, start: int, size: int) -> bool:
        starts = self._free.get(size, [])
        at = bisect_left(starts, start)
        if at == len(starts) or starts[at] != start:
            return False
        del starts[at]
        return True
