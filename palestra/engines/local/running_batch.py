"""Running requests as a table: what a step needs of each row lies in arrays, so that Python touches few rows a step.

A row's newest tokens are noted on its strip of a tape and go into the request's lists when the strip is full, when the
row is over, or when somebody wants to read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from palestra.engines.local.runner import Batch
from palestra.engines.local.sampling import NUMBERS, numbers_of

if TYPE_CHECKING:
    from palestra.engines.local.scheduler import Request

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

STRIP = 64  # tokens
FIELDS = (
    "length",  # ids of the request, the sampled ones included
    "cached",  # of them, with their keys and values in the slot
    "offset",  # where the slot's block begins
    "size",  # of the block
    "last",  # id
    "limit",  # of ids
    "drawn",  # tokens sampled so far
    "noted",  # of them, on the strip and not yet in the request's lists
    "seed",
    "strip",
    "watched",  # 1: by stop strings
    "plain",  # 1: samples the model as it is
)


class Rows:
    """The table; those admitted first come first. Fields are read with `rows["length"]`, which is a view."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._ints = np.zeros((len(FIELDS), 16), np.int64)
        self._settings = np.zeros((NUMBERS, 16))
        self._stops = np.full((16, 2), -1, np.int64)
        self._free: list[int] = list(range(15, -1, -1))  # strips
        self._tokens = np.zeros((16, STRIP), np.int64)
        self._logprobs = np.zeros((16, STRIP))

    def __len__(self) -> int:
        return len(self.requests)

    def __getitem__(self, field: str) -> Ints:
        return self._ints[_AT[field], : len(self.requests)]

    def settings(self, at: Ints) -> NDArray[np.float64]:
        """How the rows sample, as `sampling.settings` reads it."""
        return self._settings[:, at]

    def append(self, request: Request) -> None:
        slot, at = request.slot, len(self.requests)
        assert slot is not None  # noqa: S101  a running request has a slot
        self._ensure(at + 1, len(request.stop_ids))
        self.requests.append(request)
        ids, drawn = request.ids, len(request.ids) - request.prompt
        self._ints[:, at] = (
            len(ids), slot.cached, slot.offset, slot.size, ids[-1], request.limit, drawn, 0,
            request.seed, self._free.pop(), request.watch is not None, request.plain,
        )  # fmt: skip
        self._settings[:, at] = numbers_of(request.sampling)
        self._stops[at] = -1
        if request.stop_ids:
            self._stops[at, : len(request.stop_ids)] = list(request.stop_ids)

    def moved(self, at: int) -> None:
        """The row's slot has another block."""
        slot = self.requests[at].slot
        assert slot is not None  # noqa: S101
        for field, value in (("offset", slot.offset), ("size", slot.size), ("cached", slot.cached)):
            self._ints[_AT[field], at] = value

    def write(self, at: int) -> None:
        """Bring the request's lists and its slot up to date."""
        request = self.requests[at]
        noted, strip = int(self._ints[_NOTED, at]), self._ints[_STRIP, at]
        if noted:
            request.ids.extend(self._tokens[strip, :noted].tolist())
            request.logprobs.extend(self._logprobs[strip, :noted].tolist())
            self._ints[_NOTED, at] = 0
        if request.slot is not None:
            request.slot.cached = int(self._ints[_CACHED, at])

    def write_cached(self) -> None:
        """Bring every slot's count of cached tokens up to date."""
        for request, cached in zip(self.requests, self["cached"].tolist(), strict=True):
            if request.slot is not None:
                request.slot.cached = cached

    def remove(self, gone: Sequence[int]) -> None:
        """Take rows out, their requests up to date."""
        if not gone:
            return
        stay = np.ones(len(self.requests), np.bool_)
        for at in gone:
            self.write(at)
            stay[at] = False
        self._free.extend(self["strip"][~stay].tolist())
        kept = np.flatnonzero(stay)
        self._ints[:, : len(kept)] = self._ints[:, kept]
        self._settings[:, : len(kept)] = self._settings[:, kept]
        self._stops[: len(kept)] = self._stops[kept]
        self.requests = [self.requests[at] for at in kept.tolist()]

    def batch(self, budget: int, *, slots: bool) -> tuple[Batch, Ints]:
        """What the model reads next, at most about `budget` tokens of prompts, and the rows it is of.

        With `slots` the batch has all slots, up to date; without, it has them if it reads prompts.
        """
        if slots:
            for row in range(len(self.requests)):
                self.write(row)
        start, stop = self["cached"], self["length"].copy()
        need = stop - start
        at = np.arange(len(need))
        first = self["last"]
        long = need > 1
        whole = ~long
        prompts = bool(long.any())
        if prompts:
            asked = np.where(long, need, 0)
            given = np.where(long, np.clip(budget - (asked.cumsum() - asked), 0, need), 1)
            stop, whole = start + given, given == need
            first = first.copy()
            for row in np.flatnonzero(long & (given > 0)).tolist():
                self.write(row)  # after new weights the reply itself is read again
                if given[row] == 1:
                    first[row] = self.requests[row].ids[start[row]]
            at = np.flatnonzero(given)
        batch = Batch(
            start=start[at],
            stop=stop[at],
            offset=self["offset"][at],
            size=self["size"][at],
            first=first[at],
            last=whole[at],
            slots=[_slot(self.requests[row]) for row in at.tolist()] if slots or prompts else [],
        )
        return batch, at

    def note(self, at: Ints, tokens: Ints, logprobs: NDArray[np.float64]) -> Bools:
        """Give the rows a token each; which of them have reached one of their stop ids."""
        ints = self._ints
        noted, strip = ints[_NOTED, at], ints[_STRIP, at]
        self._tokens[strip, noted] = tokens
        self._logprobs[strip, noted] = logprobs
        ints[_NOTED, at] = noted + 1
        ints[_AT["length"], at] += 1
        ints[_AT["drawn"], at] += 1
        ints[_AT["last"], at] = tokens
        for row in at[noted + 1 == STRIP].tolist():
            self.write(row)
        reached: Bools = (self._stops[at] == tokens[:, None]).any(1)
        return reached

    def _ensure(self, rows: int, stops: int) -> None:
        have = self._ints.shape[1]
        if rows > have:
            self._ints = _padded(self._ints, (len(FIELDS), 2 * have), 0)
            self._settings = _padded(self._settings, (NUMBERS, 2 * have), 0)
            self._tokens = _padded(self._tokens, (2 * have, STRIP), 0)
            self._logprobs = _padded(self._logprobs, (2 * have, STRIP), 0)
            self._free.extend(range(2 * have - 1, have - 1, -1))
        have, wide = self._stops.shape
        if rows > have or stops > wide:
            self._stops = _padded(self._stops, (max(have, self._ints.shape[1]), max(wide, stops)), -1)


_AT = {name: at for at, name in enumerate(FIELDS)}
_CACHED, _NOTED, _STRIP = _AT["cached"], _AT["noted"], _AT["strip"]


def _slot(request: Request) -> Any:
    return request.slot


def _padded(array: Any, shape: tuple[int, int], fill: int) -> Any:
    wider = np.full(shape, fill, array.dtype)
    wider[: array.shape[0], : array.shape[1]] = array
    return wider
