"""Turn a stream of requests into steps of the model: who runs, what is fed, what is sampled, who is done.

Everything here happens in the engine's one worker thread. A running request is a list of ids, some of which have their
keys and values in its slot; each step feeds it the others and, where none is left over, samples the next. Decoding (one
id to feed), reading a prompt, going on with a conversation and starting over after new weights are all the same thing.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from palestra.engines.base import Finish, Sampling
from palestra.engines.cache import Arena
from palestra.engines.forward import Feed, Runner
from palestra.engines.regions import block_for
from palestra.engines.sampling import is_plain, sample, settings
from palestra.engines.slots import BLOCK, Slot, Slots, common, marks_of
from palestra.engines.stops import StopStrings
from palestra.errors import EngineFailed

HEADROOM = 64  # tokens of reply a new block has room for, so that it need not move at once


class Request:
    """A reply in the making."""

    __slots__ = (
        "abandoned", "deliver", "error", "finish", "ids", "key", "limit", "logprobs", "marks", "plain",
        "prompt", "sampling", "slot", "stop_ids", "uniform", "version", "watch",
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
        self.ids = ids  # the prompt, then what was sampled
        self.prompt = len(ids)
        self.sampling = sampling
        self.key = key
        self.limit = limit  # of ids
        self.stop_ids = stop_ids
        self.deliver = deliver  # whatever the owner needs to hand the outcome back
        self.watch = watch
        self.plain = is_plain(sampling)
        # A generator of its own, so that neither the other rows nor their number change what is drawn for this one.
        self.uniform: Callable[[], float] | None = (
            None if sampling.seed is None else random.Random(sampling.seed).random
        )
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
        self._rows = rows
        self._budget = budget
        self._random = random.Random()
        self._slots = Slots()
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []  # those admitted first come first

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._running

    def add(self, requests: Iterable[Request]) -> None:
        self._waiting.extend(requests)

    def step(self, version: int) -> list[Request]:
        """Feed the model once and give what is done. Where the model breaks, all that ran are done, with an error."""
        self._drop_abandoned()
        try:
            self._admit(version)
            feeds, rows = self._feeds()
            return self._run(feeds, rows) if feeds else []
        except EngineFailed as err:
            return self._fail(str(err))
        except Exception as err:  # noqa: BLE001  whatever a model raises must not end the worker
            return self._fail(f"the model failed: {type(err).__name__}: {err}")

    def invalidate(self) -> None:
        """The weights changed: what is cached is void, and running requests are read anew."""
        for slot in self._slots.idle():
            self._free(slot)
        for request in self._running:
            _slot(request).cached = 0

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
        if any(request.abandoned for request in self._running):
            for request in self._running:
                if request.abandoned:
                    self._release(request)
            self._running = [request for request in self._running if not request.abandoned]

    def _admit(self, version: int) -> None:
        """Let waiting requests run while there are rows and room; first come, first served, as far as that goes."""
        held: list[Request] = []
        try:
            while self._waiting and len(self._running) < self._rows:
                request = self._waiting.popleft()
                if request.abandoned:
                    continue
                placed = self._place(request)
                if placed is None:
                    held.append(request)
                elif placed:
                    if request.version is None:
                        request.version = version
                    self._running.append(request)
                else:
                    self._waiting.appendleft(request)
                    break
        except Exception:
            self._running.append(request)  # it fails with those that run, instead of being lost
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
            if not self._running:
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

    def _make_room(self, request: Request) -> None:
        """A block that holds all ids, for a request whose reply has outgrown its own."""
        slot = _slot(request)
        size = block_for(min(len(request.ids) + HEADROOM, request.limit))
        while slot.size < size and self.arena.regions.widen(slot.offset, slot.size):
            slot.size *= 2
        while slot.size < size:
            offset = self._take(size)
            if offset is not None:
                self.arena.copy(slot.offset, offset, slot.cached)
                self.arena.regions.give(slot.offset, slot.size)
                slot.offset, slot.size = offset, size
            elif self._running[-1] is not request:
                self._preempt(self._running[-1])
            elif len(self._running) > 1:
                self._preempt(request)
                return
            else:  # alone, and its own block is in the way
                self._free(slot)
                offset = self._take(size)
                if offset is None:
                    raise EngineFailed(f"the cache has no room for {len(request.ids)} tokens; raise cache_gb")
                request.slot = slot = Slot(request.ids, request.key, offset, size)
                self._slots.add(slot, [])

    def _preempt(self, request: Request) -> None:
        """The youngest gives its slot up and starts over when there is room, so that the oldest always go on."""
        self._running.remove(request)
        self._free(_slot(request))
        request.slot = request.marks = None
        self._waiting.appendleft(request)
        self.stats.preempted += 1

    def _release(self, request: Request) -> None:
        slot = _slot(request)
        request.slot = None
        if not self._slots.rest(slot):
            self.arena.regions.give(slot.offset, slot.size)

    def _free(self, slot: Slot) -> None:
        self._slots.remove(slot)
        self.arena.regions.give(slot.offset, slot.size)

    # What is fed, and what comes of it.

    def _feeds(self) -> tuple[list[Feed], list[Request]]:
        """What the model reads next, and the requests that get a token from it."""
        for request in self._running[:]:
            slot = request.slot
            if slot is not None and slot.size < len(request.ids):
                self._make_room(request)
        budget = self._budget
        feeds = []
        rows = []
        for request in self._running:
            slot = _slot(request)
            start, stop, whole = slot.cached, len(request.ids), True
            if stop - start > 1:
                if not budget:
                    continue
                whole = stop - start <= budget
                stop = stop if whole else start + budget
                budget -= stop - start
            feeds.append(Feed(slot, start, stop, whole))
            if whole:
                rows.append(request)
        return feeds, rows

    def _run(self, feeds: list[Feed], rows: list[Request]) -> list[Request]:
        logits = self.runner.forward(feeds)
        found = self._sample(rows, logits) if rows else ([], [])
        for feed in feeds:
            feed.slot.cached = feed.stop
        self.stats.steps += 1
        self.stats.sampled += len(rows)
        self.stats.fed += sum(feed.stop - feed.start for feed in feeds)
        return self._append(rows, *found)

    def _sample(self, rows: list[Request], logits: Tensor) -> tuple[list[int], list[float]]:
        draw = self._random.random
        uniforms = torch.tensor([(request.uniform or draw)() for request in rows], dtype=torch.float64)
        by = None
        if not all(request.plain for request in rows):
            by = settings([request.sampling for request in rows], logits.shape[-1], logits.device)
        ids, logprobs = sample(logits, uniforms.to(logits.device, non_blocking=True), by)
        return ids.tolist(), logprobs.tolist()  # the one place where a step waits for the device

    def _append(self, rows: list[Request], picked: list[int], logprobs: list[float]) -> list[Request]:
        done = []
        for request, token, logprob in zip(rows, picked, logprobs, strict=True):
            if logprob != logprob:
                request.error = "the model's logits are not finite; have its weights diverged?"
                done.append(request)
                continue
            ids = request.ids
            ids.append(token)
            request.logprobs.append(logprob)
            if token in request.stop_ids or (request.watch is not None and request.watch.reached(ids, request.prompt)):
                request.finish = "stop"
            elif len(ids) >= request.limit:
                request.finish = "length"
            else:
                continue
            done.append(request)
        if done:
            gone = set(done)
            self._running = [request for request in self._running if request not in gone]
            for request in done:
                if request.error is not None:
                    slot = _slot(request)
                    self.arena.wipe(slot.offset, slot.size)
                    slot.cached = 0
                self._release(request)
        return done

    def _fail(self, reason: str) -> list[Request]:
        """All that ran are done; the cache starts afresh, for nobody knows what state the failure left it in."""
        ended, self._running = self._running, []
        for request in ended:
            request.slot = None
            request.error = reason
        self._slots = Slots()
        try:
            self.arena.reset()
        except RuntimeError:  # the device itself is gone; every request will say so
            self.arena.clear()
        return ended


def _slot(request: Request) -> Slot:
    assert request.slot is not None, "a running request has a slot"  # noqa: S101
    return request.slot
