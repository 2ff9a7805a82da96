"""Device side of the paged path: state of the running sequences, KV pages, and steps replayed as CUDA graphs.

A step consists of an optional prefill, then one decoding step. Both read and update the state on the device: sampled
tokens are passed to the next step without waiting for the host, which receives a copy later (`Flight`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from palestra.engines.local.paged.kv_memory import KVMemory
from palestra.engines.local.paged.layout import LAST_TOKEN, LENGTH, LOGPROB_TEMPERATURE, STATE_WIDTH
from palestra.engines.local.paged.model import Layer, PagedModel
from palestra.engines.local.paged.transfers import RING, DeviceInput, HostRing

Ints = NDArray[np.int32]

DECODE_BUCKETS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512)  # then multiples of 128
PREFILL_BUCKETS = [64, 128, 256, 512, 1024, 2048, 4096]  # tokens; larger prefills keep the GPU busy without a graph
SMALL_PREFILL_BUCKETS = [*PREFILL_BUCKETS, 8192, 16_384, 32_768, 65_536]  # for small models
SMALL_MODEL = 100_000_000  # parameters


class Chunks(NamedTuple):
    """Tokens to prefill: consecutive tokens of several sequences, with one element per sequence."""

    slots: Ints
    starts: Ints  # position of the first token
    counts: Ints  # number of tokens
    samples: NDArray[np.bool_]  # whether the next token is sampled after the chunk
    ids: Ints  # tokens of all chunks


NO_INTS = np.zeros(0, np.int32)
NO_CHUNKS = Chunks(NO_INTS, NO_INTS, NO_INTS, np.zeros(0, np.bool_), NO_INTS)


class StepInput(NamedTuple):
    """Everything that the device needs for one step."""

    table_indices: Ints  # changed elements of the block tables, as slot * max_pages + index
    table_pages: Ints
    state_rows: Ints  # one row per changed slot: the slot, then its new state
    chunks: Chunks
    decode_slots: NDArray[np.int64]
    decode_pages: NDArray[np.int64]  # page for the next token of each decoding slot; 0 if the page is not new


class Flight:
    """A step that has been launched. `wait` returns (tokens, log-probabilities): sampling chunks first, then slots."""

    def __init__(self, results: Sequence[Ints], event: Any) -> None:
        self._results = results  # tokens, and log-probabilities as bits
        self._event = event

    @property
    def done(self) -> bool:
        return self._event is None or self._event.query()

    def wait(self) -> tuple[Ints, NDArray[np.float32]]:
        if self._event is not None:
            self._event.synchronize()
        both = np.concatenate(self._results, 1)
        return both[0], both[1].view(np.float32)


class PagedRunner:
    """Runs a `PagedModel` for up to `slots` sequences of up to `max_pages` pages."""

    name = "paged"

    def __init__(self, model: PagedModel, ops: Any, memory: KVMemory, *, slots: int, max_pages: int) -> None:
        device = memory.device
        self.model = model
        self.memory = memory
        self.max_pages = max_pages  # per sequence
        self._ops = ops
        self._device = device
        self._padding = slots
        self._graphed = device.type == "cuda"
        self._graphs: dict[tuple[str, int], Any] = {}
        self._pool: Any = None
        cuda: Any = torch.cuda  # untyped
        self._stream: Any = cuda.Stream(device) if self._graphed else None
        step = 128
        self._decode_buckets = [size for size in DECODE_BUCKETS if size < slots]
        self._decode_buckets += list(range(512 + step, slots + step, step)) if slots > 512 else []
        self._decode_buckets += [] if self._decode_buckets and self._decode_buckets[-1] >= slots else [slots]
        self._tile_tokens: int = ops.prefill_tile_tokens(model.heads, model.dtype.itemsize)
        self.small = model.size < SMALL_MODEL
        self._prefill_buckets = SMALL_PREFILL_BUCKETS if self.small else PREFILL_BUCKETS
        self._events = cycle([cuda.Event() for _ in range(RING)] if self._graphed else [None])
        if self._stream is not None:
            self._stream.wait_stream(cuda.current_stream(device))  # the model's weights may still be copied there
        with self._in_stream():
            self._allocate(slots)

    def _allocate(self, slots: int) -> None:
        """Create the state, in the stream that updates it: another stream might fill it with zeros after an update."""
        device = self._device
        self._tables = torch.zeros((slots + 1, self.max_pages), dtype=torch.int32, device=device)
        self._state = torch.zeros((slots + 1, STATE_WIDTH), dtype=torch.int32, device=device)
        self._state[-1, LOGPROB_TEMPERATURE] = 0x3F800000  # 1.0
        self._updates = DeviceInput(device, 1024)
        self._large_prefill = DeviceInput(device, 1024)
        self._decode_inputs = DeviceInput(device, 2 * self._decode_buckets[-1])
        self._prefill_inputs = DeviceInput(device, sum(self._prefill_sizes(self._prefill_buckets[-1])))
        self._decode_out = torch.zeros(2 * self._decode_buckets[-1], dtype=torch.int32, device=device)
        self._prefill_out = torch.zeros(
            2 * max(slots, _chunks_in(self._prefill_buckets[-1])), dtype=torch.int32, device=device
        )
        self._decode_results, self._prefill_results = HostRing(pinned=self._graphed), HostRing(pinned=self._graphed)

    def reload_weights(self) -> bool:
        """Use the model's current weights. Return False if the model's structure is no longer supported."""
        if self._graphed:
            torch.cuda.synchronize(self._device)  # the weights may have been written in another stream
        if PagedModel.unsupported_reason(self.model._model) is not None:
            return False
        with self._in_stream():  # so that the next step waits for the copies
            moved = self.model.reload()
        if moved:
            self._graphs.clear()
        return True

    def _in_stream(self) -> AbstractContextManager[Any]:
        """Return a context manager that runs device code in the stream of the steps."""
        cuda: Any = torch.cuda  # untyped
        context: AbstractContextManager[Any] = cuda.stream(self._stream) if self._graphed else nullcontext()
        return context

    @torch.no_grad()
    def launch(self, step: StepInput) -> Flight:
        """Start a step and return without waiting for it."""
        if self._graphed:
            with torch.cuda.device(self._device), self._in_stream():
                return self._launch(step)
        return self._launch(step)

    def _launch(self, step: StepInput) -> Flight:
        if len(step.table_indices) or len(step.state_rows):
            self._update(step)
        results = [np.zeros((2, 0), np.int32)]
        if len(step.chunks.slots):
            results.append(self._prefill(step.chunks))
        if len(step.decode_slots):
            results.append(self._decode(step.decode_slots, step.decode_pages))
        event = next(self._events)
        if event is not None:
            event.record()
        return Flight(results, event)

    def _update(self, step: StepInput) -> None:
        pages, rows = len(step.table_indices), len(step.state_rows)
        staged = self._updates.stage(2 * pages + rows * (1 + STATE_WIDTH))
        staged[:pages] = step.table_indices
        staged[pages : 2 * pages] = step.table_pages
        staged[2 * pages :] = step.state_rows.ravel()
        self._ops.apply_updates(self._updates.send(), pages, self._tables, self._state)

    def _to_host(self, ring: HostRing, out: Tensor, size: int, count: int) -> Ints:
        """Start copying `size` tokens and their log-probabilities to the host; return the first `count` of them."""
        tensor, array = ring.take(2 * size)
        tensor.copy_(out.narrow(0, 0, 2 * size), non_blocking=True)
        return array.reshape(2, size)[:, :count]

    # Decoding

    def _decode(self, slots: NDArray[np.int64], pages: NDArray[np.int64]) -> Ints:
        count = len(slots)
        size = self._decode_buckets[bisect_left(self._decode_buckets, count)] if self._graphed else count
        staged = self._decode_inputs.stage(2 * size)
        staged[:size], staged[size:] = self._padding, 0
        staged[:count], staged[size : size + count] = slots, pages
        self._decode_inputs.send()
        self._run(("decode", size), lambda: self._decode_step(size))
        return self._to_host(self._decode_results, self._decode_out, size, count)

    def _decode_step(self, size: int) -> None:
        slots, pages = torch.split_with_sizes(self._decode_inputs.tensor[: 2 * size], (size, size))
        state = self._state.index_select(0, slots)
        positions = state[:, LENGTH].contiguous()
        self._ops.extend_tables(slots, pages, positions, self._tables)
        self._sample(self.decode_hidden(state[:, LAST_TOKEN], positions, slots), slots, self._decode_out)

    def decode_hidden(self, ids: Tensor, positions: Tensor, slots: Tensor) -> Tensor:
        """Return the hidden states of one token per sequence."""
        ops, model, tables = self._ops, self.model, self._tables

        def attend(layer: Layer, qkv: Tensor) -> Tensor:
            keys, values = self.memory.layer(layer.number)
            ops.rotate_and_store(
                qkv, positions, slots, tables, keys, values, layer.rotation, layer.head_norms, model.eps, model.heads
            )
            result: Tensor = ops.decode_attention(
                qkv, keys, values, positions, slots, tables, model.heads, layer.window
            )
            return result

        return model.forward(ids, attend)

    def _sample(self, hidden: Tensor, slots: Tensor, out: Tensor) -> None:
        tokens, logprobs = out[: len(slots)], out[len(slots) : 2 * len(slots)]
        self._ops.sample(self.model.logits(hidden), slots, self._state, tokens, logprobs.view(torch.float32))

    # Prefill

    def _prefill_sizes(self, tokens: int) -> tuple[int, int, int, int, int, int]:
        """Return the sizes of the input arrays for a bucket: ids, positions, slots, tiles, last tokens, their slots."""
        chunks = _chunks_in(tokens)
        return tokens, tokens, tokens, 4 * (tokens // self._tile_tokens + chunks), chunks, chunks

    def _prefill(self, chunks: Chunks) -> Ints:
        arrays = self.prefill_arrays(chunks)
        sampling = len(arrays[5])
        at = bisect_left(self._prefill_buckets, max(len(arrays[0]), _tokens_for(len(chunks.slots))))
        if not self._graphed or at == len(self._prefill_buckets):
            sizes: Sequence[int] = [len(array) for array in arrays]
            np.concatenate(arrays, out=self._large_prefill.stage(sum(sizes)))
            self._prefill_step(self._large_prefill.send(), sizes)
        else:
            sizes = self._prefill_sizes(self._prefill_buckets[at])
            staged = self._prefill_inputs.stage(sum(sizes))
            staged[:] = np.repeat(np.array((0, 0, self._padding, 0, 0, self._padding), np.int32), sizes)
            offset = 0
            for array, size in zip(arrays, sizes, strict=True):
                staged[offset : offset + len(array)] = array
                offset += size
            inputs = self._prefill_inputs.send()
            self._run(("prefill", self._prefill_buckets[at]), lambda: self._prefill_step(inputs, sizes))
        return self._to_host(self._prefill_results, self._prefill_out, sizes[5], sampling)

    def prefill_arrays(self, chunks: Chunks) -> tuple[Ints, Ints, Ints, Ints, Ints, Ints]:
        """Return the tokens' ids, positions and slots, the tiles, and the indices and slots of the last tokens."""
        slots, starts, count, samples, ids = chunks
        firsts = count.cumsum(dtype=np.int32) - count
        positions = np.arange(count.sum(), dtype=np.int32) + np.repeat(starts - firsts, count)
        tiles = _tiles(slots, firsts, count, starts, self._tile_tokens)
        return (
            ids, positions, np.repeat(slots, count), tiles.ravel(),
            (firsts + count - 1)[samples], slots[samples],
        )  # fmt: skip

    def _prefill_step(self, inputs: Tensor, sizes: Sequence[int]) -> None:
        last, rows = torch.split_with_sizes(inputs[: sum(sizes)], sizes)[4:]
        hidden = self.prefill_hidden(inputs, sizes)
        if len(rows):
            self._sample(hidden.index_select(0, last), rows, self._prefill_out)

    def prefill_hidden(self, inputs: Tensor, sizes: Sequence[int]) -> Tensor:
        """Return the hidden states of all tokens in a prefill."""
        ids, positions, slots, tiles = torch.split_with_sizes(inputs[: sum(sizes)], sizes)[:4]
        tiles = tiles.view(-1, 4)
        ops, model, tables = self._ops, self.model, self._tables

        def attend(layer: Layer, qkv: Tensor) -> Tensor:
            keys, values = self.memory.layer(layer.number)
            ops.rotate_and_store(
                qkv, positions, slots, tables, keys, values, layer.rotation, layer.head_norms, model.eps, model.heads
            )
            result: Tensor = ops.prefill_attention(qkv, keys, values, tiles, tables, model.heads, layer.window)
            return result

        return model.forward(ids, attend)

    # CUDA graphs

    def _run(self, key: tuple[str, int], function: Callable[[], None]) -> None:
        """Call a function, on a GPU by replaying its CUDA graph, which the first call captures."""
        if not self._graphed:
            function()
            return
        if key not in self._graphs:
            self._graphs[key] = self._capture(key, function)
        self._graphs[key].replay()

    def _capture(self, key: tuple[str, int], function: Callable[[], None]) -> Any:
        """Compile the kernels by running the function with padding only, then capture it."""
        kind, size = key
        inputs = (self._decode_inputs if kind == "decode" else self._prefill_inputs).tensor
        kept = inputs.clone()
        inputs.zero_()
        if kind == "decode":
            inputs[:size] = self._padding
        else:
            sizes = self._prefill_sizes(size)
            parts = torch.split_with_sizes(inputs[: sum(sizes)], sizes)
            parts[2].fill_(self._padding)
            parts[5].fill_(self._padding)
        function()
        self._stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            function()
        inputs.copy_(kept)
        return graph


def _chunks_in(tokens: int) -> int:
    """Return the maximum number of chunks in a prefill graph for `tokens` tokens."""
    return max(16, tokens // 16)


def _tokens_for(chunks: int) -> int:
    return 0 if chunks <= 16 else 16 * chunks


def _tiles(slots: Ints, firsts: Ints, counts: Ints, starts: Ints, size: int) -> Ints:
    """Cut chunks into tiles of at most `size` tokens. Columns: slot, first token, number of tokens, position."""
    tiles = -(-counts // size)
    chunk = np.repeat(np.arange(len(counts)), tiles)
    within = (np.arange(len(chunk)) - np.repeat(tiles.cumsum() - tiles, tiles)) * size
    columns = (slots[chunk], firsts[chunk] + within, np.minimum(counts[chunk] - within, size), starts[chunk] + within)
    return np.stack(columns, 1).astype(np.int32)
