"""Run coroutines from synchronous code, even if an event loop is already running."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import Any, TypeVar

from palestra.threads import DaemonExecutor

T = TypeVar("T")


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run `coroutine` until it completes and return its result.

    If no event loop is running, this is `asyncio.run`, except that it does not wait at the end for calls of
    `asyncio.to_thread` that hang. Otherwise, for example in a notebook cell, the coroutine runs in the event loop of
    another thread while the calling thread waits. Ctrl-C cancels the coroutine, waits for its cleanup
    and raises KeyboardInterrupt. A second Ctrl-C raises KeyboardInterrupt without waiting.
    """
    try:
        asyncio.get_running_loop()
        nested = True
    except RuntimeError:  # the coroutine is not run here, or tracebacks of its errors would contain this one
        nested = False
    return _run_in_thread(coroutine) if nested else asyncio.run(_with_daemon_threads(coroutine))


async def _with_daemon_threads(coroutine: Coroutine[Any, Any, T]) -> T:
    asyncio.get_running_loop().set_default_executor(DaemonExecutor())
    return await coroutine


def _run_in_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    outcome: Future[T] = Future()
    tasks: list[asyncio.Task[Any]] = []

    async def main() -> T:
        task = asyncio.current_task()
        if task is not None:
            tasks.append(task)
        return await coroutine

    def work() -> None:
        try:
            outcome.set_result(asyncio.run(_with_daemon_threads(main())))
        except BaseException as err:  # noqa: BLE001  # re-raised in the calling thread
            outcome.set_exception(err)

    threading.Thread(target=copy_context().run, args=(work,), name="palestra-run-sync", daemon=True).start()
    try:
        # Thread.join is not used, because in Python 3.11 an interrupted join marks a running thread as finished.
        return outcome.result()
    except KeyboardInterrupt:
        if tasks and not outcome.done():
            tasks[0].get_loop().call_soon_threadsafe(tasks[0].cancel)
        wait([outcome])
        raise
