"""Parse URLs of environments on a Palestra server, such as `http://host:8100/game:Wordle-v0-hard`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from palestra.errors import BadValue

SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """URL of a server, and the id of one of its environments."""

    base: str  # for example "http://localhost:8100"; includes the server's path prefix, if any
    env: str

    @property
    def socket(self) -> str:
        """URL of the server's WebSocket."""
        return f"ws{self.base.removeprefix('http')}/v1/ws"


def parse(url: str) -> Address:
    """Split an environment URL into server and id. Raise BadValue if the URL is invalid."""
    try:
        parts = urlsplit(url)
        netloc, port = parts.netloc, parts.port
    except ValueError as err:
        raise BadValue(f"{url!r} is not a valid URL: {err}") from err
    path, _, env = parts.path.rpartition("/")
    env = unquote(env)
    if parts.scheme not in SCHEMES or not netloc or port == 0 or ":" not in env or parts.query or parts.fragment:
        raise BadValue(f"an environment URL must be http://HOST:PORT/FAMILY:NAME, got {url!r}")
    if "@" in netloc:
        raise BadValue("the URL must not contain a token; pass token=... or set PALESTRA_TOKEN")
    return Address(base=f"{parts.scheme}://{netloc}{path}", env=env)


def resolve_token(token: str | None) -> str | None:
    """Return `token`, or the value of the PALESTRA_TOKEN environment variable if `token` is None."""
    return token or os.environ.get("PALESTRA_TOKEN") or None
