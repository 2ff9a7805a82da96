"""Thread pool for env commands that uses one thread for quick commands and additional threads for slow ones.

A thread runs commands one after another. If a command is slow, another thread takes over the remaining commands. This
happens immediately if the previous command for the same env was slow, and otherwise after `SLOW` seconds without a
finished command. An idle thread, the watcher, checks whether commands finish.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic, thread_time

from palestra.interrupt import raise_in_thread
from palestra.workers.types import Command

SLOW = 0.005  # seconds after which a command counts as slow
MAX_WATCH = 0.04  # maximum seconds between two checks by the watcher
GRACE = 1.0  # maximum seconds that `close` waits for running commands
MAX_UNSENT = 16  # maximum number of replies that are not yet flushed


class Abandoned(BaseException):
    """Raised inside an abandoned thread to end its current command."""


class ExecutorThread:
    """Executor thread with its current command."""

    __slots__ = ("abandoned", "lane", "quick", "task", "thread")

    def __init__(self, lane: int) -> None:
        self.lane = lane  # number from 0 to `max_threads`, unique among running threads
        self.task: Command | None = None
        self.quick = False  # whether the thread is running commands and the current one is not slow
        self.abandoned = False  # whether the command hung, so that its result must be dropped
        self.thread: threading.Thread | None = None


class Executor:
    """Runs `run(command, thread)` for each command in up to `max_threads` threads, and `flush()` to send replies."""

    def __init__(
        self,
        run: Callable[[Command, ExecutorThread], None],
        flush: Callable[[], None],
        *,
        max_threads: int,
        name: str,
    ) -> None:
        self._run = run
        self._flush = flush
        self._name = name
        self._todo: deque[Command] = deque()
        self._turn = threading.Condition()
        self._threads: set[ExecutorThread] = set()
        self._max_threads = max_threads
        self._working = 0  # number of threads that are running commands, whether quick or slow
        # Free lanes. There is one lane per working thread and one for the watcher.
        self._lanes = list(range(max_threads, -1, -1))
        self._slow: set[int] = set()  # envs whose last command was slow because it was waiting
        self._busy: set[int] = set()  # envs whose last command was slow because it used the CPU
        self._quick = 0  # number of quick threads
        self._idle = 0  # number of threads waiting for work
        self._watching = False
        self._finished = 0  # number of finished commands, used to detect progress
        # Seconds between checks. The interval increases while commands finish, because every check takes the GIL.
        self._interval = SLOW
        self._unsent = 0  # number of commands finished since the last flush
        self._max_unsent = MAX_UNSENT
        self._closing = False

    def submit(self, commands: Sequence[Command], whole: bool = False) -> None:
        """Queue commands. If `whole` is True, the caller waits for all of them, so the replies may be sent together."""
        with self._turn:
            self._max_unsent = max(MAX_UNSENT, len(commands)) if whole else MAX_UNSENT
            self._todo.extend(commands)
            self._wake_thread()

    def _wake_thread(self) -> None:
        """Ensure that one thread runs the queued commands and another one is the watcher. The caller holds the lock."""
        if not self._todo or self._closing:
            return
        wanted = (self._quick == 0) + (not self._watching)
        if self._idle:
            self._turn.notify(wanted)
        elif wanted and self._lanes:
            self._start_thread()  # the new thread starts the watcher if there is none

    def _start_thread(self) -> None:
        thread = ExecutorThread(self._lanes.pop())
        self._threads.add(thread)
        name = f"{self._name}-{thread.lane}"
        thread.thread = threading.Thread(target=self._main, args=(thread,), name=name, daemon=True)
        thread.thread.start()

    def _main(self, current: ExecutorThread) -> None:
        try:
            while self._await_turn(current):
                try:
                    self._work(current)
                finally:
                    with self._turn:
                        if not current.abandoned:  # otherwise, `abandon` has already updated the counters
                            self._working -= 1
                            self._set_quick(current, False)
                            self._wake_thread()  # in case commands were submitted in the meantime
                if current.abandoned:
                    return
        except Abandoned:
            return
        finally:
            with self._turn:
                if current in self._threads:
                    self._threads.discard(current)
                    self._lanes.append(current.lane)

    def _await_turn(self, current: ExecutorThread) -> bool:
        """Wait until this thread should run commands. Return False if the executor is closing."""
        with self._turn:
            while not self._closing:
                if self._todo and self._quick == 0 and self._working < self._max_threads:
                    self._working += 1
                    self._set_quick(current, True)
                    self._wake_thread()  # starts the watcher
                    return True
                if (self._todo or self._unsent) and not self._watching:
                    self._watch()
                else:
                    self._idle += 1
                    self._turn.wait()
                    self._idle -= 1
            return False

    def _set_quick(self, thread: ExecutorThread, quick: bool) -> None:
        """Set a thread's `quick` flag and update the number of quick threads. The caller holds the lock."""
        if thread.quick is not quick:
            thread.quick = quick
            self._quick += 1 if quick else -1

    def _watch(self) -> None:
        """Wait for one interval. If no command finishes, mark the running ones as slow. The caller holds the lock."""
        self._watching = True
        finished = self._finished
        self._turn.wait(self._interval)
        self._watching = False
        if self._finished != finished:
            self._interval = min(2 * self._interval, MAX_WATCH)
        elif self._todo:
            self._interval = SLOW
            for thread in self._threads:
                if thread.quick and thread.task is not None:
                    if thread.task[0] not in self._busy:
                        self._slow.add(thread.task[0])
                    self._set_quick(thread, False)
        if self._unsent:
            self._turn.release()
            try:
                self._send()
            finally:
                self._turn.acquire()

    def _send(self) -> None:
        self._unsent = 0
        self._flush()

    def _work(self, current: ExecutorThread) -> None:
        """Run commands until none are left or another thread has taken over."""
        todo, run, slow = self._todo, self._run, self._slow
        while not self._closing:
            try:
                current.task = task = todo.popleft()
            except IndexError:
                break
            was_slow = bool(slow) and task[0] in slow
            if was_slow:
                self._hand_over(current)
                cpu_start = thread_time()
            start = monotonic()
            run(task, current)
            if current.abandoned:
                return
            elapsed = monotonic() - start
            current.task = None
            self._finished += 1
            self._unsent += 1
            if was_slow:
                waited = elapsed - (thread_time() - cpu_start)
                if waited < SLOW:
                    slow.discard(task[0])
                    if elapsed > SLOW:
                        # The command was using the CPU, so additional threads would only compete for the GIL.
                        self._busy.add(task[0])
            elif elapsed > SLOW and task[0] not in self._busy:
                slow.add(task[0])
            if not todo or self._unsent >= self._max_unsent:
                self._send()
            if not current.quick and not self._resume(current):
                return

    def _hand_over(self, current: ExecutorThread) -> None:
        """Let another thread run the remaining commands, because this thread is about to run a slow one."""
        if self._unsent:
            self._send()
        with self._turn:
            self._set_quick(current, False)
            self._wake_thread()

    def _resume(self, current: ExecutorThread) -> bool:
        """Return whether this thread should continue after a slow command, or another thread has already taken over."""
        with self._turn:
            if self._quick > 0:
                return False
            self._set_quick(current, True)
            return True

    def abandon(self, thread: ExecutorThread) -> None:
        """Abandon a thread whose command hangs. The thread ends at its next Python instruction."""
        with self._turn:
            thread.abandoned = True
            self._working -= 1
            self._set_quick(thread, False)
            self._lanes.append(thread.lane)
            self._threads.discard(thread)
            self._wake_thread()
        _interrupt(thread.thread)

    def abandon_env(self, index: int) -> None:
        """Abandon the thread that is running a command for this env, if there is one."""
        with self._turn:
            thread = next((t for t in self._threads if t.task is not None and t.task[0] == index), None)
        if thread is not None:
            self.abandon(thread)

    def forget(self, index: int) -> None:
        """Delete the statistics for an env that no longer exists."""
        self._slow.discard(index)
        self._busy.discard(index)

    def close(self) -> None:
        """End all threads. Commands that are still running after `GRACE` seconds are interrupted by an exception."""
        with self._turn:
            self._closing = True
            self._todo.clear()
            self._turn.notify_all()
            threads = [thread.thread for thread in self._threads]
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
        raise_in_thread(thread.ident, Abandoned)
