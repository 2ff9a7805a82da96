"""Requests to a server that has no ids for them: an answer is taken for the request it came after, or not at all."""

from __future__ import annotations

import http.client
import json
import select
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from palestra.errors import BadValue, EnvFailed

LONGEST_WORDS = 300  # of what a server says is wrong


class Answered(EnvFailed):
    """The server answered, but not with what was asked for; `status` is its own."""

    status = 0


def base_of(url: str, scheme: str) -> str:
    """`agentgym+http://host:port/path` -> `http://host:port/path`."""
    plain = url.removeprefix(f"{scheme}+")
    try:
        parts = urlsplit(plain)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as err:
        raise BadValue(f"{url!r} is no address: {err}") from err
    if not fine or parts.query or parts.fragment:
        raise BadValue(f"a server's address reads {scheme}+http://HOST:PORT, got {url!r}")
    if "@" in parts.netloc:
        raise BadValue("a token is no part of the address; give it as token=...")
    return plain.rstrip("/")


class Wire:
    """One connection. After anything but a whole answer it is closed: what comes later nobody takes for another's."""

    def __init__(self, base: str, token: str | None, timeout: float) -> None:
        parts = urlsplit(base)
        self.where = base
        self._path = parts.path
        make = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = make(parts.netloc, timeout=timeout)
        self.timeout = timeout
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def ask(self, method: str, path: str, body: Any = None, *, timeout: float | None = None) -> Any:
        """What the server answers, as JSON. EnvFailed where it does not; Answered where it refuses."""
        connection = self._connection
        if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
            connection.close()  # the server hung up meanwhile, or says what nobody asked
        limit = timeout or self.timeout
        connection.timeout = limit
        if connection.sock is not None:
            connection.sock.settimeout(limit)
        headers = dict(self._headers)
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            connection.request(method, f"{self._path}/{path}", data, headers)
            response = connection.getresponse()
            text = response.read()
        except TimeoutError as err:
            connection.close()
            raise EnvFailed(f"{self.where}/{path} did not answer within {limit:g} s") from err
        except (OSError, http.client.HTTPException) as err:
            connection.close()
            raise EnvFailed(f"{self.where}/{path} cannot be reached: {type(err).__name__}: {err}") from err
        except BaseException:
            connection.close()
            raise
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if response.status != 200 or found is None:
            raise self._refused(path, response.status, found, text)
        return found

    def _refused(self, path: str, status: int, found: Any, text: bytes) -> Exception:
        told = found if isinstance(found, dict) else {}
        words = str(told.get("error") or told.get("detail") or text.decode("utf-8", "replace"))[:LONGEST_WORDS]
        if status in (401, 403, 421):
            return BadValue(f"{self.where} does not let us in ({status}: {words}); give its token as token=...")
        failed = Answered(f"{self.where}/{path} answers {status}: {words}")
        failed.status = status
        return failed

    def close(self) -> None:
        with suppress(OSError):
            self._connection.close()
