"""Sampled tokens of the running sequences as arrays, so that a step touches few Python objects per sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from palestra.engines.local.generation_request import GenerationRequest

WIDTH = 64  # buffered tokens per sequence


class TokenBuffer:
    """Buffers the tokens of `slots` sequences; `flush` appends them to a request's bytes."""

    def __init__(self, slots: int) -> None:
        self.length = np.zeros(slots, np.int64)  # number of ids in prompt and reply
        self.has_stop_strings = np.zeros(slots, np.bool_)
        self._requests: list[GenerationRequest | None] = [None] * slots
        self._count = np.zeros(slots, np.int64)  # buffered tokens
        self._tokens = np.zeros((slots, WIDTH), np.int32)
        self._logprobs = np.zeros((slots, WIDTH), np.float32)
        self._stop_ids = np.full((slots, 2), -1, np.int64)

    def start(self, slots: Sequence[int], requests: Sequence[GenerationRequest], lengths: Sequence[int]) -> None:
        """Assign free slots to requests, which have `lengths` ids."""
        self.length[slots] = lengths
        self.has_stop_strings[slots] = [request.stop_strings is not None for request in requests]
        self._stop_ids[slots] = -1
        by_stop_ids: dict[frozenset[int], list[int]] = {}
        for slot, request in zip(slots, requests, strict=True):
            self._requests[slot] = request
            by_stop_ids.setdefault(request.stop_ids, []).append(slot)
        for stop_ids, same in by_stop_ids.items():
            width = self._stop_ids.shape[1]
            if len(stop_ids) > width:
                added = np.full((len(self.length), len(stop_ids) - width), -1, np.int64)
                self._stop_ids = np.concatenate((self._stop_ids, added), 1)
            self._stop_ids[same, : len(stop_ids)] = list(stop_ids)

    def append(
        self, slots: NDArray[np.int64], tokens: NDArray[np.int32], logprobs: NDArray[np.float32]
    ) -> NDArray[np.bool_]:
        """Append one token to each of several different slots; return which of them reached a stop id."""
        count = self._count[slots]
        self._tokens[slots, count] = tokens
        self._logprobs[slots, count] = logprobs
        self._count[slots] = count + 1
        self.length[slots] += 1
        self.flush_all(slots[count + 1 == WIDTH].tolist())
        stopped: NDArray[np.bool_] = (self._stop_ids[slots] == tokens[:, None]).any(1)
        return stopped

    def flush(self, slot: int) -> GenerationRequest:
        """Append a slot's buffered tokens to its request."""
        self.flush_all([slot])
        request = self._requests[slot]
        assert request is not None, "the slot must be in use"  # noqa: S101
        return request

    def flush_all(self, slots: Sequence[int]) -> None:
        """Append the buffered tokens of several different slots to their requests."""
        if not slots:
            return
        counts = self._count[slots]
        longest = int(counts.max())
        if not longest:
            return
        tokens = self._tokens[slots, :longest].tobytes()
        logprobs = self._logprobs[slots, :longest].astype(np.float64).tobytes()
        starts = np.arange(len(slots)) * longest
        for slot, start, end in zip(slots, starts.tolist(), (starts + counts).tolist(), strict=True):
            request = self._requests[slot]
            if request is not None and start < end:
                request.reply_bytes += tokens[4 * start : 4 * end]
                request.logprob_bytes += logprobs[8 * start : 8 * end]
        self._count[slots] = 0
