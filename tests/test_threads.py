"""Test calls in daemon threads: limits, abandoned calls and attempts to end the process."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from palestra.concurrency import run_sync
from palestra.errors import EnvFailed
from palestra.interrupt import raise_in_thread
from palestra.threads import MAX_THREADS, DaemonPool, call_with_timeout, run_in_thread


async def _abandoned(pool: DaemonPool, function: Callable[[], object]) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await pool.run(function)


def test_calls_return_and_raise() -> None:
    variable = ContextVar("variable", default="unset")

    async def calls() -> None:
        variable.set("set")
        assert await run_in_thread(variable.get) == "set"
        assert await run_in_thread(int, "f", base=16) == 15
        assert await run_in_thread(threading.current_thread) is not threading.current_thread()
        with pytest.raises(ValueError, match="invalid literal"):
            await run_in_thread(int, "x")
        with pytest.raises(RuntimeError, match="StopIteration"):
            await run_in_thread(next, iter(()))

    asyncio.run(calls())


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt()])
def test_an_attempt_to_end_the_process_is_raised_in_the_caller(error: BaseException) -> None:
    def end() -> None:
        raise error

    async def call() -> None:
        with pytest.raises(SystemExit):
            await run_in_thread(end)

    asyncio.run(call())
    with pytest.raises(EnvFailed, match="step tried to end the process"):
        call_with_timeout("step", end, 60)


def test_the_number_of_concurrent_calls_is_limited() -> None:
    running: list[int] = []
    most: list[int] = []
    full = threading.Barrier(3)

    def call() -> None:
        running.append(1)
        full.wait(60)  # passes only with three calls at a time
        most.append(len(running))
        full.wait(60)
        running.pop()

    async def calls() -> None:
        pool = DaemonPool(3)
        await asyncio.gather(*(pool.run(call) for _ in range(12)))

    asyncio.run(calls())
    assert max(most) == 3


def test_calls_that_hang_do_not_block_other_calls_or_the_exit() -> None:
    forever = threading.Event()
    before = set(threading.enumerate())

    async def calls() -> list[int]:
        pool = DaemonPool(4)
        await asyncio.gather(*(_abandoned(pool, forever.wait) for _ in range(8)))
        return [await pool.run(abs, -number) for number in range(8)]

    try:
        assert asyncio.run(calls()) == list(range(8))
        hung = [thread for thread in set(threading.enumerate()) - before if thread.name == "palestra-call"]
        assert len(hung) >= 4
        assert all(thread.daemon for thread in hung)
    finally:
        forever.set()


def test_python_code_in_an_abandoned_call_is_ended() -> None:
    threads: list[threading.Thread] = []

    def spin() -> None:
        threads.append(threading.current_thread())
        while True:
            pass

    async def cancel() -> None:
        call = asyncio.create_task(DaemonPool(1).run(spin))
        while not threads:
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(cancel())
    threads[0].join(60)
    assert not threads[0].is_alive()


def test_a_canceled_call_that_has_not_started_never_runs() -> None:
    started, release = threading.Event(), threading.Event()
    ran: list[int] = []

    def wait() -> None:
        started.set()
        release.wait(60)

    async def calls() -> None:
        pool = DaemonPool(1)
        first = asyncio.create_task(pool.run(wait))
        second = asyncio.create_task(pool.run(ran.append, 1))
        while not started.is_set():
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        release.set()
        await first
        assert await pool.run(abs, -1) == 1

    asyncio.run(calls())
    assert ran == []


def test_limits() -> None:
    assert MAX_THREADS >= 5
    assert call_with_timeout("step", abs, None, -3) == 3
    with pytest.raises(ZeroDivisionError):
        call_with_timeout("step", divmod, 60, 1, 0)
    with pytest.raises(EnvFailed, match=r"step took longer than 0\.01 seconds"):
        call_with_timeout("step", threading.Event().wait, 0.01)


def test_the_executor_of_to_thread_does_not_block_the_end_of_its_loop() -> None:
    forever = threading.Event()

    async def calls() -> int:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await asyncio.to_thread(forever.wait)
        with pytest.raises(ValueError, match="invalid literal"):
            await asyncio.to_thread(int, "x")
        return await asyncio.to_thread(int, "7")

    try:
        assert run_sync(calls()) == 7  # asyncio.run would wait for the first call
    finally:
        forever.set()


def test_a_blocked_thread_with_an_exception_does_not_stop_profiled_threads() -> None:
    release = threading.Event()
    raised = []

    def block() -> None:
        try:
            release.wait()
        except SystemExit as err:
            raised.append(err)

    def profiled() -> None:
        sys.setprofile(lambda *_: None)
        str.upper("x")
        max([1, 2], key=lambda value: value)
        sys.setprofile(None)

    blocked = threading.Thread(target=block, daemon=True)
    blocked.start()
    assert blocked.ident is not None
    raise_in_thread(blocked.ident, SystemExit)
    other = threading.Thread(target=profiled, daemon=True)
    other.start()
    other.join(60)
    assert not other.is_alive()
    release.set()
    blocked.join(60)
    assert len(raised) == 1
