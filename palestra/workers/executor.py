"""Executor: threads that carry out commands. One while steps are quick, so that nothing is handed around; else more.

A thread takes commands one after another. When it is caught in a slow one, an idle thread takes over the rest: at once
where that env was slow the last time, otherwise after `PATIENCE` seconds without progress, which one idle thread, the
deputy, looks out for.
"""

from __future__ import annotations

import ctypes
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic, thread_time

from palestra.workers.types import Command

PATIENCE = 0.005  # seconds; a step that waits longer than that is slow
MOST_PATIENCE = 0.04  # of the deputy
GRACE = 1.0  # seconds that `close` gives running steps
HELD = 16  # results that may wait for the next flush while the thread goes on


class Ended(BaseException):
    """Raised inside a thread that was given up, to get it out of a loop."""


class ExecutorThread:
    """One thread of a executor and what it is at."""

    __slots__ = ("abandoned", "lane", "quick", "task", "thread")

    def __init__(self, lane: int) -> None:
        self.lane = lane  # a number up to the executor's `most`, its own while it lives
        self.task: Command | None = None
        self.quick = False  # at work, and not caught in a slow task
        self.abandoned = False  # its task hung; whatever comes of it is dropped
        self.thread: threading.Thread | None = None


class Executor:
    """Calls `run(command, thread)` for every command, `most` at a time; `flush()` when results should be told."""

    def __init__(
        self, run: Callable[[Command, ExecutorThread], None], flush: Callable[[], None], *, most: int, name: str
    ) -> None:
        self._run = run
        self._flush = flush
        self._name = name
        self._todo: deque[Command] = deque()
        self._turn = threading.Condition()
        self._threads_alive: set[ExecutorThread] = set()
        self._most = most
        self._working = 0  # runners at work, quick or not
        self._lanes = list(range(most, -1, -1))  # free ones: one for each at work, and one for the deputy
        self._slow: set[int] = set()  # envs whose last step waited for something
        self._busy: set[int] = set()  # envs whose steps are long, but found to be work
        self._quick = 0  # how many runners are
        self._waiting = 0  # threads that wait to be called
        self._deputy = False
        self._finished = 0  # only ever compared
        self._patience = PATIENCE  # grows while all goes well, since every look takes the interpreter's lock
        self._held = 0  # finished since the last flush
        self._most_held = HELD
        self._closing = False

    def submit(self, commands: Sequence[Command], whole: bool = False) -> None:
        """`whole`: whoever asks waits for all of them, so they may be told together."""
        with self._turn:
            self._most_held = max(HELD, len(commands)) if whole else HELD
            self._todo.extend(commands)
            self._call_somebody()

    def _call_somebody(self) -> None:
        """Under the lock: see that tasks have a thread, and the thread a deputy."""
        if not self._todo or self._closing:
            return
        wanted = (self._quick == 0) + (not self._deputy)
        if self._waiting:
            self._turn.notify(wanted)
        elif wanted and self._lanes:
            self._start()  # which calls the next one itself, where it is needed: quick tasks keep two threads

    def _start(self) -> None:
        thread = ExecutorThread(self._lanes.pop())
        self._threads_alive.add(thread)
        name = f"{self._name}-{thread.lane}"
        thread.thread = threading.Thread(target=self._live, args=(thread,), name=name, daemon=True)
        thread.thread.start()

    def _live(self, me: ExecutorThread) -> None:
        """A thread's life."""
        try:
            while self._await_turn(me):
                try:
                    self._work(me)
                finally:
                    with self._turn:
                        if not me.abandoned:  # else whoever gave it up has seen to that
                            self._working -= 1
                            self._count(me, False)
                            self._call_somebody()  # for what was submitted since
                if me.abandoned:
                    return
        except Ended:
            return
        finally:
            with self._turn:
                if me in self._threads_alive:
                    self._threads_alive.discard(me)
                    self._lanes.append(me.lane)

    def _await_turn(self, me: ExecutorThread) -> bool:
        """Wait until this thread has to run tasks; False: the executor is closing."""
        with self._turn:
            while not self._closing:
                if self._todo and self._quick == 0 and self._working < self._most:
                    self._working += 1
                    self._count(me, True)
                    self._call_somebody()  # a deputy
                    return True
                if (self._todo or self._held) and not self._deputy:
                    self._watch()
                else:
                    self._waiting += 1
                    self._turn.wait()
                    self._waiting -= 1
            return False

    def _count(self, thread: ExecutorThread, quick: bool) -> None:
        """Under the lock."""
        if thread.quick is not quick:
            thread.quick = quick
            self._quick += 1 if quick else -1

    def _watch(self) -> None:
        """As the deputy, under the lock: where nothing was finished for a while, those at work are caught."""
        self._deputy = True
        seen = self._finished
        self._turn.wait(self._patience)
        self._deputy = False
        if self._finished != seen:
            self._patience = min(2 * self._patience, MOST_PATIENCE)
        elif self._todo:
            self._patience = PATIENCE
            for thread in self._threads_alive:
                if thread.quick and thread.task is not None:
                    if thread.task[0] not in self._busy:
                        self._slow.add(thread.task[0])
                    self._count(thread, False)
        if self._held:
            self._turn.release()
            try:
                self._tell()
            finally:
                self._turn.acquire()

    def _tell(self) -> None:
        self._held = 0
        self._flush()

    def _work(self, me: ExecutorThread) -> None:
        """Run tasks until there are none, or until somebody else does."""
        todo, run, slow = self._todo, self._run, self._slow
        while not self._closing:
            try:
                me.task = task = todo.popleft()
            except IndexError:
                break
            known = bool(slow) and task[0] in slow
            if known:
                self._hand_over(me)
                worked = thread_time()
            began = monotonic()
            run(task, me)
            if me.abandoned:
                return
            took = monotonic() - began
            me.task = None
            self._finished += 1
            self._held += 1
            if known:
                waited = took - (thread_time() - worked)
                if waited < PATIENCE:
                    slow.discard(task[0])
                    if took > PATIENCE:  # it computed all the time: other threads would only be in its way
                        self._busy.add(task[0])
            elif took > PATIENCE and task[0] not in self._busy:
                slow.add(task[0])
            if not todo or self._held >= self._most_held:
                self._tell()
            if not me.quick and not self._back(me):
                return

    def _hand_over(self, me: ExecutorThread) -> None:
        """Before a task that will be slow: let somebody else go on with the others."""
        if self._held:
            self._tell()
        with self._turn:
            self._count(me, False)
            self._call_somebody()

    def _back(self, me: ExecutorThread) -> bool:
        """After a slow task: go on, unless somebody does already."""
        with self._turn:
            if self._quick > 0:
                return False
            self._count(me, True)
            return True

    def abandon(self, thread: ExecutorThread) -> None:
        """Give up a thread whose task hangs; another takes its place, and it ends as soon as Python lets it."""
        with self._turn:
            thread.abandoned = True
            self._working -= 1
            self._count(thread, False)
            self._lanes.append(thread.lane)
            self._threads_alive.discard(thread)
            self._call_somebody()
        _interrupt(thread.thread)

    def abandon_who_is_at(self, index: int) -> None:
        """Give up the thread that is at this env's task, if one is."""
        with self._turn:
            found = next((r for r in self._threads_alive if r.task is not None and r.task[0] == index), None)
        if found is not None:
            self.abandon(found)

    def forget(self, index: int) -> None:
        """An env is gone for good: what was learned of it is too."""
        self._slow.discard(index)
        self._busy.discard(index)

    def close(self) -> None:
        """End all threads; those in a task get a moment, then an exception at their next line of Python."""
        with self._turn:
            self._closing = True
            self._todo.clear()
            self._turn.notify_all()
            threads = [thread.thread for thread in self._threads_alive]
        end = monotonic() + GRACE
        for last in (False, True):
            for thread in threads:
                if thread is not None and thread is not threading.current_thread():
                    if last:
                        _interrupt(thread)
                    thread.join(max(0.0, end - monotonic()))
            end = monotonic() + GRACE / 4


def _interrupt(thread: threading.Thread | None) -> None:
    if thread is not None and thread.ident is not None and thread.is_alive():
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Ended))
