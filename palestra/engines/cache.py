"""The keys and values of every conversation, in one pair of tensors a layer."""

from __future__ import annotations

from torch import Tensor

from palestra.engines.regions import SMALLEST, Regions, block_for

FIRST = 4096  # tokens the line has room for at first


class Arena:
    """A line of tokens, each with its key and value in every layer; conversations hold blocks of it.

    `keys[layer]` and `values[layer]` are shaped (token, head, width). The line grows on demand up to `most` tokens. Its
    tensors have one token more, the last: what is written there is never read. All of it is finite from the start: a
    value that attention gives no weight must not be NaN.
    """

    def __init__(self, *, most: int) -> None:
        self.limit(most)
        self.regions = Regions()
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def limit(self, most: int) -> None:
        """Let the line grow to so many tokens, rounded down to whole blocks."""
        self.most = most - most % SMALLEST

    @property
    def largest(self) -> int:
        """The most tokens a single block can have."""
        return block_for(self.most + 1) // 2

    @property
    def nowhere(self) -> int:
        """An address for what nobody will read."""
        return self.regions.length

    @property
    def bytes_per_token(self) -> int:
        return sum(t[0].numel() * t.element_size() for t in (*self.keys, *self.values))

    def layer(self, index: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """One layer's tensors, made at the first call to hold what is shaped (..., head, width) like these two."""
        while len(self.keys) <= index:
            length = self.regions.length + 1
            self.keys.append(key.new_zeros((length, *key.shape[-2:])))
            self.values.append(value.new_zeros((length, *value.shape[-2:])))
        return self.keys[index], self.values[index]

    def take(self, size: int) -> int | None:
        """Where a block begins; None: there is no room for one of that size."""
        start = self.regions.take(size)
        while start is None and self.regions.length < self.most:
            try:
                self._grow(min(max(2 * self.regions.length, FIRST), self.most))
            except RuntimeError:  # out of memory: others hold more of it than was thought
                if self.regions.length == 0:
                    raise
                self.limit(self.regions.length)
            start = self.regions.take(size)
        return start

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copy what the first so many tokens of one block have in every layer to another block."""
        if tokens:
            for tensor in (*self.keys, *self.values):
                tensor[target : target + tokens] = tensor[source : source + tokens]

    def wipe(self, start: int, size: int) -> None:
        """Make a block finite again, after the model computed something that was not: no mask hides a NaN."""
        for tensor in (*self.keys, *self.values):
            tensor[start : start + size] = 0
            tensor[self.nowhere] = 0

    def reset(self) -> None:
        """Take all blocks back, and make everything finite again."""
        length = self.regions.length
        self.regions = Regions()
        self.regions.extend(length)
        for tensor in (*self.keys, *self.values):
            tensor.zero_()

    def clear(self) -> None:
        """Take all blocks back and give the memory back."""
        self.regions = Regions()
        self.keys.clear()
        self.values.clear()

    def _grow(self, length: int) -> None:
        known = self.regions.length
        for tensors in (self.keys, self.values):
            for index, old in enumerate(tensors):  # one at a time, so that little more than the new size is ever held
                new = old.new_zeros((length + 1, *old.shape[1:]))
                new[:known] = old[:known]
                tensors[index] = new
        self.regions.extend(length)
