"""State of the running requests as arrays, so that a step touches few Python objects per sequence.

A sequence's new tokens are appended to its row in a token buffer. They are flushed to the request's lists when the row
is full, when the request ends, or when the lists are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from palestra.engines.local.runner import StepBatch
from palestra.engines.local.sampling import SETTING_COUNT, is_unfiltered, settings_row

if TYPE_CHECKING:
    from palestra.engines.local.generation_request import GenerationRequest

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

BUFFER_TOKENS = 64  # buffered tokens per sequence
FIELDS = (
    "length",  # number of ids, including sampled ones
    "cached",  # number of leading ids whose keys and values are stored
    "offset",  # address of the block
    "size",  # size of the block
    "last_id",
    "max_length",  # maximum number of ids
    "sampled",  # tokens sampled so far
    "buffered",  # sampled tokens that are not yet in the request's lists
    "seed",
    "buffer",  # row in the token buffer
    "has_stop_strings",  # 0 or 1
    "unfiltered",  # 1: sampling leaves the model's distribution unchanged
)


class RunningBatch:
    """The running requests in order of admission. `batch["length"]` is a view of that field for all requests."""

    def __init__(self) -> None:
        self.requests: list[GenerationRequest] = []
        self._ints = np.zeros((len(FIELDS), 16), np.int64)
        self._settings = np.zeros((SETTING_COUNT, 16))
        self._stop_ids = np.full((16, 2), -1, np.int64)
        self._free_buffers: list[int] = list(range(15, -1, -1))
        self._tokens = np.zeros((16, BUFFER_TOKENS), np.int64)
        self._logprobs = np.zeros((16, BUFFER_TOKENS))

    def __len__(self) -> int:
        return len(self.requests)

    def __getitem__(self, field: str) -> Ints:
        return self._ints[_INDEX[field], : len(self.requests)]

    def settings(self, rows: Ints) -> NDArray[np.float64]:
        """Return the sampling settings for `rows` in the format that `sampling_tensors` expects."""
        return self._settings[:, rows]

    def append(self, request: GenerationRequest) -> None:
        entry, row = request.entry, len(self.requests)
        assert entry is not None  # noqa: S101  a running request has an entry
        self._reserve(row + 1, len(request.stop_ids))
        self.requests.append(request)
        ids, sampled = request.ids, len(request.ids) - request.prompt_length
        self._ints[:, row] = (
            len(ids), entry.cached, entry.offset, entry.size, ids[-1], request.max_length, sampled, 0,
            request.seed, self._free_buffers.pop(), request.stop_strings is not None, is_unfiltered(request.sampling),
        )  # fmt: skip
        self._settings[:, row] = settings_row(request.sampling)
        self._stop_ids[row] = -1
        if request.stop_ids:
            self._stop_ids[row, : len(request.stop_ids)] = list(request.stop_ids)

    def update_block(self, row: int) -> None:
        """Update the address and size of a row's block after it has moved."""
        entry = self.requests[row].entry
        assert entry is not None  # noqa: S101
        for field, value in (("offset", entry.offset), ("size", entry.size), ("cached", entry.cached)):
            self._ints[_INDEX[field], row] = value

    def flush(self, row: int) -> None:
        """Write a row's buffered tokens and cached count to its request and entry."""
        request = self.requests[row]
        buffered, buffer = int(self._ints[_BUFFERED, row]), self._ints[_BUFFER, row]
        if buffered:
            request.ids.extend(self._tokens[buffer, :buffered].tolist())
            request.logprobs.extend(self._logprobs[buffer, :buffered].tolist())
            self._ints[_BUFFERED, row] = 0
        if request.entry is not None:
            request.entry.cached = int(self._ints[_CACHED, row])

    def flush_cached(self) -> None:
        """Write every row's cached count to its entry."""
        for request, cached in zip(self.requests, self["cached"].tolist(), strict=True):
            if request.entry is not None:
                request.entry.cached = cached

    def remove(self, rows: Sequence[int]) -> None:
        """Flush rows and remove them."""
        if not rows:
            return
        keep = np.ones(len(self.requests), np.bool_)
        for row in rows:
            self.flush(row)
            keep[row] = False
        self._free_buffers.extend(self["buffer"][~keep].tolist())
        remaining = np.flatnonzero(keep)
        self._ints[:, : len(remaining)] = self._ints[:, remaining]
        self._settings[:, : len(remaining)] = self._settings[:, remaining]
        self._stop_ids[: len(remaining)] = self._stop_ids[remaining]
        self.requests = [self.requests[row] for row in remaining.tolist()]

    def next_step(self, prefill_budget: int, *, with_entries: bool) -> tuple[StepBatch, Ints]:
        """Return the input for the next step, with at most about `prefill_budget` prompt tokens, and its rows.

        `with_entries` includes the flushed entries for all rows; otherwise entries are included only if the step reads
        prompt tokens.
        """
        if with_entries:
            for row in range(len(self.requests)):
                self.flush(row)
        start, stop = self["cached"], self["length"].copy()
        pending = stop - start
        rows = np.arange(len(pending))
        first_id = self["last_id"]
        prefill = pending > 1
        complete = ~prefill
        any_prefill = bool(prefill.any())
        if any_prefill:
            requested = np.where(prefill, pending, 0)
            granted = np.where(prefill, np.clip(prefill_budget - (requested.cumsum() - requested), 0, pending), 1)
            stop, complete = start + granted, granted == pending
            first_id = first_id.copy()
            for row in np.flatnonzero(prefill & (granted > 0)).tolist():
                self.flush(row)  # after a weight update, sampled tokens are recomputed as well
                if granted[row] == 1:
                    first_id[row] = self.requests[row].ids[start[row]]
            rows = np.flatnonzero(granted)
        batch = StepBatch(
            start=start[rows],
            stop=stop[rows],
            offset=self["offset"][rows],
            size=self["size"][rows],
            first_id=first_id[rows],
            needs_logits=complete[rows],
            entries=[_entry(self.requests[row]) for row in rows.tolist()] if with_entries or any_prefill else [],
        )
        return batch, rows

    def append_tokens(self, rows: Ints, tokens: Ints, logprobs: NDArray[np.float64]) -> Bools:
        """Append one token to each row; return which rows have reached one of their stop ids."""
        ints = self._ints
        buffered, buffer = ints[_BUFFERED, rows], ints[_BUFFER, rows]
        self._tokens[buffer, buffered] = tokens
        self._logprobs[buffer, buffered] = logprobs
        ints[_BUFFERED, rows] = buffered + 1
        ints[_INDEX["length"], rows] += 1
        ints[_INDEX["sampled"], rows] += 1
        ints[_INDEX["last_id"], rows] = tokens
        for row in rows[buffered + 1 == BUFFER_TOKENS].tolist():
            self.flush(row)
        stopped: Bools = (self._stop_ids[rows] == tokens[:, None]).any(1)
        return stopped

    def _reserve(self, rows: int, stop_ids: int) -> None:
        capacity = self._ints.shape[1]
        if rows > capacity:
            self._ints = _enlarge(self._ints, (len(FIELDS), 2 * capacity), 0)
            self._settings = _enlarge(self._settings, (SETTING_COUNT, 2 * capacity), 0)
            self._tokens = _enlarge(self._tokens, (2 * capacity, BUFFER_TOKENS), 0)
            self._logprobs = _enlarge(self._logprobs, (2 * capacity, BUFFER_TOKENS), 0)
            self._free_buffers.extend(range(2 * capacity - 1, capacity - 1, -1))
        capacity, width = self._stop_ids.shape
        if rows > capacity or stop_ids > width:
            shape = (max(capacity, self._ints.shape[1]), max(width, stop_ids))
            self._stop_ids = _enlarge(self._stop_ids, shape, -1)


_INDEX = {name: index for index, name in enumerate(FIELDS)}
_CACHED, _BUFFERED, _BUFFER = _INDEX["cached"], _INDEX["buffered"], _INDEX["buffer"]


def _entry(request: GenerationRequest) -> Any:
    return request.entry


def _enlarge(array: Any, shape: tuple[int, int], fill: int) -> Any:
    larger = np.full(shape, fill, array.dtype)
    larger[: array.shape[0], : array.shape[1]] = array
    return larger
