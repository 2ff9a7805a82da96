"""Let a worker wait, briefly, for those who are about to ask, so that one step serves them all.

Where a step costs about as much for one row as for a thousand, steps should be few. What is more, Python runs one
thread at a time: a worker that starts many small computations while the event loop is busy slows both down.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from time import monotonic, sleep

SETTLED = 4  # rounds of the event loop without a new request, after which all that can act have acted
PATIENCE = 0.02  # seconds; a loop that is busy for longer without sending a request is busy with something else
PAUSE = 0.0005  # seconds between two looks whether stragglers have come
LOOKS = 4  # in vain, after which they are not waited for
AWAKE = 1.0  # seconds; who has not come back by then is doing something that takes long
SHARE = 0.125  # of all that may be in a step; fewer stragglers than this are not waited for


class Settling:
    """Who may still ask before the next step. Every method may be called from any thread; `wait` is the worker's."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stirred: set[asyncio.AbstractEventLoop] = set()  # loops where something has moved since the last step
        self._awake: dict[Hashable, float] = {}  # conversations that got their reply, and when; the oldest first
        self._asked = 0

    def asked(self, loop: asyncio.AbstractEventLoop, key: Hashable | None) -> None:
        """A request has come."""
        with self._lock:
            self._asked += 1
            self._stirred.add(loop)
            self._awake.pop(key, None)

    def answered(self, loop: asyncio.AbstractEventLoop, keys: list[Hashable]) -> None:
        """Requests of these conversations are over."""
        now = monotonic()
        with self._lock:
            self._stirred.add(loop)
            self._awake.update((key, now) for key in keys if key is not None)

    def forgotten(self, key: Hashable) -> None:
        with self._lock:
            self._awake.pop(key, None)

    def wait(self, running: Callable[[], int], unwanted: Callable[[], bool]) -> None:
        """Return when no more requests are to be expected soon, or as soon as the wait is `unwanted`.

        Where nothing has moved since the last time, that is at once. `running` says for how many the next step is.
        """
        with self._lock:
            stirred, self._stirred = self._stirred, set()
        for loop in stirred:
            self._quiet(loop, unwanted)
        vain = 0
        while stirred and vain < LOOKS and not unwanted() and self._late() > SHARE * running():
            before = self._asked
            sleep(PAUSE)
            vain = vain + 1 if self._asked == before else 0

    def _quiet(self, loop: asyncio.AbstractEventLoop, unwanted: Callable[[], bool]) -> None:
        """Wait until everybody in the loop waits for something."""
        probe = _Probe(loop, lambda: self._asked)
        try:
            loop.call_soon_threadsafe(probe.look)
        except RuntimeError:  # it is closed
            return
        before = -1
        while not probe.quiet.wait(PATIENCE) and not unwanted() and self._asked != before:
            before = self._asked
        probe.quiet.set()

    def _late(self) -> int:
        """How many conversations may ask again any moment."""
        past = monotonic() - AWAKE
        with self._lock:
            while self._awake:
                key = next(iter(self._awake))
                if self._awake[key] > past:
                    break
                del self._awake[key]
            return len(self._awake)


class _Probe:
    """Looks on, in an event loop, until rounds pass in which nobody asks."""

    def __init__(self, loop: asyncio.AbstractEventLoop, asked: Callable[[], int]) -> None:
        self.quiet = threading.Event()
        self._loop = loop
        self._asked = asked
        self._before = -1
        self._rounds = 0

    def look(self) -> None:
        now = self._asked()
        self._rounds = self._rounds + 1 if now == self._before else 0
        self._before = now
        if self._rounds >= SETTLED:
            self.quiet.set()
        elif not self.quiet.is_set():
            self._loop.call_soon(self.look)
