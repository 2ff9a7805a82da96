"""Continuous batching: admit requests, run one model step for all of them, sample, and finish.

Everything here runs in the engine's single worker thread. A running request is a list of ids; the keys and values of
its leading ids are in its cache entry. Each step runs remaining ids through the model and, once none remain, samples
the next id. Decoding, prefill, continuing a conversation and recomputing after a weight update are the same operation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from palestra.engines.local.block_allocator import block_size_for
from palestra.engines.local.generation_request import GenerationRequest
from palestra.engines.local.kv_cache import KVCache
from palestra.engines.local.prefix_cache import HASH_BLOCK, CacheEntry, PrefixCache, common_prefix, prefix_hashes
from palestra.engines.local.runner import Runner, to_device
from palestra.engines.local.running_batch import RunningBatch
from palestra.engines.local.sampling import sample, sampling_tensors, uniforms
from palestra.errors import EngineFailed

HEADROOM = 64  # reply tokens that fit into a new block before it has to move


@dataclass(slots=True)
class EngineStats:
    """An engine's counters since its start, in tokens unless noted."""

    steps: int = 0  # model steps
    sampled: int = 0
    computed: int = 0  # tokens run through the model, including sampled ones
    reused: int = 0  # prompt tokens found in the conversation's own cache entry
    shared: int = 0  # prompt tokens copied from another conversation's entry
    evicted: int = 0  # idle cache entries that were removed to make room
    preempted: int = 0  # running requests whose block was freed and which were recomputed


class Scheduler:
    """Runs up to `max_running` requests at once; a step reads at most about `prefill_budget` prompt tokens."""

    def __init__(self, runner: Runner, kv_cache: KVCache, *, max_running: int, prefill_budget: int) -> None:
        self.runner = runner
        self.kv_cache = kv_cache
        self.stats = EngineStats()
        self._max_running = max_running
        self._prefill_budget = prefill_budget
        self._prefix_cache = PrefixCache()
        self._waiting: deque[GenerationRequest] = deque()
        self._batch = RunningBatch()
        self._any_cancelled = False
        self._unplaced: list[GenerationRequest] = []  # dequeued requests whose placement raised an exception
        self._entries_current = False  # whether the entries of running requests have current `cached` counts

    @property
    def idle(self) -> bool:
        return not self._waiting and not len(self._batch)

    def add(self, requests: Iterable[GenerationRequest]) -> None:
        self._waiting.extend(requests)

    @property
    def running(self) -> int:
        return len(self._batch)

    @property
    def in_flight(self) -> bool:
        """True if the tokens of a launched step are not known yet; always False, because `step` waits for them."""
        return False

    @property
    def starving(self) -> bool:
        """True if the device has no work although requests are running; always False, because it is not measured."""
        return False

    def drain(self) -> list[GenerationRequest]:
        """Return the requests that a step in flight has finished; always empty, because `step` waits for its tokens."""
        return []

    def take_requests(self) -> list[GenerationRequest]:
        """Remove and return all unfinished requests, so that another scheduler can continue them."""
        self.invalidate()
        for row in range(len(self._batch) - 1, -1, -1):
            self._preempt(row)
        requests = list(self._waiting)
        self._waiting.clear()
        return requests

    def release_memory(self) -> None:
        """Free the memory of the KV cache; it grows again when it is needed."""
        self._waiting.extend(self.take_requests())
        self.kv_cache.release_memory()

    @property
    def used_tokens(self) -> int:
        """Capacity of the blocks that are in use, including those of idle conversations."""
        return self.kv_cache.allocator.length - self.kv_cache.allocator.free_tokens

    def close(self) -> None:
        self.kv_cache.release()

    def cancel(self, request: GenerationRequest) -> None:
        """Drop a request before the next step. May be called from any thread."""
        request.cancelled = True
        self._any_cancelled = True

    def step(self, version: int) -> list[GenerationRequest]:
        """Run the model once and return the finished requests. If the model raises, all running requests fail."""
        self._drop_cancelled()
        try:
            self._admit(version)
            self._grow_blocks()
            self.kv_cache.flush_copies()
            return self._run() if len(self._batch) else []
        except EngineFailed as err:
            return self._fail(str(err))
        except Exception as err:  # noqa: BLE001  the worker must survive whatever a model raises
            return self._fail(f"the model failed: {type(err).__name__}: {err}")

    def invalidate(self) -> None:
        """Discard everything computed with the previous weights; running requests are recomputed."""
        for entry in self._prefix_cache.idle():
            self._free(entry)
        self._batch["cached"][:] = 0
        self._batch.flush_cached()

    def forget(self, key: Hashable) -> None:
        entry = self._prefix_cache.forget(key)
        if entry is not None:
            self.kv_cache.allocator.free(entry.offset, entry.size)

    def abort(self, reason: str) -> list[GenerationRequest]:
        """Fail and return all requests, running and waiting."""
        ended = self._fail(reason) + list(self._waiting)
        self._waiting.clear()
        for request in ended:
            request.error = reason
        return ended

    # Admission

    def _drop_cancelled(self) -> None:
        if self._any_cancelled:
            self._any_cancelled = False  # reset first, so that a concurrent `cancel` is not missed
            self._finish([row for row, request in enumerate(self._batch.requests) if request.cancelled])

    def _admit(self, version: int) -> None:
        """Start waiting requests in order of arrival while there is room."""
        postponed: list[GenerationRequest] = []
        self._entries_current = False
        try:
            while self._waiting and len(self._batch) < self._max_running:
                request = self._waiting.popleft()
                if request.cancelled:
                    continue
                placed = self._place(request)
                if placed is None:
                    postponed.append(request)
                elif placed:
                    if request.version is None:
                        request.version = version
                    self._batch.append(request)
                else:
                    self._waiting.appendleft(request)
                    break
        except Exception:
            self._unplaced.append(request)  # `_fail` fails this request together with the running ones
            raise
        finally:
            self._waiting.extendleft(reversed(postponed))

    def _place(self, request: GenerationRequest) -> bool | None:
        """Assign a cache entry. Return False if there is no room, None if a running request is computing its prefix."""
        ids = request.ids
        limit = len(ids) - 1  # the last id is always computed, because its logits are needed
        own = self._prefix_cache.get(request.key)
        if own is not None and not own.busy:
            self._prefix_cache.activate(own)
            own.cached = common_prefix(own.ids, ids, min(limit, own.cached))
            own.ids = ids
            request.entry = own
            self.stats.reused += own.cached
            return True
        if not self._entries_current:
            self._batch.flush_cached()
            self._entries_current = True
        if request.prefix_hashes is None:
            request.prefix_hashes = prefix_hashes(ids)
        source = own or self._prefix_cache.longest_match(request.prefix_hashes)
        shared = 0
        if source is not None:
            length = common_prefix(source.ids, ids, limit)
            shared = min(length, source.cached)
            if source.busy and length - shared >= HASH_BLOCK:
                return None  # the prefix can be copied in the next step
        size = block_size_for(min(len(ids) + HEADROOM, request.max_length))
        offset = self._allocate(size, exclude=source)
        if offset is None and source is not None and not source.busy:
            source = None  # there is no room for both blocks, so allow the source to be evicted
            offset = self._allocate(size)
        if offset is None:
            if not len(self._batch):
                raise EngineFailed(f"the KV cache has no room for {len(ids)} tokens; raise kv_cache_gb")
            return False
        entry = CacheEntry(ids, request.key, offset, size)
        if source is not None and shared >= HASH_BLOCK:
            self.kv_cache.copy(source.offset, offset, shared)
            entry.cached = shared
            self.stats.shared += shared
        self._prefix_cache.add(entry, request.prefix_hashes)
        request.entry = entry
        return True

    # Memory

    def _allocate(self, size: int, exclude: CacheEntry | None = None) -> int | None:
        """Allocate a block, evicting least recently used entries if necessary."""
        offset = self.kv_cache.allocate(size)
        while offset is None and (entry := self._prefix_cache.least_recently_used(exclude)) is not None:
            self._free(entry)
            self.stats.evicted += 1
            offset = self.kv_cache.allocate(size)
        return offset

    def _grow_blocks(self) -> None:
        batch = self._batch
        while (outgrown := np.flatnonzero(batch["size"] < batch["length"])).size:
            for row in outgrown.tolist():
                if row < len(batch):  # later rows may have been preempted
                    self._grow_block(row)

    def _grow_block(self, row: int) -> None:
        """Ensure that a row's block holds all of its ids."""
        request = self._batch.requests[row]
        entry = _entry(request)
        self._batch.flush(row)
        size = block_size_for(min(len(request.ids) + HEADROOM, request.max_length))
        while entry.size < size and self.kv_cache.allocator.grow_in_place(entry.offset, entry.size):
            entry.size *= 2
        while entry.size < size:
            offset = self._allocate(size)
            if offset is not None:
                self.kv_cache.copy(entry.offset, offset, entry.cached)
                self.kv_cache.allocator.free(entry.offset, entry.size)
                entry.offset, entry.size = offset, size
            elif row < len(self._batch) - 1:
                self._preempt(len(self._batch) - 1)
            elif len(self._batch) > 1:
                self._preempt(row)
                return
            else:  # the only running request: free its own block to make room
                self._free(entry)
                offset = self._allocate(size)
                if offset is None:
                    raise EngineFailed(f"the KV cache has no room for {len(request.ids)} tokens; raise kv_cache_gb")
                request.entry = entry = CacheEntry(request.ids, request.key, offset, size)
                self._prefix_cache.add(entry, [])
        self._batch.update_block(row)

    def _preempt(self, row: int) -> None:
        """Return a request to the queue, to be recomputed later. Callers preempt the newest request first."""
        request = self._batch.requests[row]
        self._batch.remove([row])
        self._free(_entry(request))
        request.entry = request.prefix_hashes = None
        self._waiting.appendleft(request)
        self.stats.preempted += 1

    def _finish(self, rows: list[int]) -> list[GenerationRequest]:
        """Remove rows from the batch and keep their entries for the next turn in the conversation."""
        ended = [self._batch.requests[row] for row in rows]
        self._batch.remove(rows)
        for request in ended:
            entry = _entry(request)
            request.entry = None
            if not self._prefix_cache.deactivate(entry):
                self.kv_cache.allocator.free(entry.offset, entry.size)
        return ended

    def _free(self, entry: CacheEntry) -> None:
        self._prefix_cache.remove(entry)
        self.kv_cache.allocator.free(entry.offset, entry.size)

    # Execution

    def _run(self) -> list[GenerationRequest]:
        batch, runner, stats = self._batch, self.runner, self.stats
        step, rows = batch.next_step(self._prefill_budget, with_entries=runner.needs_entries)
        logits = runner.forward(step)
        sampled_rows = rows[step.needs_logits]
        tokens, logprobs = self._sample(sampled_rows, logits) if sampled_rows.size else (sampled_rows, np.zeros(0))
        batch["cached"][rows] = step.stop
        stats.steps += 1
        stats.sampled += sampled_rows.size
        stats.computed += int((step.stop - step.start).sum())
        return self._append(sampled_rows, tokens, logprobs)

    def _sample(self, rows: NDArray[np.int64], logits: Tensor) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        batch = self._batch
        numbers = uniforms(batch["seed"][rows], batch["sampled"][rows])
        if batch["unfiltered"][rows].all():
            (device_numbers,), settings = to_device(logits.device, numbers), None
        else:
            setting_rows = batch.settings(rows)
            device_numbers, device_rows = to_device(logits.device, numbers, setting_rows)
            settings = sampling_tensors(setting_rows, device_rows, logits.shape[-1])
        ids, logprobs = sample(logits, device_numbers, settings)
        both = torch.stack((ids.double(), logprobs.double())).cpu().numpy()  # the only device synchronization in a step
        return both[0].astype(np.int64), both[1]

    def _append(
        self, rows: NDArray[np.int64], tokens: NDArray[np.int64], logprobs: NDArray[np.float64]
    ) -> list[GenerationRequest]:
        """Append sampled tokens and return the finished requests."""
        batch = self._batch
        finished: list[int] = []
        broken = np.isnan(logprobs)
        if broken.any():
            finished = rows[broken].tolist()
            for row in finished:
                request = batch.requests[row]
                request.error = "the model's logits are not finite; its weights may have diverged"
                entry = _entry(request)
                self.kv_cache.zero_block(entry.offset, entry.size)
                batch["cached"][row] = 0
            rows, tokens, logprobs = rows[~broken], tokens[~broken], logprobs[~broken]
        stopped = batch.append_tokens(rows, tokens, logprobs)
        for index in np.flatnonzero(batch["has_stop_strings"][rows]).tolist():
            row = int(rows[index])
            batch.flush(row)
            request = batch.requests[row]
            if request.stop_strings is not None and request.stop_strings.reached(request.ids, request.prompt_length):
                stopped[index] = True
        full = batch["length"][rows] >= batch["max_length"][rows]
        for index in np.flatnonzero(stopped | full).tolist():
            row = int(rows[index])
            batch.requests[row].finish = "stop" if stopped[index] else "length"
            finished.append(row)
        return self._finish(sorted(finished)) if finished else []

    def _fail(self, reason: str) -> list[GenerationRequest]:
        """Fail all running requests and reset the cache, whose state after an exception is undefined."""
        ended, self._unplaced = self._batch.requests + self._unplaced, []
        self._batch = RunningBatch()
        for request in ended:
            request.entry = None
            request.error = reason
        self._prefix_cache = PrefixCache()
        try:
            self.kv_cache.reset()
        except RuntimeError:  # the device has failed; later requests will report that
            self.kv_cache.release()
        return ended


def _entry(request: GenerationRequest) -> CacheEntry:
    assert request.entry is not None, "a running request must have a cache entry"  # noqa: S101
    return request.entry
