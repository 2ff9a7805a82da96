"""The same requests over plain HTTP, for networks that do not let sockets through."""

from __future__ import annotations

import asyncio
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
from palestra.remote.errors import BUSY, NoAnswer, error_of
from palestra.remote.protocol import MSGPACK, Fault, SingleRequest, encoder

_write = encoder(MSGPACK)
_REQUESTS = (protocol.Reset, protocol.Step, protocol.Fork, protocol.Render, protocol.SuggestAction, protocol.Close)
_names: dict[type, str] = {request: str(request.__struct_config__.tag) for request in _REQUESTS}  # the path of each


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


class PlainLine:
    """A connection for each thread that asks. A request that was lost on the way is sent again with the same id."""

    def __init__(self, base: str, token: str | None, patience: float) -> None:
        parts = urlsplit(base)
        self.where = base
        self._host = parts.netloc
        self._path = parts.path
        self._make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._patience = patience
        self._headers = {"Content-Type": MSGPACK, "Accept": MSGPACK}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._here = threading.local()
        self._connections: list[http.client.HTTPConnection] = []
        weakref.finalize(self, _close_all, self._connections)
        self._ids = count()
        self._prefix = f"{os.getpid():x}-{os.urandom(6).hex()}-"

    def call(self, ask: SingleRequest, timeout: float) -> dict[str, Any]:
        ask.id = f"{self._prefix}{next(self._ids):x}"
        path = f"{self._path}/v1/sessions"
        if not isinstance(ask, protocol.Create):
            path = f"{path}/{ask.session}/{_names[type(ask)]}"
        headers = {**self._headers, "X-Request-Id": ask.id}
        if not isinstance(ask, protocol.Create):
            headers["X-Palestra-Session"] = ask.session  # for balancers that route by it
        body = _write(ask)
        end = time.monotonic() + timeout
        give_up = time.monotonic() + min(timeout, self._patience)
        pause = 0.05
        while True:
            try:
                status, data = self._exchange(path, body, headers, end)
            except (OSError, http.client.HTTPException) as err:
                if time.monotonic() + pause > give_up:
                    raise NoAnswer(f"no server answers at {self.where}: {type(err).__name__}: {err}") from err
                time.sleep(pause)
                pause = min(2 * pause, 1.0)
                continue
            if status < 300:
                result: dict[str, Any] = msgspec.msgpack.decode(data)
                return result
            fault = self._fault(status, data)
            wait = fault.retry_after if isinstance(fault.retry_after, float) else 0.1
            if fault.code not in BUSY or time.monotonic() + wait > give_up:
                raise error_of(fault, self.where)
            time.sleep(wait)

    async def acall(self, ask: SingleRequest, timeout: float) -> dict[str, Any]:
        return await asyncio.to_thread(self.call, ask, timeout)

    def _exchange(self, path: str, body: bytes, headers: dict[str, str], end: float) -> tuple[int, bytes]:
        connection: http.client.HTTPConnection | None = getattr(self._here, "connection", None)
        if connection is None:
            connection = self._here.connection = self._make(self._host)
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
                raise http.client.BadStatusLine("the answer to another request")
            return response.status, data
        except BaseException:
            with suppress(Exception):
                connection.close()  # an answer that comes now would be the next request's
            raise

    def _fault(self, status: int, data: bytes) -> Fault:
        try:
            return msgspec.msgpack.decode(data, type=dict[str, Fault])["error"]
        except (msgspec.DecodeError, KeyError):
            words = f"{self.where} answers with status {status}, as no Palestra server does"
            return Fault(code="unavailable" if status in (502, 503, 504) else "not_found", message=words)
