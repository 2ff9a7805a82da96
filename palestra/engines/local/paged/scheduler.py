"""Continuous batching with one step of look-ahead: a step is launched before the previous one's tokens are known.

The device feeds sampled tokens into the next step directly. The host receives them one step later, so a sequence that
has sampled a stop token runs for one further step, whose token is dropped. Everything here runs in the engine's single
worker thread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from palestra.engines.local.generation_request import GenerationRequest
from palestra.engines.local.paged.block_manager import BlockManager, Prefix, pages_for
from palestra.engines.local.paged.layout import PAGE
from palestra.engines.local.paged.runner import Flight, PagedRunner, StepInput
from palestra.engines.local.paged.sequences import PAGE_BYTES, Prefill, RunningSequence, state_rows, table_updates
from palestra.engines.local.paged.token_buffer import TokenBuffer
from palestra.engines.local.scheduler import EngineStats
from palestra.errors import EngineFailed

MAX_DEFERRED = 3  # maximum steps for which a few new prompts wait for more, because each prefill costs a whole pass
# Maximum seconds for which the device waits for expected requests. With a small model the host is the bottleneck, so
# fewer, larger steps are faster.
MAX_IDLE, MAX_IDLE_SMALL_MODEL = 0.001, 0.02
MAX_CONVERSATIONS = 32_768  # maximum number of idle conversations that keep their pages
FEW_PROMPTS = 16  # new prompts are few if there is less than one per this many decoding sequences


class _Launched(NamedTuple):
    flight: Flight
    slots: NDArray[np.int64]  # slot of each sampled token
    prefilled: int  # number of tokens that end a prefill; their slots may be listed again as decoding slots
    generations: NDArray[np.int64]  # a slot's generation changes when another sequence takes it


class PagedScheduler:
    """Runs up to `max_running` requests at once; a step reads at most `prefill_budget` prompt tokens."""

    def __init__(self, runner: PagedRunner, *, max_running: int, prefill_budget: int) -> None:
        self.runner = runner
        self.blocks = BlockManager(runner.memory.pages)
        self.stats = EngineStats()
        self._prefill_budget = prefill_budget
        self._waiting: deque[GenerationRequest] = deque()
        self._sequences: dict[int, RunningSequence] = {}  # sequences by slot, in order of admission
        self._prefilling: list[RunningSequence] = []
        self._free_slots = list(range(max_running - 1, -1, -1))
        self._tokens = TokenBuffer(max_running)
        # Number of tokens including those of launched steps; 0 if the slot does not decode.
        self._length = np.zeros(max_running, np.int64)
        self._max_length = np.zeros(max_running, np.int64)
        self._page_count = np.zeros(max_running, np.int64)
        self._new_page = np.zeros(max_running, np.int64)  # pages assigned to decoding sequences since the last step
        self._generation = np.zeros(max_running, np.int64)
        self._launched: _Launched | None = None
        self._finished: list[GenerationRequest] = []
        self._any_cancelled = False
        self._idle_since: float | None = None
        self._deferred = 0
        # Full pages of idle conversations, which keep them until they continue or memory is needed. Least recently used
        # conversations are first.
        self._conversations: dict[Hashable, Prefix] = {}

    @property
    def max_tokens(self) -> int:
        """Maximum length of one sequence."""
        return min(self.runner.max_pages, self.runner.memory.pages - 1) * PAGE

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._sequences or self._launched or self._finished)

    @property
    def in_flight(self) -> bool:
        """True if the tokens of a launched step are not known yet."""
        return self._launched is not None or bool(self._finished)

    @property
    def starving(self) -> bool:
        """True if the device has been idle for a while although requests are running."""
        if not self._sequences or (self._launched is not None and not self._launched.flight.done):
            self._idle_since = None
            return False
        if self._idle_since is None:
            self._idle_since = perf_counter()
        limit = MAX_IDLE_SMALL_MODEL if self.runner.small else MAX_IDLE
        return perf_counter() - self._idle_since > limit

    @property
    def running(self) -> int:
        return len(self._sequences)

    def add(self, requests: Iterable[GenerationRequest]) -> None:
        for request in requests:
            request.pack_reply()  # another scheduler may have sampled its beginning
            self._waiting.append(request)

    def cancel(self, request: GenerationRequest) -> None:
        """Drop a request before the next step. May be called from any thread."""
        request.cancelled = True
        self._any_cancelled = True

    def step(self, version: int) -> list[GenerationRequest]:
        """Launch a step, then wait for the previous one. Return finished requests. If the model raises, all fail."""
        try:
            self._drop_cancelled()
            launched = self._launch(version)
            self._collect()
            self._launched, self._idle_since = launched, None
        except EngineFailed as err:
            self._fail(str(err))
        except Exception as err:  # noqa: BLE001  the worker must survive whatever a model raises
            self._fail(f"the model failed: {type(err).__name__}: {err}")
        return self._take_finished()

    def drain(self) -> list[GenerationRequest]:
        """Wait for the launched step and return the requests that have finished."""
        try:
            self._collect()
        except Exception as err:  # noqa: BLE001
            self._fail(f"the model failed: {type(err).__name__}: {err}")
        return self._take_finished()

    def invalidate(self) -> None:
        """Discard everything computed with the previous weights; running requests are recomputed."""
        self._collect()
        sequences = list(self._sequences.values())
        self._remove(sequences, keep=False)
        for sequence in reversed(sequences):
            request = sequence.request
            if not request.reply_bytes:
                request.version = None
            self._waiting.appendleft(request)
        self._forget_all()

    def forget(self, key: Hashable) -> None:
        """Release a conversation's pages. They can be found until they are the least recently used ones."""
        prefix = self._conversations.pop(key, None)
        if prefix is not None:
            self.blocks.release(prefix.pages)

    def _forget_all(self) -> None:
        for key in list(self._conversations):
            self.forget(key)
        self.blocks.forget_all()

    def abort(self, reason: str) -> list[GenerationRequest]:
        """Fail and return all requests, running and waiting."""
        self._fail(reason)
        ended = self._take_finished() + list(self._waiting)
        self._waiting.clear()
        for request in ended:
            request.error = reason
        return ended

    def take_requests(self) -> list[GenerationRequest]:
        """Remove and return all unfinished requests, so that another scheduler can continue them."""
        self.invalidate()
        requests = list(self._waiting)
        self._waiting.clear()
        for request in requests:
            request.unpack_reply()
        return requests

    def release_memory(self) -> None:
        """Free the memory of the KV cache; it grows again when it is needed."""
        self.invalidate()
        self.runner.memory.release()

    @property
    def used_tokens(self) -> int:
        """Capacity of the pages that running sequences and idle conversations use."""
        return (self.blocks.pages - 1 - self.blocks.free_pages) * PAGE

    def close(self) -> None:
        self.runner.memory.close()

    # Admission and launch

    def _drop_cancelled(self) -> None:
        if self._any_cancelled:
            self._any_cancelled = False  # reset first, so that a concurrent `cancel` is not missed
            self._remove([each for each in self._sequences.values() if each.request.cancelled], keep=True)
            self._waiting = deque(request for request in self._waiting if not request.cancelled)

    def _launch(self, version: int) -> _Launched | None:
        self._grow_decoding()
        prefill = Prefill(self._prefill_budget)
        self._prefilling = [each for each in self._prefilling if not self._add_chunk(each, prefill)]
        started = self._admit(version, prefill)
        ending = [each.slot for each in prefill.sampling]
        self._length[ending] = [each.count + 1 for each in prefill.sampling]
        decoding = self._decoding_slots()  # includes the slots whose prefill ends in this step
        computed = self._prefill_budget - prefill.budget + len(decoding)
        if not computed:
            return None
        tables, states = table_updates(started, self.runner.max_pages), state_rows(prefill.sampling)
        step = StepInput(*tables, states, prefill.chunks(), decoding, self._new_page[decoding])
        self._new_page[:] = 0
        flight = self.runner.launch(step)
        self._length[decoding] += 1
        slots = np.concatenate((np.array(ending, np.int64), decoding))
        self.stats.steps += 1
        self.stats.computed += computed
        self.stats.evicted = self.blocks.evicted
        return _Launched(flight, slots, len(ending), self._generation[slots])

    def _admit(self, version: int, prefill: Prefill) -> list[RunningSequence]:
        """Start waiting requests in order of arrival while there is room, and return them."""
        started: list[RunningSequence] = []
        decoding = len(self._sequences) - len(self._prefilling)
        if self._waiting and len(self._waiting) < decoding // FEW_PROMPTS and self._deferred < MAX_DEFERRED:
            self._deferred += 1
            return started
        self._deferred = 0
        try:
            self._start_waiting(version, prefill, started)
        finally:
            if started:
                slots, requests = [each.slot for each in started], [each.request for each in started]
                self._max_length[slots] = [request.max_length for request in requests]
                self._page_count[slots] = [len(each.pages) for each in started]
                self._tokens.start(slots, requests, [each.count for each in started])
        return started

    def _start_waiting(self, version: int, prefill: Prefill, started: list[RunningSequence]) -> None:
        while self._waiting and self._free_slots and prefill.budget > 0:
            request = self._waiting[0]
            ids = request.prompt_bytes + request.reply_bytes
            count = len(ids) // 4
            prefix = None if request.key is None else self._conversations.pop(request.key, None)
            own = 0 if prefix is None else PAGE * len(prefix.pages)
            # The last token is always computed, because its logits are needed.
            pages, content = self.blocks.match(ids, (count - 1) // PAGE, prefix)
            new = self._allocate(pages_for(min(count + 1, request.max_length)) - len(pages))
            if new is None:
                self.blocks.release(pages)
                if self._sequences or self._launched is not None:
                    return
                request.error = f"the KV cache has no room for {count} tokens; raise kv_cache_gb"
                self._finished.append(self._waiting.popleft())
                continue
            sequence = RunningSequence(self._waiting.popleft(), self._free_slots.pop(), ids, pages, new, content)
            started.append(sequence)
            self._sequences[sequence.slot] = sequence
            own = min(own, sequence.computed)
            self.stats.reused += own
            self.stats.shared += sequence.computed - own
            if request.version is None:
                request.version = version
            if not self._add_chunk(sequence, prefill):
                self._prefilling.append(sequence)

    def _add_chunk(self, sequence: RunningSequence, prefill: Prefill) -> bool:
        """Prefill as much of a sequence as possible; return whether its prefill ends in this step.

        Its full pages are shared from now on.
        """
        ends = prefill.add(sequence)
        self._register(sequence, sequence.computed)
        return ends

    def _decoding_slots(self) -> NDArray[np.int64]:
        return np.flatnonzero((self._length > 0) & (self._length < self._max_length))

    def _grow_decoding(self) -> None:
        """Ensure that every decoding sequence has a page for its newest token, preempting others if necessary."""
        while True:
            slots = self._decoding_slots()
            outgrown = slots[(self._length[slots] - 1) // PAGE >= self._page_count[slots]]
            pages = self._allocate(len(outgrown))
            if pages is not None:
                for slot, page in zip(outgrown.tolist(), pages, strict=True):
                    self._sequences[slot].pages.append(page)
                self._new_page[outgrown] = pages  # the device writes these pages to its block tables
                self._page_count[outgrown] += 1
                return
            if self._launched is not None:
                self._collect()  # may finish requests; if not, their tokens must be known before they are preempted
            else:
                self._preempt()

    def _preempt(self) -> None:
        """Free the pages of the newest request, which is recomputed later."""
        sequence = next(reversed(self._sequences.values()))
        if len(self._sequences) == 1:
            length = self._tokens.length[sequence.slot]
            raise EngineFailed(f"the KV cache has no room for {length} tokens; raise kv_cache_gb")
        self._remove([sequence], keep=False)
        self._waiting.appendleft(sequence.request)
        self.stats.preempted += 1

    def _allocate(self, count: int) -> list[int] | None:
        """Allocate pages, if necessary those of idle conversations."""
        while (pages := self.blocks.allocate(count)) is None and self._conversations:
            self.forget(next(iter(self._conversations)))
        if pages and not self.runner.memory.grow(max(pages) + 1):
            self.blocks.release(pages)
            self.blocks.limit(self.runner.memory.mapped_pages)
            return self._allocate(count)
        return pages

    # Results

    def _collect(self) -> None:
        """Wait for the launched step, append its tokens, and finish requests."""
        if self._launched is None:
            return
        (flight, slots, prefilled, generations), self._launched = self._launched, None
        tokens, logprobs = flight.wait()
        for part in (slice(0, prefilled), slice(prefilled, None)):
            current = self._generation[slots[part]] == generations[part]
            self._append(slots[part][current], tokens[part][current], logprobs[part][current])

    def _append(self, slots: NDArray[np.int64], tokens: NDArray[np.int32], logprobs: NDArray[np.float32]) -> None:
        broken = np.isnan(logprobs)
        if broken.any():
            sequences = [self._sequences[slot] for slot in slots[broken].tolist()]
            for sequence in sequences:
                sequence.request.error = "the model's logits are not finite; its weights may have diverged"
            self._end(sequences, keep=False)
            slots, tokens, logprobs = slots[~broken], tokens[~broken], logprobs[~broken]
        self.stats.sampled += len(slots)
        stopped = self._tokens.append(slots, tokens, logprobs)
        for index in np.flatnonzero(self._tokens.has_stop_strings[slots]).tolist():
            request = self._tokens.flush(int(slots[index]))
            reply = memoryview(request.reply_bytes).cast("I")
            if request.stop_strings is not None and request.stop_strings.reached(reply, 0):
                stopped[index] = True
        full = self._tokens.length[slots] >= self._max_length[slots]
        ended = np.flatnonzero(stopped | full)
        if len(ended):
            sequences = [self._sequences[slot] for slot in slots[ended].tolist()]
            for sequence, by_stop in zip(sequences, stopped[ended].tolist(), strict=True):
                sequence.request.finish = "stop" if by_stop else "length"
            self._end(sequences, keep=True)

    def _end(self, sequences: Sequence[RunningSequence], *, keep: bool) -> None:
        self._remove(sequences, keep=keep)
        self._finished += [sequence.request for sequence in sequences]
        while len(self._conversations) > MAX_CONVERSATIONS:
            self.forget(next(iter(self._conversations)))

    def _remove(self, sequences: Sequence[RunningSequence], *, keep: bool) -> None:
        """Free the slots and pages of sequences. With `keep`, other sequences can still find their pages."""
        if not sequences:
            return
        slots = [sequence.slot for sequence in sequences]
        self._tokens.flush_all(slots)
        for sequence, length in zip(sequences, self._length[slots].tolist(), strict=True):
            if keep and length:
                sequence.ids = sequence.request.prompt_bytes + sequence.request.reply_bytes
                # The keys and values of the newest token are stored only if a further step has been launched.
                self._register(sequence, min(len(sequence.ids) // 4, length - 1))
                self._keep_conversation(sequence)
            self.blocks.release(sequence.pages)
            del self._sequences[sequence.slot]
        if self._prefilling:
            removed = set(slots)
            self._prefilling = [each for each in self._prefilling if each.slot not in removed]
        self._free_slots += slots
        self._length[slots] = self._page_count[slots] = self._new_page[slots] = 0
        self._generation[slots] += 1

    def _register(self, sequence: RunningSequence, tokens: int) -> None:
        """Make the full pages of a sequence's first `tokens` tokens available to other sequences."""
        registered, full = sequence.registered, tokens // PAGE
        if full > registered:
            ids = sequence.ids[PAGE_BYTES * registered : PAGE_BYTES * full]
            sequence.content = self.blocks.register(sequence.content, sequence.pages[registered:full], ids)
            sequence.registered = full

    def _keep_conversation(self, sequence: RunningSequence) -> None:
        """Pass the references to the full pages of a finished request to its conversation, if it has one."""
        request, full = sequence.request, sequence.registered
        if request.key is not None and request.finish is not None:
            self.forget(request.key)  # a concurrent request in the same conversation may have ended before
            ids, pages = sequence.ids[: PAGE_BYTES * full], sequence.pages[:full]
            self._conversations[request.key] = Prefix(ids, pages, sequence.content)
            sequence.pages = sequence.pages[full:]

    def _fail(self, reason: str) -> None:
        """Fail all running requests and forget the cache, whose content after an exception is undefined."""
        self._launched = None
        sequences = list(self._sequences.values())
        self._remove(sequences, keep=False)
        for sequence in sequences:
            sequence.request.error = reason
            self._finished.append(sequence.request)
        self._forget_all()

    def _take_finished(self) -> list[GenerationRequest]:
        finished, self._finished = self._finished, []
        return finished
