"""Send requests over plain HTTP, for networks that block WebSockets."""

from __future__ import annotations

import http.client
import os
import threading
import time
import weakref
from contextlib import suppress
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import msgspec

from palestra.remote import protocol
from palestra.remote.errors import BUSY, NoResponse, error_from
from palestra.remote.protocol import MSGPACK, Fault, SingleRequest, encoder
from palestra.threads import run_in_thread

_encode = encoder(MSGPACK)
_REQUESTS = (protocol.Reset, protocol.Step, protocol.Fork, protocol.Render, protocol.SuggestAction, protocol.Close)
_PATHS: dict[type, str] = {request: str(request.__struct_config__.tag) for request in _REQUESTS}


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


class HttpTransport:
    """Transport with one HTTP connection per thread. Requests without a response are sent again with the same id."""

    def __init__(self, base: str, token: str | None, patience: float) -> None:
        parts = urlsplit(base)
        self.server = base
        self._host = parts.netloc
        self._path = parts.path
        self._connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._patience = patience
        self._headers = {"Content-Type": MSGPACK, "Accept": MSGPACK}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._local = threading.local()
        self._connections: list[http.client.HTTPConnection] = []
        weakref.finalize(self, _close_all, self._connections)
        self._ids = count()
        self._prefix = f"{os.getpid():x}-{os.urandom(6).hex()}-"

    def call(self, request: SingleRequest, timeout: float) -> dict[str, Any]:
        """Send a request and return its result."""
        request.id = f"{self._prefix}{next(self._ids):x}"
        path = f"{self._path}/v1/sessions"
        headers = {**self._headers, "X-Request-Id": request.id}
        if not isinstance(request, protocol.Create):
            path = f"{path}/{request.session}/{_PATHS[type(request)]}"
            headers["X-Palestra-Session"] = request.session  # read by load balancers that route by session
        body = _encode(request)
        end = time.monotonic() + timeout
        retry_until = time.monotonic() + min(timeout, self._patience)
        pause = 0.05
        while True:
            try:
                status, data = self._exchange(path, body, headers, end)
            except (OSError, http.client.HTTPException) as err:
                if time.monotonic() + pause > retry_until:
                    raise NoResponse(f"no server responds at {self.server}: {type(err).__name__}: {err}") from err
                time.sleep(pause)
                pause = min(2 * pause, 1.0)
                continue
            if status < 300:
                result: dict[str, Any] = msgspec.msgpack.decode(data)
                return result
            fault = self._fault(status, data)
            wait = fault.retry_after if isinstance(fault.retry_after, float) else 0.1
            if fault.code not in BUSY or time.monotonic() + wait > retry_until:
                raise error_from(fault, self.server)
            time.sleep(wait)

    async def acall(self, request: SingleRequest, timeout: float) -> dict[str, Any]:
        return await run_in_thread(self.call, request, timeout)

    def close_session(self, session: str) -> None:
        """Close a session. If this fails, the server closes the session when its lease expires."""
        self.call(protocol.Close(session=session), 2.0)

    def _exchange(self, path: str, body: bytes, headers: dict[str, str], end: float) -> tuple[int, bytes]:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect(self._host)
            self._connections.append(connection)
        left = max(0.1, end - time.monotonic())
        connection.timeout = left
        if connection.sock is not None:
            connection.sock.settimeout(left)
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            data = response.read()
            if response.headers.get("X-Request-Id", headers["X-Request-Id"]) != headers["X-Request-Id"]:
                raise http.client.BadStatusLine("received the response to another request")
            return response.status, data
        except BaseException:
            with suppress(Exception):
                connection.close()  # otherwise, a late response could be mistaken for the response to the next request
            raise

    def _fault(self, status: int, data: bytes) -> Fault:
        try:
            return msgspec.msgpack.decode(data, type=dict[str, Fault])["error"]
        except (msgspec.DecodeError, KeyError):
            message = f"{self.server} returned status {status} without an error; it may not be a Palestra server"
            return Fault(code="unavailable" if status in (502, 503, 504) else "not_found", message=message)
