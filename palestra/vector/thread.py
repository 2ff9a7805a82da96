"""ThreadBackend: envs in this process, carried by a executor of threads."""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic

from palestra.errors import BadValue, EnvFailed
from palestra.vector.backend import Backend
from palestra.workers.env_runner import EnvRunner, factory_name
from palestra.workers.executor import Ended, Executor, ExecutorThread
from palestra.workers.types import FRESH, STEP, Autoreset, Command, EnvFailure, Factory, Limits, Reply


class ThreadBackend(Backend):
    """A step that hangs is given up: its env is replaced, and its thread ends when Python can end it."""

    def __init__(
        self, factories: Sequence[Factory], roots: Sequence[int], autoreset: Autoreset, limits: Limits, threads: int
    ) -> None:
        if limits.memory is not None:
            raise BadValue("backend 'thread' cannot bound the memory of an env; use backend 'process'")
        self._limits = limits
        self._autoreset: Autoreset = autoreset
        self._began: dict[
            ExecutorThread, tuple[float, float | None]
        ] = {}  # when the running phase began, and its limit
        self._done: deque[Reply] = deque()
        self._news = threading.Condition()
        self._listener: tuple[AbstractEventLoop, Callable[[], None]] | None = None
        self._under_way = 0
        self._restarts = float(limits.restarts)
        self._here = threading.local()
        timed = limits.step_timeout is not None or limits.reset_timeout is not None
        self.tick = min(t for t in (limits.step_timeout, limits.reset_timeout, 1.0) if t) / 4 if timed else None
        self.runners = [self._slot(i, factory, roots[i]) for i, factory in enumerate(factories)]
        self._executor = Executor(self._run, self._flush, most=threads, name="palestra-vector")
        try:
            for runner in self.runners:
                runner.make()
        except BaseException:
            self.close()
            raise

    def _slot(self, index: int, factory: Factory, root: int) -> EnvRunner:
        if self.tick is None:
            return EnvRunner(index, factory, root, self._autoreset)
        return EnvRunner(index, factory, root, self._autoreset, phase=self._phase)

    def _phase(self, name: str) -> None:
        """Called by a runner in its thread's thread: the clock starts again."""
        thread = getattr(self._here, "thread", None)
        if thread is not None:
            if thread.abandoned:
                raise Ended
            limit = self._limits.step_timeout if name == "step" else self._limits.reset_timeout
            self._began[thread] = (monotonic(), limit)

    def _run(self, command: Command, thread: ExecutorThread) -> None:
        index, kind, payload = command
        if self.tick is not None:
            self._here.thread = thread
        reply = self.runners[index].run(kind, payload)
        if reply is None:
            return
        if self.tick is None:
            self._done.append(reply)
            return
        with self._news:
            self._began.pop(thread, None)
            if not thread.abandoned:  # else its failure was reported, and the index belongs to another env by now
                self._done.append(reply)

    def _flush(self) -> None:
        with self._news:
            self._news.notify_all()
            listener = self._listener
        if listener is not None:
            _tell(*listener)

    def submit(self, commands: Sequence[Command], whole: bool = False) -> None:
        self._under_way += len(commands)
        self._executor.submit(commands, whole)

    def collect(self, timeout: float | None) -> list[Reply]:
        end = None if timeout is None else monotonic() + timeout
        while not self._done and self._under_way:
            left = None if end is None else end - monotonic()
            if left is not None and left <= 0:
                break
            wait = left if self.tick is None else self.tick if left is None else min(left, self.tick)
            with self._news:
                if not self._done:
                    self._news.wait(wait)
            self._give_up_the_late()
        self._give_up_the_late()
        done = []
        while self._done:
            done.append(self._done.popleft())
        self._under_way -= len(done)
        self._restarts += len(done) / 100
        return done

    def _give_up_the_late(self) -> None:
        if not self._began:
            return
        now = monotonic()
        late = [(r, limit) for r, (began, limit) in list(self._began.items()) if limit and now - began > limit]
        for thread, limit in late:
            with self._news:  # so that it is either finished or given up, never both
                task = thread.task
                if self._began.pop(thread, None) is None or task is None:
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
                message=f"it took longer than {limit:g} s",
                seed=runner.seed,
                action=payload if kind == STEP else None,
            )
            self._executor.abandon(thread)
            self._restarts -= 1
            if self._restarts < 0:
                raise EnvFailed(f"steps hung too often, and no more than {self._limits.restarts} threads are given up")
            self.runners[index] = self._slot(index, runner.factory, runner.root)
            self._executor.submit([(index, FRESH, (runner.root, runner.episode, failure))])

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


def _tell(loop: AbstractEventLoop, callback: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:  # the loop was closed: nobody waits any more
        return
