"""Call functions in daemon threads, so that a call that never returns cannot keep the process alive.

`asyncio.to_thread` uses threads that Python joins before it exits. A call that hangs would block the exit, and would
occupy one of the few threads of its event loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from palestra.errors import EnvFailed
from palestra.interrupt import raise_in_thread
from palestra.machine import usable_cores

T = TypeVar("T")
MAX_THREADS = min(32, usable_cores() + 4)  # maximum number of calls at a time per event loop, as in asyncio
IDLE_SECONDS = 2.0  # seconds after which an idle thread ends


async def run_in_thread(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Return `function(*args, **kwargs)`, called in a daemon thread of this event loop's pool."""
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None:
        pool = _pools[loop] = DaemonPool(MAX_THREADS)
    return await pool.run(function, *args, **kwargs)


def call_with_timeout(name: str, function: Callable[..., T], seconds: float | None, /, *args: Any) -> T:
    """Return `function(*args)`; raise EnvFailed if it takes longer than `seconds` or tries to end the process."""
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(function(*args))
        except BaseException as err:  # noqa: BLE001  # re-raised in the calling thread
            errors.append(err)

    if seconds is None:
        try:
            return function(*args)
        except SystemExit as err:
            errors.append(err)
    else:
        thread = threading.Thread(target=copy_context().run, args=(work,), name=f"palestra-{name}", daemon=True)
        thread.start()
        thread.join(seconds)
    if errors and isinstance(errors[0], (SystemExit, KeyboardInterrupt)):
        raise EnvFailed(f"{name} tried to end the process: {errors[0]!r}") from errors[0]
    if errors:
        raise errors[0]
    if not results:
        raise EnvFailed(f"{name} took longer than {seconds:g} seconds")
    return results[0]


class _Call:
    __slots__ = ("_token", "abandoned", "deliver", "function", "thread")

    def __init__(self, function: Callable[[], Any], deliver: Callable[[Any, BaseException | None], object]) -> None:
        self.function = function
        self.deliver = deliver  # called in the thread with the result and the exception
        self.thread: int | None = None  # id of the thread that runs the call
        self.abandoned = False
        self._token = [None]

    def settle(self) -> bool:
        """Return True to the first caller only: either the thread has finished the call, or the call is abandoned."""
        try:
            self._token.pop()
        except IndexError:
            return False
        return True

    def run(self) -> bool:
        """Call the function and deliver its result; return False if the call was abandoned."""
        result: Any = None
        error: BaseException | None = None
        try:
            result = self.function()
        except KeyboardInterrupt as err:
            error = SystemExit(repr(err))
        except StopIteration as err:
            error = RuntimeError(repr(err))  # a future does not accept a StopIteration
        except BaseException as err:  # noqa: BLE001  # raised in the awaiting task
            error = err
        if not self.settle():
            return False
        self.deliver(result, error)
        return True


class DaemonPool:
    """Runs up to `max_threads` calls at a time in daemon threads, which are started on demand.

    If the caller is canceled, for example by a timeout, its call is abandoned: it no longer counts, and SystemExit is
    raised in its thread, which ends Python code. A SystemExit or KeyboardInterrupt from a function is raised in the
    caller as SystemExit, because Ctrl-C never reaches these threads.
    """

    def __init__(self, max_threads: int) -> None:
        self._max_threads = max_threads
        self._changed = threading.Condition(threading.Lock())
        self._queue: deque[_Call] = deque()  # calls that wait for a thread
        self._ready: deque[_Call] = deque()  # calls that idle threads will take
        self._busy = 0  # number of threads with a call that is not abandoned
        self._idle = 0  # number of waiting threads minus the number of ready calls

    async def run(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
        """Return `function(*args, **kwargs)`, called in a thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def deliver(result: Any, error: BaseException | None) -> None:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(_resolve, future, result, error)

        call = self._submit(partial(copy_context().run, function, *args, **kwargs), deliver)
        try:
            return await future
        except asyncio.CancelledError:
            self._abandon(call)
            raise

    def _submit(self, function: Callable[[], Any], deliver: Callable[[Any, BaseException | None], object]) -> _Call:
        call = _Call(function, deliver)
        with self._changed:
            if self._busy < self._max_threads:
                self._start(call)
            else:
                self._queue.append(call)
        return call

    def _abandon(self, call: _Call) -> None:
        with self._changed:
            if not call.settle():
                return
            call.abandoned = True
            if call in self._queue:
                self._queue.remove(call)
                return
            self._busy -= 1
            if call.thread is not None:
                # The exception may be raised after the function has returned; in that case, it only ends the thread.
                raise_in_thread(call.thread, SystemExit)
            if self._queue:
                self._start(self._queue.popleft())

    def _start(self, call: _Call) -> None:
        """Pass a call to an idle thread, or to a new one. The caller holds the lock."""
        self._busy += 1
        if self._idle:
            self._idle -= 1
            self._ready.append(call)
            self._changed.notify()
        else:
            threading.Thread(target=self._main, args=(call,), name="palestra-call", daemon=True).start()

    def _main(self, call: _Call | None) -> None:
        ident = threading.get_ident()
        while call is not None:
            with self._changed:
                if call.abandoned:  # before it started
                    return
                call.thread = ident
            if not call.run():
                return
            with self._changed:
                call = self._queue.popleft() if self._queue else self._wait()

    def _wait(self) -> _Call | None:
        """Wait for the next call; return None if there is none for a while. The caller holds the lock."""
        self._busy -= 1
        self._idle += 1
        while not self._ready:
            if not self._changed.wait(IDLE_SECONDS) and not self._ready:
                self._idle -= 1
                return None
        return self._ready.popleft()


class DaemonExecutor(DaemonPool, ThreadPoolExecutor):
    """Default executor for an event loop, used by `asyncio.to_thread`. Neither the loop nor Python waits for its calls.

    It inherits from ThreadPoolExecutor only because asyncio requires that.
    """

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        ThreadPoolExecutor.__init__(self, max_threads)
        DaemonPool.__init__(self, max_threads)

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()

        def call() -> T | None:
            return function(*args, **kwargs) if future.set_running_or_notify_cancel() else None

        self._submit(call, partial(_resolve, future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Return immediately: the threads end with their calls or with the process."""


def _resolve(future: asyncio.Future[Any] | Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, DaemonPool] = WeakKeyDictionary()
os.register_at_fork(after_in_child=_pools.clear)  # threads do not survive a fork
