"""Who asks, and whether they may: one pass over a request's headers.

Without tokens only this machine is served, and only under its own name, so that no page elsewhere can reach it through
a name made to point here. A page in a browser is never let in: it sends an Origin, and programs do not.
"""

from __future__ import annotations

import hmac
from collections.abc import MutableMapping
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from palestra.remote.protocol import JSON, MSGPACK, Fault, fault
from palestra.server.settings import Settings

LOOPBACK = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})
LOCAL = "local"  # whose sessions are, where nobody has a token


class Visitor:
    """What the headers of one request say."""

    __slots__ = ("accept", "kind", "length", "owner", "refusal", "request_id")

    def __init__(self) -> None:
        self.owner = LOCAL
        self.kind = ""  # of the body
        self.accept = JSON
        self.length = 0
        self.request_id = b""
        self.refusal: Fault | None = None


class Guard:
    def __init__(self, settings: Settings) -> None:
        self._any_host = settings.any_host
        self._tokens = [(sha256(token.encode()).digest(), name) for token, name in settings.tokens.items()]

    def visitor(self, scope: MutableMapping[str, Any]) -> Visitor:
        found = Visitor()
        host = token = b""
        origin = None
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"content-type":
                found.kind = _kind(value)
            elif name == b"accept":
                if b"msgpack" in value:
                    found.accept = MSGPACK
            elif name == b"content-length":
                found.length = int(value) if value.isdigit() and len(value) < 16 else 1 << 60
            elif name == b"authorization":
                token = value
            elif name == b"x-request-id":
                found.request_id = value[:128] if value.isascii() and value[:128].decode().isprintable() else b""
            elif name == b"origin":
                origin = value
        if not self._any_host and _name(host) not in LOOPBACK:
            found.refusal = fault("wrong_host", "this server is not reached under that name; use localhost")
        elif origin is not None and _site(origin) != host:
            found.refusal = fault("unauthorized", "pages of other sites are not let in")
        elif self._tokens:
            owner = self._owner(token)
            if owner is None:
                found.refusal = fault("unauthorized", "a token is needed: Authorization: Bearer ...")
            else:
                found.owner = owner
        return found

    def _owner(self, header: bytes) -> str | None:
        """Whose token it is; takes as long for any wrong one, and looks at all of them."""
        scheme, _, given = header.partition(b" ")
        digest = sha256(given.strip()).digest()
        owner = None
        for known, name in self._tokens:
            if hmac.compare_digest(digest, known):
                owner = name
        return owner if scheme.lower() == b"bearer" else None


def _kind(value: bytes) -> str:
    kind = value.partition(b";")[0].strip().lower()
    if kind == b"application/json":
        return JSON
    return MSGPACK if kind in (b"application/msgpack", b"application/x-msgpack") else ""


def _site(origin: bytes) -> bytes | None:
    """The host and port that a page came from; None where it is no address."""
    try:
        return urlsplit(origin.decode("latin-1")).netloc.encode("latin-1")
    except ValueError:
        return None


def _name(host: bytes) -> bytes:
    host = host.lower()
    if host.startswith(b"["):
        return b"".join(host.partition(b"]")[:2])
    return host.partition(b":")[0]
