"""Test `run_sync` outside and inside a running event loop."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from palestra.concurrency import run_sync

SETTING: ContextVar[str] = ContextVar("SETTING", default="unset")


async def add(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


async def fail() -> None:
    await asyncio.sleep(0)
    raise LookupError("inside")


def in_a_loop(call: Any) -> Any:
    async def main() -> Any:
        return call()

    return asyncio.run(main())


def test_returns_the_result_with_and_without_a_running_loop() -> None:
    assert run_sync(add(2, 3)) == 5
    assert in_a_loop(lambda: run_sync(add(2, 3))) == 5


def test_raises_the_coroutines_exception_with_and_without_a_running_loop() -> None:
    with pytest.raises(LookupError, match="inside") as caught:
        run_sync(fail())
    assert caught.value.__context__ is None  # the traceback shows no other error
    with pytest.raises(LookupError, match="inside"):
        in_a_loop(lambda: run_sync(fail()))


def test_context_variables_reach_the_helper_thread() -> None:
    async def read() -> tuple[str, bool]:
        return SETTING.get(), threading.current_thread() is threading.main_thread()

    def call() -> tuple[str, bool]:
        SETTING.set("outer")
        return run_sync(read())

    assert in_a_loop(call) == ("outer", False)


@pytest.mark.parametrize("nested", [False, True])
def test_ctrl_c_cancels_the_coroutine_and_waits_for_its_cleanup(nested: bool) -> None:
    events: list[str] = []
    main_thread = threading.main_thread().ident

    async def wait() -> None:
        try:
            assert main_thread is not None
            asyncio.get_running_loop().call_later(0.05, signal.pthread_kill, main_thread, signal.SIGINT)
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            events.append("cleaned up")

    async def main() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # use the same handler as a notebook
        run_sync(wait())

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main()) if nested else run_sync(wait())
    assert events == ["cleaned up"]
