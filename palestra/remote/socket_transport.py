"""Line: one socket to one server, shared by all sessions of this process, kept open by a thread of its own.

What is asked while a message is being sent travels in the next one, all together. When the socket breaks it is opened
again, and whatever has no answer yet is asked again with the same id: the server carries nothing out twice.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from time import monotonic
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from palestra.errors import EnvFailed, PalestraError
from palestra.optional import require
from palestra.remote.errors import BUSY, NoAnswer, error_of
from palestra.remote.protocol import MSGPACK, Fault, Request, encoder

Done: TypeAlias = Callable[[dict[str, Any] | PalestraError], None]
LARGEST = 1 << 30  # bytes of a message that is taken
MOST_AT_ONCE = 1_024  # requests in one message
TICK = 0.25  # seconds between looks at the clock


class Heard(Struct, kw_only=True):
    """An answer as it comes."""

    id: str = ""
    status: int = 200
    result: dict[str, Any] | UnsetType = UNSET
    error: Fault | UnsetType = UNSET


_read = msgspec.msgpack.Decoder(list[Heard] | Heard).decode
_write = encoder(MSGPACK)


class Waiting:
    """A request that has no answer yet."""

    __slots__ = ("ask", "done", "patient", "until")

    def __init__(self, ask: Request, done: Done, timeout: float, patience: float) -> None:
        self.ask = ask
        self.done = done
        self.until = monotonic() + timeout
        self.patient = monotonic() + min(timeout, patience)  # with a server that is too busy


class Engine:
    """The thread and the socket. Everything but `ask` and `stop` happens in its loop."""

    def __init__(self, address: str, where: str, token: str | None, patience: float) -> None:
        self._address = address
        self._where = where
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._patience = patience
        self._lock = threading.Lock()
        self._outbox: list[Waiting] = []
        self._waiting: dict[str, Waiting] = {}
        self._names = count()
        self._prefix = f"{os.getpid():x}-{os.urandom(6).hex()}-"
        self._socket: Any = None
        self._opening: asyncio.Task[None] | None = None
        self._posting = False
        self._stopped = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="palestra-line", daemon=True)
        self._thread.start()

    def ask(self, ask: Request, done: Done, timeout: float) -> None:
        """From any thread; `done` is called in the loop's."""
        waiting = Waiting(ask, done, timeout, self._patience)
        with self._lock:
            if self._stopped:
                raise EnvFailed(f"the line to {self._where} is closed")
            ask.id = f"{self._prefix}{next(self._names):x}"
            first = not self._outbox
            self._outbox.append(waiting)
        if first:
            self._loop.call_soon_threadsafe(self._post)

    def stop(self) -> None:
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        with suppress(RuntimeError):  # the loop is gone
            self._loop.call_soon_threadsafe(self._end)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=2.0)

    def _end(self) -> None:
        async def end() -> None:
            if self._opening is not None:
                self._opening.cancel()
                await asyncio.gather(self._opening, return_exceptions=True)
            socket, self._socket = self._socket, None
            if socket is not None:
                with suppress(Exception):
                    async with asyncio.timeout(1.0):
                        await socket.close()
                socket.transport.abort()  # where the other side does not answer to that
                await asyncio.sleep(0.01)
            self._loop.stop()

        self._closing = self._loop.create_task(end())

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_later(TICK, self._look)
        try:
            self._loop.run_forever()
        finally:
            self._fail(NoAnswer(f"the line to {self._where} was closed"))
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.close()

    # In the loop.

    def _post(self) -> None:
        if self._socket is None:
            self._open()
        elif not self._posting:
            self._posting = True
            self._sending = self._loop.create_task(self._send_all(self._socket))

    async def _send_all(self, socket: Any) -> None:
        try:
            while socket is self._socket:
                with self._lock:
                    batch = self._outbox[:MOST_AT_ONCE]
                    del self._outbox[:MOST_AT_ONCE]
                if not batch:
                    return
                for waiting in batch:
                    self._waiting[waiting.ask.id] = waiting
                await socket.send(_write([waiting.ask for waiting in batch]))
        except Exception:  # noqa: BLE001  # the reader sees the end of the socket too, and opens another
            return
        finally:
            self._posting = False

    def _open(self) -> None:
        if self._opening is None or self._opening.done():
            self._opening = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        """Open the socket, however often that takes within our patience, and ask again what has no answer."""
        client = require("websockets.asyncio.client", extra="serve")
        exceptions = require("websockets.exceptions", extra="serve")
        end = monotonic() + self._patience
        pause = 0.05
        while True:
            try:
                self._socket = await client.connect(
                    self._address,
                    additional_headers=self._headers,
                    max_size=LARGEST,
                    compression=None,
                    open_timeout=10,
                    proxy=None,
                )
                break
            except exceptions.InvalidStatus as err:
                refusal = _refusal(err.response, self._where)
                if refusal is not None:
                    self._fail(refusal)
                    return
                why: Exception = err
            except (OSError, TimeoutError, exceptions.WebSocketException) as err:
                why = err
            if monotonic() + pause > end:
                self._fail(NoAnswer(f"no server answers at {self._where}: {why}"))
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, 1.0)
        with self._lock:
            self._outbox[:0] = self._waiting.values()
        self._reading = self._loop.create_task(self._read_all(self._socket))
        self._post()

    async def _read_all(self, socket: Any) -> None:
        try:
            async for message in socket:
                heard = _read(message)
                for one in heard if isinstance(heard, list) else (heard,):
                    self._hear(one)
        except Exception:  # noqa: BLE001, S110  # whatever broke it, another takes its place
            pass
        if socket is self._socket:
            self._socket = None
            if self._waiting or self._outbox:
                self._open()

    def _hear(self, heard: Heard) -> None:
        waiting = self._waiting.get(heard.id)
        if waiting is None:
            return  # answered before: a duplicate
        if isinstance(heard.error, Fault):
            fault = heard.error
            pause = fault.retry_after if isinstance(fault.retry_after, float) else 0.1
            if fault.code in BUSY and monotonic() + pause < waiting.patient:
                self._loop.call_later(pause, self._again, heard.id)
                return
            del self._waiting[heard.id]
            waiting.done(error_of(fault, self._where))
        else:
            del self._waiting[heard.id]
            waiting.done(heard.result if isinstance(heard.result, dict) else {})

    def _again(self, name: str) -> None:
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            with self._lock:
                self._outbox.append(waiting)
            self._post()

    def _look(self) -> None:
        """Give up what has waited too long."""
        now = monotonic()
        late = [name for name, waiting in self._waiting.items() if waiting.until < now]
        for name in late:
            waiting = self._waiting.pop(name)
            waiting.done(NoAnswer(f"no answer from {self._where} in time; whatever it answers later is dropped"))
        self._loop.call_later(TICK, self._look)

    def _fail(self, error: PalestraError) -> None:
        """Nothing that waits will be answered."""
        with self._lock:
            waiting = [*self._waiting.values(), *(w for w in self._outbox if w.ask.id not in self._waiting)]
            self._outbox.clear()
        self._waiting.clear()
        for one in waiting:
            one.done(error)


def _refusal(response: Any, where: str) -> PalestraError | None:
    """What the server said instead of opening a socket; None where it may say something else later."""
    try:
        fault = msgspec.json.decode(response.body or b"", type=dict[str, Fault])["error"]
    except (msgspec.DecodeError, KeyError):
        if response.status_code in (502, 503, 504):
            return None
        return EnvFailed(f"{where} is no Palestra server: it answers with status {response.status_code}")
    return None if fault.code in BUSY else error_of(fault, where)


class Line:
    """A handle on the shared socket; the socket goes with the last of them."""

    def __init__(self, address: str, where: str, token: str | None, patience: float) -> None:
        self.where = where
        self._engine = Engine(address, where, token, patience)
        self._finalizer = weakref.finalize(self, self._engine.stop)

    def ask(self, ask: Request, done: Done, timeout: float) -> None:
        self._engine.ask(ask, done, timeout)

    def call(self, ask: Request, timeout: float) -> dict[str, Any]:
        """Ask and wait."""
        return self._future(ask, timeout).result()

    async def acall(self, ask: Request, timeout: float) -> dict[str, Any]:
        """Ask and wait, without blocking the event loop."""
        return await asyncio.wrap_future(self._future(ask, timeout))

    def _future(self, ask: Request, timeout: float) -> Future[dict[str, Any]]:
        answer: Future[dict[str, Any]] = Future()

        def done(result: dict[str, Any] | PalestraError) -> None:
            if not answer.set_running_or_notify_cancel():
                return
            if isinstance(result, PalestraError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        self._engine.ask(ask, done, timeout)
        return answer


_lines: weakref.WeakValueDictionary[tuple[Any, ...], Line] = weakref.WeakValueDictionary()
_guard = threading.Lock()


def line_to(address: str, where: str, token: str | None, patience: float) -> Line:
    """The line to a server; one for all who ask with the same token."""
    key = (os.getpid(), address, token, patience)  # after a fork, threads are gone: another
    with _guard:
        line = _lines.get(key)
        if line is None:
            line = _lines[key] = Line(address, where, token, patience)
        return line
