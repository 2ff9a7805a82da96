"""Send JSON requests over HTTP to servers whose protocol has no request ids."""

from __future__ import annotations

import http.client
import json
import select
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from palestra.errors import BadValue, EnvFailed

MAX_ERROR_TEXT = 300  # maximum length of a server's error message


class ErrorResponse(EnvFailed):
    """Raised if the server returns an error. `status` is the HTTP status."""

    status = 0


def base_url(url: str, scheme: str) -> str:
    """Remove the `scheme+` prefix from a URL such as `agentgym+http://host:port/path`."""
    plain = url.removeprefix(f"{scheme}+")
    try:
        parts = urlsplit(plain)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as err:
        raise BadValue(f"{url!r} is not a valid URL: {err}") from err
    if not valid or parts.query or parts.fragment:
        raise BadValue(f"the server URL must be {scheme}+http://HOST:PORT, got {url!r}")
    if "@" in parts.netloc:
        raise BadValue("the URL must not contain a token; pass it as token=...")
    return plain.rstrip("/")


class JsonHttpClient:
    """HTTP client with one connection, which is closed after a timeout or error, so that late data is never read."""

    def __init__(self, base: str, token: str | None, timeout: float) -> None:
        parts = urlsplit(base)
        self.server = base
        self._path = parts.path
        connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = connect(parts.netloc, timeout=timeout)
        self.timeout = timeout
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def request(self, method: str, path: str, body: Any = None, *, timeout: float | None = None) -> Any:
        """Return the decoded response. Raise EnvFailed if there is no response, or ErrorResponse if it is an error."""
        connection = self._connection
        if connection.sock is not None and select.select([connection.sock], [], [], 0)[0]:
            connection.close()  # the server has closed the connection or has sent unexpected data
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
            raise EnvFailed(f"{self.server}/{path} did not respond within {limit:g} s") from err
        except (OSError, http.client.HTTPException) as err:
            connection.close()
            raise EnvFailed(f"{self.server}/{path} cannot be reached: {type(err).__name__}: {err}") from err
        except BaseException:
            connection.close()
            raise
        try:
            content = json.loads(text)
        except ValueError:
            content = None
        if response.status != 200 or content is None:
            raise self._error(path, response.status, content, text)
        return content

    def _error(self, path: str, status: int, content: Any, text: bytes) -> Exception:
        fields = content if isinstance(content, dict) else {}
        message = str(fields.get("error") or fields.get("detail") or text.decode("utf-8", "replace"))[:MAX_ERROR_TEXT]
        if status in (401, 403, 421):
            return BadValue(f"{self.server} denied access ({status}: {message}); pass its token as token=...")
        error = ErrorResponse(f"{self.server}/{path} returned status {status}: {message}")
        error.status = status
        return error

    def close(self) -> None:
        with suppress(OSError):
            self._connection.close()
