"""Vector backend that runs envs in threads in this process."""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic

from palestra.errors import BadValue, EnvFailed
from palestra.vector.backend import Backend
from palestra.workers.env_runner import EnvRunner, factory_name
from palestra.workers.executor import Abandoned, Executor, ExecutorThread
from palestra.workers.types import REPLACE, STEP, Autoreset, Command, EnvFailure, Factory, Limits, Reply


class ThreadBackend(Backend):
    """Runs envs in threads. If a call hangs, its env is replaced and its thread ends at the next Python instruction."""

    def __init__(
        self, factories: Sequence[Factory], roots: Sequence[int], autoreset: Autoreset, limits: Limits, threads: int
    ) -> None:
        if limits.memory is not None:
            raise BadValue("the 'thread' backend cannot limit an env's memory; use backend='process'")
        self._limits = limits
        self._autoreset: Autoreset = autoreset
        # Thread -> (start time, time limit) of its current phase.
        self._phases: dict[ExecutorThread, tuple[float, float | None]] = {}
        self._done: deque[Reply] = deque()
        self._replied = threading.Condition()
        self._listener: tuple[AbstractEventLoop, Callable[[], None]] | None = None
        self._in_flight = 0
        self._restarts = float(limits.restarts)
        self._local = threading.local()
        timed = limits.step_timeout is not None or limits.reset_timeout is not None
        self.tick = min(t for t in (limits.step_timeout, limits.reset_timeout, 1.0) if t) / 4 if timed else None
        self.runners = [self._runner(i, factory, roots[i]) for i, factory in enumerate(factories)]
        self._executor = Executor(self._run, self._flush, max_threads=threads, name="palestra-vector")
        try:
            for runner in self.runners:
                runner.make()
        except BaseException:
            self.close()
            raise

    def _runner(self, index: int, factory: Factory, root: int) -> EnvRunner:
        if self.tick is None:
            return EnvRunner(index, factory, root, self._autoreset)
        return EnvRunner(index, factory, root, self._autoreset, on_phase=self._start_phase)

    def _start_phase(self, name: str) -> None:
        """Restart the calling thread's timer for the phase `name`."""
        thread = getattr(self._local, "thread", None)
        if thread is not None:
            if thread.abandoned:
                raise Abandoned
            limit = self._limits.step_timeout if name == "step" else self._limits.reset_timeout
            self._phases[thread] = (monotonic(), limit)

    def _run(self, command: Command, thread: ExecutorThread) -> None:
        index, kind, payload = command
        if self.tick is not None:
            self._local.thread = thread
        reply = self.runners[index].run(kind, payload)
        if self.tick is None:
            self._done.append(reply)
            return
        with self._replied:
            self._phases.pop(thread, None)
            if not thread.abandoned:  # otherwise, `_abandon_late` has reported the failure and replaced the env
                self._done.append(reply)

    def _flush(self) -> None:
        with self._replied:
            self._replied.notify_all()
            listener = self._listener
        if listener is not None:
            loop, callback = listener
            try:
                loop.call_soon_threadsafe(callback)
            except RuntimeError:  # the loop is closed
                return

    def submit(self, commands: Sequence[Command], whole: bool = False) -> None:
        self._in_flight += len(commands)
        self._executor.submit(commands, whole)

    def collect(self, timeout: float | None) -> list[Reply]:
        end = None if timeout is None else monotonic() + timeout
        while not self._done and self._in_flight:
            left = None if end is None else end - monotonic()
            if left is not None and left <= 0:
                break
            wait = left if self.tick is None else self.tick if left is None else min(left, self.tick)
            with self._replied:
                if not self._done:
                    self._replied.wait(wait)
            self._abandon_late()
        self._abandon_late()
        replies = []
        while self._done:
            replies.append(self._done.popleft())
        self._in_flight -= len(replies)
        self._restarts += len(replies) / 100
        return replies

    def _abandon_late(self) -> None:
        """Abandon all threads that have exceeded their time limit, and replace their envs."""
        if not self._phases:
            return
        now = monotonic()
        late = [(t, limit) for t, (start, limit) in list(self._phases.items()) if limit and now - start > limit]
        for thread, limit in late:
            with self._replied:  # so that a command cannot finish and be abandoned at the same time
                task = thread.task
                if self._phases.pop(thread, None) is None or task is None:
                    continue
                thread.abandoned = True
                index, kind, payload = task
            runner = self.runners[index]
            failure = EnvFailure(
                index=index,
                env=factory_name(runner.factory),
                boundary="env",
                cause="deadline",
                kind="TimeoutError",
                message=f"the call took longer than {limit:g} s",
                seed=runner.seed,
                action=payload if kind == STEP else None,
            )
            self._executor.abandon(thread)
            self._restarts -= 1
            if self._restarts < 0:
                raise EnvFailed(f"more than {self._limits.restarts} calls exceeded their timeout (see max_restarts)")
            self.runners[index] = self._runner(index, runner.factory, runner.root)
            self._executor.submit([(index, REPLACE, (runner.root, runner.episode, failure))])

    def watch(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> Callable[[], None]:
        self._listener = (loop, callback)
        if self._done:
            loop.call_soon(callback)
        return self._unwatch

    def _unwatch(self) -> None:
        self._listener = None

    def close(self) -> None:
        if hasattr(self, "_executor"):
            self._executor.close()
        for runner in self.runners:
            runner.discard()
