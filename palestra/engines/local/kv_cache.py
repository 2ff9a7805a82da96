"""The keys and values of every conversation, in one pair of tensors a layer."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from palestra.engines.local.block_allocator import SMALLEST, Regions, block_for

FIRST = 4096  # tokens the line has room for at first
AT_ONCE = 1 << 18  # tokens that are copied at once, which takes as much memory again in one layer


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
        self._drop_copies()

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
        """Copy what the first so many tokens of one block have in every layer to another block, at the next `settle`.

        Until then the blocks may change hands: what is copied is what was there when the copies began to wait.
        """
        cells = range(target // SMALLEST, (target + tokens - 1) // SMALLEST + 1)
        known = self._copies.get(source)
        if not self._cells.isdisjoint(cells) or (known is not None and known[1] < tokens):
            self.settle()
            known = None
        if tokens:
            self._copies[target] = (source if known is None else known[0], tokens)
            self._cells.update(cells)
            self._waiting += tokens
            if self._waiting >= AT_ONCE:
                self.settle()

    def settle(self) -> None:
        """Make the copies that wait, all of a layer at once."""
        triples = [(source, target, tokens) for target, (source, tokens) in self._copies.items()]
        self._drop_copies()
        if not triples or not self.keys:
            return
        if len(triples) == 1:
            source, target, tokens = triples[0]
            for tensor in (*self.keys, *self.values):
                tensor[target : target + tokens] = tensor[source : source + tokens]
            return
        sources, targets, counts = np.array(triples, np.int64).T
        within = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        both = np.stack((np.repeat(sources, counts), np.repeat(targets, counts))) + within
        places = torch.from_numpy(both).to(self.keys[0].device)
        for tensor in (*self.keys, *self.values):
            read, written = places.to(tensor.device)
            tensor.index_copy_(0, written, tensor.index_select(0, read))

    def wipe(self, start: int, size: int) -> None:
        """Make a block finite again, after the model computed something that was not: no mask hides a NaN."""
        for tensor in (*self.keys, *self.values):
            tensor[start : start + size] = 0
            tensor[self.nowhere] = 0

    def reset(self) -> None:
        """Take all blocks back, and make everything finite again."""
        length = self.regions.length
        self._drop_copies()
        self.regions = Regions()
        self.regions.extend(length)
        for tensor in (*self.keys, *self.values):
            tensor.zero_()

    def clear(self) -> None:
        """Take all blocks back and give the memory back."""
        self._drop_copies()
        self.regions = Regions()
        self.keys.clear()
        self.values.clear()

    def _drop_copies(self) -> None:
        self._copies: dict[int, tuple[int, int]] = {}  # target -> source, tokens
        self._cells: set[int] = set()  # which smallest blocks are written
        self._waiting = 0  # tokens

    def _grow(self, length: int) -> None:
        known = self.regions.length
        for tensors in (self.keys, self.values):
            for index, old in enumerate(tensors):  # one at a time, so that little more than the new size is ever held
                new = old.new_zeros((length + 1, *old.shape[1:]))
                new[:known] = old[:known]
                tensors[index] = new
        self.regions.extend(length)
