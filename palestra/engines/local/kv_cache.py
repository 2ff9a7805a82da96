"""Storage for the keys and values of all conversations: one pair of tensors per layer."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from palestra.engines.local.block_allocator import MIN_BLOCK, BlockAllocator, block_size_for

INITIAL_TOKENS = 4096  # capacity after the first allocation
MAX_COPY_TOKENS = 1 << 18  # maximum per batched copy; its temporary buffer holds one layer of these tokens


class KVCache:
    """Keys and values for a range of token addresses, in which each conversation owns one block.

    `keys[layer]` and `values[layer]` have shape (token, head, head_dim). They grow on demand up to `max_tokens`. Each
    tensor has one extra token at the end, the scratch address: padding is written there and never read. Memory is
    zeroed before use, because attention returns NaN if a masked value is NaN.
    """

    def __init__(self, *, max_tokens: int) -> None:
        self.set_capacity(max_tokens)
        self.allocator = BlockAllocator()
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self._drop_copies()

    def set_capacity(self, max_tokens: int) -> None:
        """Limit growth to `max_tokens`, rounded down to whole blocks."""
        self.max_tokens = max_tokens - max_tokens % MIN_BLOCK

    @property
    def largest_block(self) -> int:
        """Maximum number of tokens in a single block."""
        return block_size_for(self.max_tokens + 1) // 2

    @property
    def scratch(self) -> int:
        """Address of the extra token that is written to but never read."""
        return self.allocator.length

    @property
    def bytes_per_token(self) -> int:
        return sum(t[0].numel() * t.element_size() for t in (*self.keys, *self.values))

    def layer(self, index: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Return a layer's tensors. The first call creates them to match `key` and `value` (..., head, dim)."""
        while len(self.keys) <= index:
            length = self.allocator.length + 1
            self.keys.append(key.new_zeros((length, *key.shape[-2:])))
            self.values.append(value.new_zeros((length, *value.shape[-2:])))
        return self.keys[index], self.values[index]

    def allocate(self, size: int) -> int | None:
        """Return the start of a new block, growing the tensors if needed; None if no block of `size` fits."""
        start = self.allocator.allocate(size)
        while start is None and self.allocator.length < self.max_tokens:
            try:
                self._grow(min(max(2 * self.allocator.length, INITIAL_TOKENS), self.max_tokens))
            except RuntimeError:  # out of memory, because other processes on the device use more than estimated
                if self.allocator.length == 0:
                    raise
                self.set_capacity(self.allocator.length)
            start = self.allocator.allocate(size)
        return start

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Schedule a copy of a block's first `tokens` tokens to another block in every layer, for `flush_copies`.

        All scheduled copies are read before any is written, so the source block may be freed and become the target of a
        later copy. If it already is a target, the data is read from the source of that copy.
        """
        cells = range(target // MIN_BLOCK, (target + tokens - 1) // MIN_BLOCK + 1)
        pending = self._copies.get(source)
        if not self._written.isdisjoint(cells) or (pending is not None and pending[1] < tokens):
            self.flush_copies()
            pending = None
        if tokens:
            self._copies[target] = (source if pending is None else pending[0], tokens)
            self._written.update(cells)
            self._pending_tokens += tokens
            if self._pending_tokens >= MAX_COPY_TOKENS:
                self.flush_copies()

    def flush_copies(self) -> None:
        """Perform all scheduled copies, with one operation per tensor."""
        copies = [(source, target, tokens) for target, (source, tokens) in self._copies.items()]
        self._drop_copies()
        if not copies or not self.keys:
            return
        if len(copies) == 1:
            source, target, tokens = copies[0]
            for tensor in (*self.keys, *self.values):
                tensor[target : target + tokens] = tensor[source : source + tokens]
            return
        sources, targets, counts = np.array(copies, np.int64).T
        within = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts)
        addresses = np.stack((np.repeat(sources, counts), np.repeat(targets, counts))) + within
        device_addresses = torch.from_numpy(addresses).to(self.keys[0].device)
        for tensor in (*self.keys, *self.values):
            read, written = device_addresses.to(tensor.device)
            tensor.index_copy_(0, written, tensor.index_select(0, read))

    def zero_block(self, start: int, size: int) -> None:
        """Zero a block after the model produced non-finite values, because a mask does not hide a NaN."""
        for tensor in (*self.keys, *self.values):
            tensor[start : start + size] = 0
            tensor[self.scratch] = 0

    def reset(self) -> None:
        """Free all blocks and zero the memory."""
        length = self.allocator.length
        self._drop_copies()
        self.allocator = BlockAllocator()
        self.allocator.extend(length)
        for tensor in (*self.keys, *self.values):
            tensor.zero_()

    def release(self) -> None:
        """Free all blocks and their memory."""
        self._drop_copies()
        self.allocator = BlockAllocator()
        self.keys.clear()
        self.values.clear()

    def release_memory(self) -> None:
        """Free all blocks and their memory, but keep the shape of the tensors, which grow again on demand."""
        self._drop_copies()
        self.allocator = BlockAllocator()
        for tensors in (self.keys, self.values):
            tensors[:] = [tensor.new_zeros((1, *tensor.shape[1:])) for tensor in tensors]

    def _drop_copies(self) -> None:
        self._copies: dict[int, tuple[int, int]] = {}  # target -> (source, tokens)
        self._written: set[int] = set()  # target addresses, in units of MIN_BLOCK
        self._pending_tokens = 0

    def _grow(self, length: int) -> None:
        old_length = self.allocator.length
        for tensors in (self.keys, self.values):
            for index, old in enumerate(tensors):  # one at a time, so that at most one old tensor is alive
                new = old.new_zeros((length + 1, *old.shape[1:]))
                new[:old_length] = old[:old_length]
                tensors[index] = new
        self.allocator.extend(length)
