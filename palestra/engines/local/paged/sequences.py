"""Running sequences of the paged scheduler, and the rows that describe them to the device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from palestra.engines.local.generation_request import GenerationRequest
from palestra.engines.local.paged.layout import (
    LAST_TOKEN,
    LENGTH,
    LOGPROB_TEMPERATURE,
    MIN_P,
    PAGE,
    SAMPLED,
    SEED_HIGH,
    SEED_LOW,
    STATE_WIDTH,
    TEMPERATURE,
    TOP_K,
    TOP_P,
)  # fmt: skip
from palestra.engines.local.paged.runner import NO_CHUNKS, NO_INTS, Chunks, Ints

PAGE_BYTES = 4 * PAGE  # bytes of a page's token ids


class RunningSequence:
    """A running request and its pages."""

    __slots__ = ("computed", "content", "count", "ids", "pages", "registered", "request", "slot")

    def __init__(
        self, request: GenerationRequest, slot: int, ids: bytes, shared: list[int], new: list[int], content: int
    ) -> None:
        self.request = request
        self.slot = slot
        self.ids = ids  # the ids at admission as 32-bit integers; after the request has ended, all of its ids
        self.count = len(ids) // 4  # number of ids at admission
        self.pages = shared + new
        # Leading tokens whose keys and values are stored, or will be by a launched step.
        self.computed = len(shared) * PAGE
        self.registered = len(shared)  # leading pages whose content other sequences can find
        self.content = content  # content id of the last of them


class Prefill:
    """Tokens to prefill in one step, at most `budget`."""

    def __init__(self, budget: int) -> None:
        self.budget = budget  # remaining tokens
        self.sampling: list[RunningSequence] = []  # sequences whose prefill ends in this step
        self._rows: list[tuple[int, int, int, bool]] = []
        self._ids: list[bytes] = []

    def add(self, sequence: RunningSequence) -> bool:
        """Add as many tokens of a sequence as possible; return whether its prefill ends in this step."""
        start, end = sequence.computed, sequence.count
        stop = min(end, start + self.budget)
        if stop == start:
            return False
        self._rows.append((sequence.slot, start, stop - start, stop == end))
        self._ids.append(sequence.ids[4 * start : 4 * stop])
        self.budget -= stop - start
        sequence.computed = stop
        if stop == end:
            self.sampling.append(sequence)
        return stop == end

    def chunks(self) -> Chunks:
        if not self._rows:
            return NO_CHUNKS
        rows = np.array(self._rows, np.int32)
        slots, starts, counts, samples = np.ascontiguousarray(rows.T)
        return Chunks(slots, starts, counts, samples != 0, np.frombuffer(b"".join(self._ids), np.int32))


def table_updates(sequences: Sequence[RunningSequence], max_pages: int) -> tuple[Ints, Ints]:
    """Return the elements of the block tables that change because sequences start, and their pages."""
    if not sequences:
        return NO_INTS, NO_INTS
    counts = np.array([len(sequence.pages) for sequence in sequences], np.int64)
    bases = np.array([sequence.slot for sequence in sequences], np.int64) * max_pages
    indices = np.repeat(bases - (counts.cumsum() - counts), counts) + np.arange(counts.sum())
    pages = chain.from_iterable([sequence.pages for sequence in sequences])
    return indices.astype(np.int32), np.fromiter(pages, np.int32, len(indices))


def state_rows(sequences: Sequence[RunningSequence]) -> NDArray[np.int32]:
    """Return one row per sequence: its slot, then its state before the next token is sampled."""
    requests = [sequence.request for sequence in sequences]
    rows = np.empty((len(sequences), 1 + STATE_WIDTH), np.int32)
    if not requests:
        return rows
    settings = [_settings(request) for request in requests]
    same = all(row is settings[0] for row in settings)
    rows[:, 1:] = settings[0] if same else settings
    rows[:, 0] = [sequence.slot for sequence in sequences]
    length = np.array([sequence.count for sequence in sequences], np.int32)
    rows[:, 1 + LENGTH] = length - 1  # sampling adds 1
    rows[:, 1 + LAST_TOKEN] = np.frombuffer(b"".join([sequence.ids[-4:] for sequence in sequences]), np.int32)
    rows[:, 1 + SAMPLED] = length - np.array([request.prompt_length for request in requests], np.int32)
    seeds = np.array([request.seed for request in requests], np.int64)
    rows[:, 1 + SEED_LOW], rows[:, 1 + SEED_HIGH] = seeds.astype(np.int32), (seeds >> 32).astype(np.int32)
    return rows


def _settings(request: GenerationRequest) -> tuple[int, ...]:
    sampling = request.sampling
    return _settings_row(
        sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p, sampling.tempered_logprobs
    )


@lru_cache(maxsize=1024)
def _settings_row(temperature: float, top_k: int, top_p: float, min_p: float, tempered: bool) -> tuple[int, ...]:
    """Return a slot's state with the settings of a request; other columns are 0."""
    row = np.zeros(STATE_WIDTH, np.int32)
    row[TOP_K] = min(top_k, 2**31 - 1)
    floats = row.view(np.float32)
    floats[TEMPERATURE], floats[TOP_P], floats[MIN_P] = temperature, top_p, min_p
    floats[LOGPROB_TEMPERATURE] = (temperature or 1.0) if tempered else 1.0
    return tuple(row.tolist())
