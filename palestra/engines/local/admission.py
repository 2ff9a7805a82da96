"""Delay a step briefly while further requests are expected, so that one step serves all of them.

On a GPU a step costs about as much for one sequence as for a thousand, so fewer, larger steps are faster. Python also
runs one thread at a time: if the worker launches many small kernels while the event loop is busy, both slow down.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from time import monotonic, sleep

QUIET_ROUNDS = 4  # event-loop iterations without a new request after which all tasks are assumed to be waiting
LOOP_TIMEOUT = 0.02  # maximum seconds to wait for an event loop, which may be busy with other work
LOOP_POLL_INTERVAL = 0.002  # seconds between checks whether the wait is canceled; each check interrupts the event loop
POLL_INTERVAL = 0.0005  # seconds between checks for new requests
MAX_IDLE_POLLS = 4  # maximum number of consecutive checks without a new request
RETURN_WINDOW = 1.0  # seconds after a reply within which the conversation is expected to send its next request
MIN_LATE_FRACTION = 0.125  # wait only if more requests than this fraction of the running batch are expected


class AdmissionGate:
    """Tracks which conversations are expected to send a request before the next step.

    Every method may be called from any thread; `wait` is called by the worker thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active_loops: set[asyncio.AbstractEventLoop] = set()  # loops with activity since the last step
        self._expected: dict[Hashable, float] = {}  # conversation -> time of its last reply, oldest first
        self._submitted = 0

    def request_submitted(self, loop: asyncio.AbstractEventLoop, key: Hashable | None) -> None:
        with self._lock:
            self._submitted += 1
            self._active_loops.add(loop)
            self._expected.pop(key, None)

    def requests_finished(self, loop: asyncio.AbstractEventLoop, keys: list[Hashable]) -> None:
        now = monotonic()
        with self._lock:
            self._active_loops.add(loop)
            self._expected.update((key, now) for key in keys if key is not None)

    def conversation_closed(self, key: Hashable) -> None:
        with self._lock:
            self._expected.pop(key, None)

    def wait(self, running: Callable[[], int], cancelled: Callable[[], bool]) -> None:
        """Wait until no further request is expected soon, or until `cancelled()` returns True.

        Returns immediately if nothing happened since the last call. `running` returns the size of the next batch.
        """
        with self._lock:
            loops, self._active_loops = self._active_loops, set()
        for loop in loops:
            self._wait_for_loop(loop, cancelled)
        idle_polls = 0
        while loops and idle_polls < MAX_IDLE_POLLS and not cancelled():
            if self._late() <= MIN_LATE_FRACTION * running():
                return
            before = self._submitted
            sleep(POLL_INTERVAL)
            idle_polls = idle_polls + 1 if self._submitted == before else 0

    def _wait_for_loop(self, loop: asyncio.AbstractEventLoop, cancelled: Callable[[], bool]) -> None:
        """Wait until all tasks in the event loop are blocked."""
        probe = _LoopProbe(loop, lambda: self._submitted)
        try:
            loop.call_soon_threadsafe(probe.check)
        except RuntimeError:  # the loop is closed
            return
        before, checked = -1, monotonic()
        while not probe.quiet.wait(LOOP_POLL_INTERVAL) and not cancelled():
            if monotonic() - checked > LOOP_TIMEOUT:
                if self._submitted == before:
                    break
                before, checked = self._submitted, monotonic()
        probe.quiet.set()

    def _late(self) -> int:
        """Return the number of conversations that are expected to send a request soon."""
        cutoff = monotonic() - RETURN_WINDOW
        with self._lock:
            while self._expected:
                key = next(iter(self._expected))
                if self._expected[key] > cutoff:
                    break
                del self._expected[key]
            return len(self._expected)


class _LoopProbe:
    """Event-loop callback that reschedules itself until QUIET_ROUNDS iterations pass without a new request."""

    def __init__(self, loop: asyncio.AbstractEventLoop, submitted: Callable[[], int]) -> None:
        self.quiet = threading.Event()
        self._loop = loop
        self._submitted = submitted
        self._before = -1
        self._rounds = 0

    def check(self) -> None:
        now = self._submitted()
        self._rounds = self._rounds + 1 if now == self._before else 0
        self._before = now
        if self._rounds >= QUIET_ROUNDS:
            self.quiet.set()
        elif not self.quiet.is_set():
            self._loop.call_soon(self.check)
