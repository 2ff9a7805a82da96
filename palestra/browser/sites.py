"""Answer a page's requests from this process: folders of static files, and applications on a local port.

The browser itself has no network. Every request is intercepted; its host name selects one of the environment's sites,
and requests to other hosts fail as if the machine were offline.
"""

from __future__ import annotations

import http.client
import mimetypes
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from palestra.errors import BadValue

MAX_FILE_BYTES = 50_000_000
HOP_HEADERS = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding", "upgrade"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class Site(Protocol):
    """Answers the requests to one host."""

    quick: bool  # whether a request takes so little time that the thread that reads events may answer it

    def respond(self, request: Request) -> Response: ...


class FolderSite:
    """Static files in a folder. `index.html` answers requests for a folder."""

    quick = True

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).resolve()
        if not self.folder.is_dir():
            raise BadValue(f"a site's folder must exist, got {str(folder)!r}")

    def respond(self, request: Request) -> Response:
        path = unquote(urlsplit(request.url).path).lstrip("/").replace("\0", "")
        target = (self.folder / path).resolve()
        if target.is_dir():
            target /= "index.html"
        if self.folder not in target.parents or not target.is_file() or target.stat().st_size > MAX_FILE_BYTES:
            return Response(status=404, headers=(("Content-Type", "text/plain"),), body=b"Not found")
        return _file(target, target.stat().st_mtime_ns)


@lru_cache(maxsize=512)
def _file(target: Path, changed: int) -> Response:  # noqa: ARG001  # a changed file is read again
    kind = mimetypes.guess_type(target.name)[0] or "application/octet-stream"
    if kind.startswith("text/") or kind.endswith("javascript"):
        kind = f"{kind}; charset=utf-8"
    return Response(status=200, headers=(("Content-Type", kind),), body=target.read_bytes())


class PortSite:
    """An application that serves HTTP on a port on this machine or on another one."""

    quick = False

    def __init__(self, port: int, *, host: str = "127.0.0.1", secure: bool = False, timeout: float = 30.0) -> None:
        self.port, self.host, self.secure = port, host, secure
        self.timeout = timeout

    def respond(self, request: Request) -> Response:
        parts = urlsplit(request.url)
        kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
        connection = kind(self.host, self.port, timeout=self.timeout)
        try:
            path = parts.path or "/"
            connection.putrequest(
                request.method,
                f"{path}?{parts.query}" if parts.query else path,
                skip_host=True,
                skip_accept_encoding=True,
            )
            headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_HEADERS}
            headers["Host"] = parts.netloc
            if request.body or request.method in ("POST", "PUT", "PATCH"):
                headers["Content-Length"] = str(len(request.body))
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders(request.body or None)
            reply = connection.getresponse()
            body = reply.read()
            kept = tuple((name, value) for name, value in reply.getheaders() if name.lower() not in HOP_HEADERS)
            return Response(status=reply.status, headers=kept, body=body)
        except (OSError, http.client.HTTPException) as err:
            raise SiteFailed(f"{request.url}: {err}") from err
        finally:
            connection.close()


class SiteFailed(Exception):
    """Raised if an application does not answer. The page shows an error, and the environment fails."""


def free_port() -> int:
    """Return a port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
