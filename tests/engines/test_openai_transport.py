"""Test OpenAIEngine's HTTP transport: retries, limits, cancellation, closing, and protection of the API key."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any, TypeVar

import pytest

from palestra.engines import Completion, Sampling, http_transport
from palestra.engines.openai import OpenAIEngine
from palestra.errors import BadValue, ContextFull, EngineFailed, ParsingFailed
from palestra.types import Message
from tests.engines.stub_server import Fault, Stub, delays, disconnects, disconnects_midway, rejects, responds_with

T = TypeVar("T")
HI: list[Message] = [{"role": "user", "content": "hi"}]
SHORT = Sampling(max_tokens=2)
CHAT = "/v1/chat/completions"
SLOW = delays(30)


@pytest.fixture
def server() -> Iterator[Stub]:
    with Stub("plain") as server:
        yield server


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the pauses between retries without waiting."""
    pauses: list[float] = []
    sleep = asyncio.sleep

    class Asyncio:
        def __getattr__(self, name: str) -> Any:
            return getattr(asyncio, name)

        async def sleep(self, seconds: float) -> None:
            pauses.append(seconds)
            await sleep(0)

    monkeypatch.setattr(http_transport, "asyncio", Asyncio())
    return pauses


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def chat(server: Stub, **options: Any) -> Completion:
    return run(OpenAIEngine(server.url, **{"backoff": 0.001} | options).chat(HI, SHORT))


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    assert condition()


@pytest.mark.parametrize(
    "fault",
    [disconnects, disconnects_midway, SLOW, *(rejects(status) for status in (408, 409, 429, 500, 502, 503, 504))],
    ids=["disconnects", "disconnects midway", "is slow", "408", "409", "429", "500", "502", "503", "504"],
)
def test_temporary_failures_are_retried(server: Stub, fault: Fault) -> None:
    server.faults[CHAT] = [fault, fault]
    engine = OpenAIEngine(server.url, retries=2, backoff=0.001, timeout=2 if fault is SLOW else 60)
    assert run(engine.chat(HI, SHORT)).text
    assert server.count(CHAT) == 3
    assert engine.retried == 2


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (rejects(503, "overloaded"), "POST .*/chat/completions failed after 3 attempts: 503 overloaded"),
        (disconnects, "failed after 3 attempts: ServerDisconnectedError"),
        (SLOW, "failed after 3 attempts: TimeoutError: no response within 0.5 s"),
    ],
)
def test_permanent_failures_raise_engine_failed(server: Stub, fault: Fault, problem: str) -> None:
    server.faults[CHAT] = [fault] * 3
    with pytest.raises(EngineFailed, match=problem):
        chat(server, retries=2, timeout=0.5 if fault is SLOW else 60)


def test_unreachable_server_raises() -> None:
    with Stub() as gone:
        url = gone.url
    with pytest.raises(EngineFailed, match="failed after 2 attempts: ClientConnectorError"):
        run(OpenAIEngine(url, retries=1, backoff=0.001).chat(HI, SHORT))


@pytest.mark.parametrize(
    ("fault", "error", "problem"),
    [
        (rejects(400, "bad stop"), BadValue, "returned 400: bad stop"),
        (rejects(401, "no key"), BadValue, "Check the API key"),
        (rejects(403, "not yours"), BadValue, "Check the API key"),
        (rejects(404, "no route"), BadValue, "usually ends in /v1"),
        (rejects(405, "not so"), BadValue, "usually ends in /v1"),
        (rejects(413, "huge"), ContextFull, "do not fit"),
        (rejects(422, "odd"), BadValue, "returned 422: odd"),
        (rejects(402, "pay"), EngineFailed, "returned 402: pay"),
        (rejects(501, "never"), EngineFailed, "returned 501: never"),
        (rejects(308, Location="http://elsewhere/v1"), BadValue, "308: redirect to http://elsewhere/v1"),
        (responds_with({"detail": [{"msg": "field required"}]}, 422), BadValue, "field required"),
        (responds_with({"object": "error", "message": "old style"}, 400), BadValue, "400: old style"),
        (responds_with("plain words", 400), BadValue, "400: plain words"),
        (responds_with("x" * 10_000, 400), BadValue, r"x{400,600}\.\.\.$"),
        (responds_with("{", 200), ParsingFailed, "a body that is not JSON"),
    ],
)
def test_rejected_requests_are_not_retried(server: Stub, fault: Fault, error: type[Exception], problem: str) -> None:
    server.faults[CHAT] = [fault]
    with pytest.raises(error, match=problem):
        chat(server)
    assert server.count(CHAT) == 1


def test_backoff_grows_exponentially_with_jitter(server: Stub, waits: list[float]) -> None:
    server.faults[CHAT] = [rejects(500)] * 8
    chat(server, retries=8, backoff=0.5)
    assert len(waits) == 8
    for attempt, pause in enumerate(waits):
        whole = min(30.0, 0.5 * 2**attempt)
        assert whole / 2 <= pause <= whole
    assert len({pause / min(30.0, 0.5 * 2**i) for i, pause in enumerate(waits)}) == 8


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [
        ("3", 3, 3),
        ("0.25", 0.25, 0.5),
        ("99999", 20, 20),  # limited by the timeout
        (lambda: formatdate(time.time() + 9, usegmt=True), 7, 9),
        (lambda: formatdate(time.time() - 60, usegmt=True), 0, 0.5),
        ("soon", 0, 0.5),
    ],
)
def test_retry_after_header_is_respected(
    server: Stub, waits: list[float], header: Any, low: float, high: float
) -> None:
    server.faults[CHAT] = [rejects(429, Retry_After=header() if callable(header) else header)]
    chat(server, backoff=0.5, timeout=20)
    assert low <= waits[0] <= high


def test_concurrency_limit(server: Stub) -> None:
    server.pause = 0.005
    engine = OpenAIEngine(server.url, concurrency=4)

    async def many() -> None:
        await asyncio.gather(*(engine.chat(HI, SHORT) for _ in range(40)))
        assert server.open_connections <= 4

    run(many())
    assert server.peak == 4


def test_timeout_excludes_waiting_for_a_connection(server: Stub) -> None:
    server.pause = 0.2
    engine = OpenAIEngine(server.url, concurrency=1, timeout=4, retries=0)

    async def many() -> list[Completion]:
        return await asyncio.gather(
            # Together, the requests take longer than the timeout.
            *(engine.chat(HI, SHORT) for _ in range(24))
        )

    assert len(run(many())) == 24


def test_connections_are_reused(server: Stub) -> None:
    engine = OpenAIEngine(server.url)

    async def several() -> None:
        for _ in range(5):
            await engine.chat(HI, SHORT)
        assert server.open_connections == 1

    run(several())


def test_cancelling_aborts_the_request(server: Stub) -> None:
    async def leave() -> None:
        async with OpenAIEngine(server.url, concurrency=1) as engine:
            server.pause = 30
            tasks = [asyncio.create_task(engine.chat(HI, SHORT)) for _ in range(2)]
            while not server.running:
                await asyncio.sleep(0.001)
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
            server.pause = 0
            await engine.chat(HI, SHORT)  # the canceled requests have released their connections

    run(leave())
    wait_until(lambda: server.aborted == 1)
    assert server.count(CHAT) == 2  # one of the canceled requests was never sent


def test_cancelling_during_backoff(server: Stub) -> None:
    server.faults[CHAT] = [rejects(500)]

    async def leave() -> None:
        engine = OpenAIEngine(server.url, backoff=30)
        task = asyncio.create_task(engine.chat(HI, SHORT))
        while not engine.retried:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(leave())


def test_close_and_reopen(server: Stub) -> None:
    async def use() -> None:
        engine = OpenAIEngine(server.url)
        await engine.aclose()  # no connection is open yet
        await engine.chat(HI, SHORT)
        await engine.aclose()
        await engine.aclose()
        wait_until(lambda: server.open_connections == 0)
        await engine.chat(HI, SHORT)  # opens a new connection

    run(use())
    wait_until(lambda: server.open_connections == 0)


def test_closing_fails_open_requests(server: Stub) -> None:
    async def use() -> None:
        engine = OpenAIEngine(server.url, backoff=0.001)
        await engine.ready()
        server.pause = 30
        task = asyncio.create_task(engine.chat(HI, SHORT))
        while not server.running:
            await asyncio.sleep(0.001)
        await engine.aclose()
        with pytest.raises(EngineFailed, match="was closed during POST"):
            await task

    run(use())


def test_engine_works_in_several_event_loops(server: Stub) -> None:
    engine = OpenAIEngine(server.url, concurrency=2)

    async def some() -> None:
        await asyncio.gather(*(engine.chat(HI, SHORT) for _ in range(5)))

    for _ in range(3):
        run(some())
    threads = [threading.Thread(target=run, args=(some(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.count(CHAT) == 30
    wait_until(lambda: server.open_connections == 0)


def test_no_resource_warnings(server: Stub) -> None:
    """Check that aiohttp and asyncio do not warn about closed loops, unreferenced engines, errors or canceled tasks."""
    code = f"""
import asyncio, gc
from palestra.engines import Sampling
from palestra.engines.openai import OpenAIEngine

HI = [{{"role": "user", "content": "hi"}}]
engine = OpenAIEngine({server.url!r}, retries=0)
for _ in range(3):
    asyncio.run(engine.chat(HI, Sampling(max_tokens=2)))

async def drop():
    for _ in range(3):
        await OpenAIEngine({server.url!r}).chat(HI, Sampling(max_tokens=2))
        gc.collect()

async def fail():
    await OpenAIEngine({server.url!r}, "none").chat(HI, Sampling(max_tokens=2))

async def leave():
    task = asyncio.create_task(engine.chat(HI, Sampling(max_tokens=200)))
    await asyncio.sleep(0.001)
    task.cancel()

asyncio.run(drop())
asyncio.run(leave())
try:
    asyncio.run(fail())
except ValueError:
    pass
del engine
gc.collect()
"""
    command = [sys.executable, "-W", "always", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    wait_until(lambda: server.open_connections == 0)


KEY = "sk-very-secret-0123456789"


def test_api_key_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    with Stub("plain", key=KEY) as server, caplog.at_level(logging.DEBUG):
        engine = OpenAIEngine(server.url, api_key=KEY, retries=1, backoff=0.001)
        assert run(engine.chat(HI, SHORT)).text
        assert server.requests[-1][2]["Authorization"] == f"Bearer {KEY}"
        shown = [repr(engine), str(engine), str(vars(engine)), repr(engine._transport)]
        for fault in (
            rejects(400, f"bad key {KEY}"),
            rejects(401, KEY),
            responds_with(f"<{KEY}>"),
            responds_with({"x": KEY}),
        ):
            server.faults[CHAT] = [fault]
            with pytest.raises((BadValue, ParsingFailed)) as caught:
                run(engine.chat(HI, SHORT))
            shown.append("".join(traceback.format_exception(caught.value)))
        server.faults[CHAT] = [rejects(500, f"crash {KEY}")] * 2
        with pytest.raises(EngineFailed, match="crash \\*\\*\\*") as failed:
            run(engine.chat(HI, SHORT))
        shown.append("".join(traceback.format_exception(failed.value)))
    assert KEY not in "".join(shown) + caplog.text


def test_wrong_api_key_raises() -> None:
    with Stub("plain", key=KEY) as server:
        with pytest.raises(
            BadValue, match="returned 401: Incorrect API key provided: Bearer \\*\\*\\*. Check the API key"
        ):
            chat(server, api_key="sk-wrong")
        assert [path for path, *_ in server.requests] == ["/v1/models"]


def test_sources_of_the_api_key(server: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sent() -> str | None:
        return server.requests[-1][2].get("Authorization")

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    chat(server)
    assert sent() is None
    monkeypatch.setenv("OPENAI_API_KEY", "from-env")
    chat(server)
    assert sent() == "Bearer from-env"
    file = tmp_path / "key"
    file.write_text("from-file\n")
    chat(server, api_key=file)
    assert sent() == "Bearer from-file"
    chat(server, api_key="")
    assert sent() is None
    with pytest.raises(BadValue, match="cannot read the API key file"):
        chat(server, api_key=tmp_path / "none")
    chat(server, headers={"X-Team": "red"})
    assert server.requests[-1][2]["X-Team"] == "red"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("localhost:8000", "base_url must be a URL such as http://"),
        ("ftp://host/v1", "base_url must be a URL such as http://"),
        ("http://", "base_url must be a URL such as http://"),
        ("http://user:secret@host/v1", "use api_key="),
        ("http://host/v1?key=secret", "use api_key="),
    ],
)
def test_invalid_urls_raise(url: str, problem: str) -> None:
    with pytest.raises(BadValue, match=problem) as caught:
        OpenAIEngine(url)
    assert "secret" not in str(caught.value)


def test_urls_are_completed() -> None:
    urls = ["http://host:8000", "http://host:8000/", "http://host:8000/v1/", "https://host/openai/v1"]
    completed = [OpenAIEngine(url).base_url for url in urls]
    assert completed == ["http://host:8000/v1"] * 3 + ["https://host/openai/v1"]


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"timeout": 0}, {"retries": -1}, {"backoff": -1}])
def test_invalid_options_raise(options: Any) -> None:
    with pytest.raises(BadValue, match="concurrency must be at least 1"):
        OpenAIEngine("http://host", **options)
