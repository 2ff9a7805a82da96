"""Authenticate requests and parse the headers that every route needs.

A server without tokens accepts only requests to loopback host names. This prevents DNS rebinding, in which a web page
accesses the server through a DNS name that resolves to this machine. Requests that a browser sends on behalf of another
site, which are recognized by their Origin header, are always refused.
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
LOCAL = "local"  # owner of all sessions on a server without tokens


class Client:
    """Values read from one request's headers, and its token's owner."""

    __slots__ = ("accept", "content_length", "content_type", "error", "owner", "request_id")

    def __init__(self) -> None:
        self.owner = LOCAL
        self.content_type = ""  # JSON, MSGPACK, or "" for any other type
        self.accept = JSON
        self.content_length = 0
        self.request_id = b""
        self.error: Fault | None = None  # set if the request must be refused


class Authenticator:
    def __init__(self, settings: Settings) -> None:
        self._any_host = settings.any_host
        self._tokens = [(sha256(token.encode()).digest(), name) for token, name in settings.tokens.items()]

    def identify(self, scope: MutableMapping[str, Any]) -> Client:
        """Parse the headers of an ASGI scope. If the request must be refused, the result contains the `error`."""
        client = Client()
        host = authorization = b""
        origin = None
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"content-type":
                client.content_type = _media_type(value)
            elif name == b"accept":
                if b"msgpack" in value:
                    client.accept = MSGPACK
            elif name == b"content-length":
                client.content_length = int(value) if value.isdigit() and len(value) < 16 else 1 << 60
            elif name == b"authorization":
                authorization = value
            elif name == b"x-request-id":
                client.request_id = value[:128] if value.isascii() and value[:128].decode().isprintable() else b""
            elif name == b"origin":
                origin = value
        if not self._any_host and _host_name(host) not in LOOPBACK:
            client.error = fault("wrong_host", "this server does not accept that Host header; use localhost")
        elif origin is not None and _origin_host(origin) != host:
            client.error = fault("unauthorized", "requests from web pages on other sites are not allowed")
        elif self._tokens:
            owner = self._owner(authorization)
            if owner is None:
                client.error = fault("unauthorized", "a valid token is required: `Authorization: Bearer TOKEN`")
            else:
                client.owner = owner
        return client

    def _owner(self, authorization: bytes) -> str | None:
        """Return the owner of a bearer token, or None if the token is invalid. The comparison takes constant time."""
        scheme, _, token = authorization.partition(b" ")
        digest = sha256(token.strip()).digest()
        owner = None
        for known_digest, name in self._tokens:
            if hmac.compare_digest(digest, known_digest):
                owner = name
        return owner if scheme.lower() == b"bearer" else None


def _media_type(value: bytes) -> str:
    media_type = value.partition(b";")[0].strip().lower()
    if media_type == b"application/json":
        return JSON
    return MSGPACK if media_type in (b"application/msgpack", b"application/x-msgpack") else ""


def _origin_host(origin: bytes) -> bytes | None:
    """Return the host and port in an Origin header, or None if it is not a URL."""
    try:
        return urlsplit(origin.decode("latin-1")).netloc.encode("latin-1")
    except ValueError:
        return None


def _host_name(host: bytes) -> bytes:
    """Return the host name in a Host header, without the port."""
    host = host.lower()
    if host.startswith(b"["):
        return b"".join(host.partition(b"]")[:2])
    return host.partition(b":")[0]
