"""Turn a stream of requests into steps of the model: who runs, what is fed, what is sampled, who is done.

Everything here happens in the engine's one worker thread. A running request is a list of ids, some of which have their
keys and values in its slot; each step feeds it the others and, where none is left over, samples the next. Decoding (one
id to feed), reading a prompt, going on with a conversation and starting over after new weights are all the same thing.
"""

from __future__ import annotations

import random
from array import array
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from palestra.engines.base import Finish, Sampling
from palestra.engines.local.block_allocator import block_for
from palestra.engines.local.kv_cache import Arena
from palestra.engines.local.prefix_cache import BLOCK, Slot, Slots, common, marks_of
from palestra.engines.local.runner import Runner, send
from palestra.engines.local.running_batch import Rows
from palestra.engines.local.sampling import is_plain, sample, seed_of, settings, uniforms
from palestra.engines.stop_strings import StopStrings
from palestra.errors import EngineFailed

HEADROOM = 64  # tokens of reply a new block has room for, so that it need not move at once


class Request:
    """A reply in the making."""

    __slots__ = (
        "abandoned", "deliver", "error", "finish", "ids", "key", "limit", "logprobs", "marks", "plain",
        "prompt", "sampling", "seed", "slot", "stop_ids", "version", "watch",
    )  # fmt: skip

    def __init__(
        self,
        ids: list[int],
        sampling: Sampling,
        *,
        key: Hashable | None,
        limit: int,
        stop_ids: frozenset[int],
        deliver: Any,
        watch: StopStrings | None = None,
    ) -> None:
        self.ids = ids  # the prompt, then what was sampled (while it runs, the newest are in its row only)
        self.prompt = len(ids)
        self.sampling = sampling
        self.key = key
        self.limit = limit  # of ids
        self.stop_ids = stop_ids
        self.deliver = deliver  # whatever the owner needs to hand the outcome back
        self.watch = watch
        self.plain = is_plain(sampling)
        self.seed = random.getrandbits(64) - 2**63 if sampling.seed is None else seed_of(sampling.seed)
        self.logprobs: list[float] = []
        self.version: int | None = None  # of the weights that sampled the first token
        self.slot: Slot | None = None
        self.marks: list[int] | None = None
        self.finish: Finish | None = None
        self.error: str | None = None
        self.abandoned = False  # nobody waits for it any more


@dataclass(slots=True)
class Stats:
    """What an engine has done so far, in tokens where nothing else is said."""

    steps: int = 0
    sampled: int = 0
    fed: int = 0  # read by the model, those it had sampled itself included
    reused: int = 0  # of prompts, found in the conversation's own slot
    shared: int = 0  # of prompts, copied from another conversation's slot
    evicted: int = 0  # slots whose conversation may have come back
    preempted: int = 0  # requests that gave their slot up in mid-reply and started over


class Batcher:
    """See the module. `rows` requests run at once; a step reads at most about `budget` tokens of prompts."""

    def __init__(self, runner: Runner, arena: Arena, *, rows: int, budget: int) -> None:
        self.runner = runner
        self.arena = arena
        self.stats = Stats()
        self._most = rows
        self._budget = budget
        self._slots = Slots()
        self._waiting: deque[Request] = deque()
        self._rows = Rows()
        self._any_abandoned = False
        self._lost: list[Request] = []
        self._slots_know = False  # how much of a running request is cached: a slot is told when that is asked for

    @property
    def idle(self) -> bool:
        return not self._waiting and not len(self._rows)

    def add(self, requests: Iterable[Request]) -> None:
        self._waiting.extend(requests)

    @property
    def running(self) -> int:
        return len(self._rows)

    def abandon(self, request: Request) -> None:
        """Nobody waits for it any more; may be called from any thread."""
        request.abandoned = True
        self._any_abandoned = True

    def step(self, version: int) -> list[Request]:
        """Feed the model once and give what is done. Where the model breaks, all that ran are done, with an error."""
        self._drop_abandoned()
        try:
            self._admit(version)
            self._make_room_for_all()
            self.arena.settle()
            return self._run() if len(self._rows) else []
        except EngineFailed as err:
            return self._fail(str(err))
        except Exception as err:  # noqa: BLE001  whatever a model raises must not end the worker
            return self._fail(f"the model failed: {type(err).__name__}: {err}")

    def invalidate(self) -> None:
        """The weights changed: what is cached is void, and running requests are read anew."""
        for slot in self._slots.idle():
            self._free(slot)
        self._rows["cached"][:] = 0
        self._rows.write_cached()

    def forget(self, key: Hashable) -> None:
        slot = self._slots.forget(key)
        if slot is not None:
            self.arena.regions.give(slot.offset, slot.size)

    def abort(self, reason: str) -> list[Request]:
        """End everything, with an error."""
        ended = self._fail(reason) + list(self._waiting)
        self._waiting.clear()
        for request in ended:
            request.error = reason
        return ended

    # Who runs.

    def _drop_abandoned(self) -> None:
        if self._any_abandoned:
            self._any_abandoned = False  # before looking, so that none is missed
            self._end([at for at, request in enumerate(self._rows.requests) if request.abandoned])

    def _admit(self, version: int) -> None:
        """Let waiting requests run while there are rows and room; first come, first served, as far as that goes."""
        held: list[Request] = []
        self._slots_know = False
        try:
            while self._waiting and len(self._rows) < self._most:
                request = self._waiting.popleft()
                if request.abandoned:
                    continue
                placed = self._place(request)
                if placed is None:
                    held.append(request)
                elif placed:
                    if request.version is None:
                        request.version = version
                    self._rows.append(request)
                else:
                    self._waiting.appendleft(request)
                    break
        except Exception:
            self._lost.append(request)  # it fails with those that run, instead of being lost
            raise
        finally:
            self._waiting.extendleft(reversed(held))

    def _place(self, request: Request) -> bool | None:
        """Give a request a slot. False: there is no room. None: its beginning is being read for another right now."""
        ids = request.ids
        most = len(ids) - 1  # the last id is always fed: what follows it is wanted
        own = self._slots.of(request.key)
        if own is not None and not own.busy:
            self._slots.wake(own)
            own.cached = common(own.ids, ids, min(most, own.cached))
            own.ids = ids
            request.slot = own
            self.stats.reused += own.cached
            return True
        if not self._slots_know:
            self._rows.write_cached()
            self._slots_know = True
        if request.marks is None:
            request.marks = marks_of(ids)
        source = own or self._slots.like(request.marks)
        shared = 0
        if source is not None:
            length = common(source.ids, ids, most)
            shared = min(length, source.cached)
            if source.busy and length - shared >= BLOCK:
                return None  # the next step copies what this one computes
        size = block_for(min(len(ids) + HEADROOM, request.limit))
        offset = self._take(size, spared=source)
        if offset is None and source is not None and not source.busy:
            source = None  # there is no room beside it
            offset = self._take(size)
        if offset is None:
            if not len(self._rows):
                raise EngineFailed(f"the cache has no room for {len(ids)} tokens; raise cache_gb")
            return False
        slot = Slot(ids, request.key, offset, size)
        if source is not None and shared >= BLOCK:
            self.arena.copy(source.offset, offset, shared)
            slot.cached = shared
            self.stats.shared += shared
        self._slots.add(slot, request.marks)
        request.slot = slot
        return True

    def _take(self, size: int, spared: Slot | None = None) -> int | None:
        """A block, if need be of the slots that have been idle the longest."""
        offset = self.arena.take(size)
        while offset is None and (slot := self._slots.oldest(spared)) is not None:
            self._free(slot)
            self.stats.evicted += 1
            offset = self.arena.take(size)
        return offset

    def _make_room_for_all(self) -> None:
        rows = self._rows
        while (outgrown := np.flatnonzero(rows["size"] < rows["length"])).size:
            for at in outgrown.tolist():
                if at < len(rows):  # the others were preempted, from the end
                    self._make_room(at)

    def _make_room(self, at: int) -> None:
        """A block that holds all ids, for a row whose text has outgrown its own."""
        request = self._rows.requests[at]
        slot = _slot(request)
        self._rows.write(at)
        size = block_for(min(len(request.ids) + HEADROOM, request.limit))
        while slot.size < size and self.arena.regions.widen(slot.offset, slot.size):
            slot.size *= 2
        while slot.size < size:
            offset = self._take(size)
            if offset is not None:
                self.arena.copy(slot.offset, offset, slot.cached)
                self.arena.regions.give(slot.offset, slot.size)
                slot.offset, slot.size = offset, size
            elif at < len(self._rows) - 1:
                self._preempt(len(self._rows) - 1)
            elif len(self._rows) > 1:
                self._preempt(at)
                return
            else:  # alone, and its own block is in the way
                self._free(slot)
                offset = self._take(size)
                if offset is None:
                    raise EngineFailed(f"the cache has no room for {len(request.ids)} tokens; raise cache_gb")
                request.slot = slot = Slot(request.ids, request.key, offset, size)
                self._slots.add(slot, [])
        self._rows.moved(at)

    def _preempt(self, at: int) -> None:
        """The youngest gives its slot up and starts over when there is room, so that the oldest always go on."""
        request = self._rows.requests[at]
        self._rows.remove([at])
        self._free(_slot(request))
        request.slot = request.marks = None
        self._waiting.appendleft(request)
        self.stats.preempted += 1

    def _end(self, gone: list[int]) -> list[Request]:
        """Rows that are over: their requests, whose slots rest until the conversation comes back."""
        ended = [self._rows.requests[at] for at in gone]
        self._rows.remove(gone)
        for request in ended:
            slot = _slot(request)
            request.slot = None
            if not self._slots.rest(slot):
                self.arena.regions.give(slot.offset, slot.size)
        return ended

    def _free(self, slot: Slot) -> None:
        self._slots.remove(slot)
        self.arena.regions.give(slot.offset, slot.size)

    # What is fed, and what comes of it.

    def _run(self) -> list[Request]:
        rows, runner, stats = self._rows, self.runner, self.stats
        batch, at = rows.batch(self._budget, slots=runner.reads_slots)
        logits = runner.forward(batch)
        got = at[batch.last]
        tokens, logprobs = self._sample(got, logits) if got.size else (got, np.zeros(0))
        rows["cached"][at] = batch.stop
        stats.steps += 1
        stats.sampled += got.size
        stats.fed += int((batch.stop - batch.start).sum())
        return self._note(got, tokens, logprobs)

    def _sample(self, at: NDArray[np.int64], logits: Tensor) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        rows = self._rows
        chance = uniforms(rows["seed"][at], rows["drawn"][at])
        if rows["plain"][at].all():
            (drawn,), by = send(logits.device, chance), None
        else:
            numbers = rows.settings(at)
            drawn, there = send(logits.device, chance, numbers)
            by = settings(numbers, there, logits.shape[-1])
        ids, logprobs = sample(logits, drawn, by)
        both = torch.stack((ids.double(), logprobs.double())).cpu().numpy()  # the one place where a step waits
        return both[0].astype(np.int64), both[1]

    def _note(self, at: NDArray[np.int64], tokens: NDArray[np.int64], logprobs: NDArray[np.float64]) -> list[Request]:
        """Give rows their tokens; the requests that are done thereby."""
        rows = self._rows
        gone: list[int] = []
        broken = np.isnan(logprobs)
        if broken.any():
            gone = at[broken].tolist()
            for row in gone:
                request = rows.requests[row]
                request.error = "the model's logits are not finite; have its weights diverged?"
                slot = _slot(request)
                self.arena.wipe(slot.offset, slot.size)
                rows["cached"][row] = 0
            at, tokens, logprobs = at[~broken], tokens[~broken], logprobs[~broken]
        stopped = rows.note(at, tokens, logprobs)
        for place in np.flatnonzero(rows["watched"][at]).tolist():
            row = int(at[place])
            rows.write(row)
            request = rows.requests[row]
            if request.watch is not None and request.watch.reached(request.ids, request.prompt):
                stopped[place] = True
        full = rows["length"][at] >= rows["limit"][at]
        for place in np.flatnonzero(stopped | full).tolist():
            row = int(at[place])
            rows.requests[row].finish = "stop" if stopped[place] else "length"
            gone.append(row)
        return self._end(sorted(gone)) if gone else []

    def _fail(self, reason: str) -> list[Request]:
        """All that ran are done; the cache starts afresh, for nobody knows what state the failure left it in."""
        ended, self._lost = self._rows.requests + self._lost, []
        self._rows = Rows()
        for request in ended:
            request.slot = None
            request.error = reason
        self._slots = Slots()
        try:
            self.arena.reset()
        except RuntimeError:  # the device itself is gone; every request will say so
            self.arena.clear()
        return ended


def within(ids: list[int], vocabulary: int) -> bool:
    """Whether all ids are of the vocabulary; twice as fast as asking for the least and the greatest."""
    try:
        return int(np.frombuffer(array("I", ids), np.uintc).max()) < vocabulary
    except OverflowError:
        return False


def _slot(request: Request) -> Slot:
    assert request.slot is not None, "a running request has a slot"  # noqa: S101
    return request.slot
