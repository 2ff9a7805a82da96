"""Client for the DevTools protocol over pipes: numbered calls, their replies, and events."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

Event = Callable[[str, dict[str, Any]], None]  # called in the reading thread with the method and its parameters


class BrowserLost(Exception):
    """Raised if the browser has exited or does not respond, or if its page has crashed."""


class ProtocolError(Exception):
    """Raised if the browser rejects a call, for example because the page has navigated."""


class Call:
    """A call whose reply has not been received yet."""

    __slots__ = ("error", "method", "ready", "result", "session")

    def __init__(self, method: str, session: str) -> None:
        self.method = method
        self.session = session
        self.ready = threading.Event()
        self.result: dict[str, Any] = {}
        self.error: Exception | None = None


class Connection:
    """One browser's DevTools connection. All methods may be called from any thread.

    A thread reads replies and events until the browser closes its end of the pipe.
    """

    def __init__(self, read_end: int, write_end: Callable[[], int]) -> None:
        self._read_end = read_end
        self._write_end = write_end  # returns -1 after the browser has been killed
        self._next = 0
        self._calls: dict[int, Call] = {}
        self._listeners: dict[str, Event] = {}  # session id -> listener; "" receives events of the browser itself
        self.contexts: dict[str, Callable[[dict[str, Any]], None]] = {}  # context id -> listener for its new tabs
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self.lost: str | None = None  # reason, after the connection has been closed
        self.thread = threading.Thread(target=self._read, name="palestra-browser", daemon=True)
        self.thread.start()

    def listen(self, session: str, listener: Event) -> None:
        """Call `listener` for every event of a session. It runs in the reading thread and must not wait for replies."""
        self._listeners[session] = listener

    def forget(self, session: str) -> None:
        self._listeners.pop(session, None)

    def send(self, method: str, params: dict[str, Any] | None = None, session: str = "") -> Call:
        """Send a call without waiting for its reply."""
        return self.send_all([(method, params or {})], session)[0]

    def send_all(self, calls: Sequence[tuple[str, dict[str, Any]]], session: str = "") -> list[Call]:
        """Send several calls with one write; the browser executes the calls of a session in order."""
        sent: list[Call] = []
        texts: list[str] = []
        with self._lock:
            if self.lost is not None:
                raise BrowserLost(self.lost)
            for method, params in calls:
                self._next += 1
                message = {"id": self._next, "method": method, "params": params}
                if session:
                    message["sessionId"] = session
                call = self._calls[self._next] = Call(method, session)
                sent.append(call)
                texts.append(json.dumps(message))
        data = ("\0".join(texts) + "\0").encode()
        try:
            with self._writing:
                view = memoryview(data)
                while view:
                    view = view[os.write(self._write_end(), view) :]
        except OSError as err:
            raise BrowserLost(f"the browser has ended ({err.strerror})") from err
        return sent

    def wait(self, call: Call, timeout: float) -> dict[str, Any]:
        """Return the reply to a call; raise BrowserLost if there is none within `timeout` seconds."""
        if not call.ready.wait(timeout):
            raise BrowserLost(f"{call.method} did not return within {timeout:g} s")
        if call.error is not None:
            raise call.error
        return call.result

    def call(
        self, method: str, params: dict[str, Any] | None = None, session: str = "", *, timeout: float = 30.0
    ) -> dict[str, Any]:
        """Send a call and return its reply."""
        return self.wait(self.send(method, params, session), timeout)

    def drop_session(self, session: str, reason: str) -> None:
        """Fail all calls of a session whose page has crashed or was closed."""
        with self._lock:
            dropped = [number for number, call in self._calls.items() if call.session == session]
            calls = [self._calls.pop(number) for number in dropped]
        for call in calls:
            call.error = BrowserLost(reason)
            call.ready.set()

    def _read(self) -> None:
        buffer = bytearray()
        reason = "the browser has ended"
        try:
            while chunk := os.read(self._read_end, 1 << 20):
                start = len(buffer)
                buffer += chunk
                begin = 0
                while (end := buffer.find(b"\0", max(begin, start))) >= 0:
                    self._receive(json.loads(bytes(buffer[begin:end])))
                    begin = end + 1
                del buffer[:begin]
        except (OSError, ValueError) as err:
            reason = f"the connection to the browser failed: {err}"
        with suppress(OSError):
            os.close(self._read_end)
        with self._lock:
            self.lost = reason
            calls = list(self._calls.values())
            self._calls.clear()
        for call in calls:
            call.error = BrowserLost(reason)
            call.ready.set()
        for session, listener in list(self._listeners.items()):
            if session:
                listener("palestra.lost", {"reason": reason})

    def _receive(self, message: dict[str, Any]) -> None:
        number = message.get("id")
        if number is None and message["method"] == "Target.attachedToTarget":
            params = message["params"]
            opened = self.contexts.get(params["targetInfo"].get("browserContextId", ""))
            if opened is not None:
                opened(params)
            return
        if number is None:
            listener = self._listeners.get(message.get("sessionId", ""))
            if listener is not None:
                listener(message["method"], message.get("params", {}))
            return
        with self._lock:
            call = self._calls.pop(number, None)
        if call is None:
            return
        if "error" in message:
            error = message["error"]
            call.error = ProtocolError(f"{call.method}: {error.get('message')} {error.get('data', '')}".strip())
        else:
            call.result = message.get("result", {})
        call.ready.set()
