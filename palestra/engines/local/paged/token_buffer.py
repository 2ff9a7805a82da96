"""Sampled tokens of the running sequences as arrays, so that a step touches few Python objects per sequence."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from palestra.engines.local.scheduler import GenerationRequest

WIDTH = 64  # buffered tokens per sequence


class TokenBuffer:
    """Buffers the tokens of `slots` sequences; `flush` appends them to a request's lists."""

    def __init__(self, slots: int) -> None:
        self.length = np.zeros(slots, np.int64)  # number of ids in prompt and reply
        self.has_stop_strings = np.zeros(slots, np.bool_)
        self._requests: list[GenerationRequest | None] = [None] * slots
        self._count = np.zeros(slots, np.int64)  # buffered tokens
        self._tokens = np.zeros((slots, WIDTH), np.int32)
        self._logprobs = np.zeros((slots, WIDTH), np.float32)
        self._stop_ids = np.full((slots, 2), -1, np.int64)

    def start(self, slot: int, request: GenerationRequest) -> None:
        """Assign a slot to a request."""
        self._requests[slot] = request
        self.length[slot], self._count[slot] = len(request.ids), 0
        self.has_stop_strings[slot] = request.stop_strings is not None
        width = self._stop_ids.shape[1]
        if len(request.stop_ids) > width:
            added = np.full((len(self.length), len(request.stop_ids) - width), -1, np.int64)
            self._stop_ids = np.concatenate((self._stop_ids, added), 1)
        self._stop_ids[slot] = -1
        self._stop_ids[slot, : len(request.stop_ids)] = list(request.stop_ids)

    def append(
        self, slots: NDArray[np.int64], tokens: NDArray[np.int32], logprobs: NDArray[np.float32]
    ) -> NDArray[np.bool_]:
        """Append one token to each of several different slots; return which of them reached a stop id."""
        count = self._count[slots]
        self._tokens[slots, count] = tokens
        self._logprobs[slots, count] = logprobs
        self._count[slots] = count + 1
        self.length[slots] += 1
        for slot in slots[count + 1 == WIDTH].tolist():
            self.flush(slot)
        stopped: NDArray[np.bool_] = (self._stop_ids[slots] == tokens[:, None]).any(1)
        return stopped

    def flush(self, slot: int) -> GenerationRequest:
        """Append a slot's buffered tokens to its request."""
        request, count = self._requests[slot], int(self._count[slot])
        assert request is not None, "the slot must be in use"  # noqa: S101
        if count:
            request.ids.extend(self._tokens[slot, :count].tolist())
            request.logprobs.extend(self._logprobs[slot, :count].tolist())
            self._count[slot] = 0
        return request
