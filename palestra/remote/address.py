"""`http://host:8100/game:Wordle-v0-hard` -> the server and the environment on it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from palestra.errors import BadValue

SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An environment on a server."""

    base: str  # "http://localhost:8100", with whatever path leads to the server
    env: str

    @property
    def socket(self) -> str:
        return f"ws{self.base.removeprefix('http')}/v1/ws"


def parse(url: str) -> Address:
    """The parts of an address; BadValue says how one reads."""
    try:
        parts = urlsplit(url)
        netloc, port = parts.netloc, parts.port
    except ValueError as err:
        raise BadValue(f"{url!r} is no address: {err}") from err
    path, _, env = parts.path.rpartition("/")
    env = unquote(env)
    if parts.scheme not in SCHEMES or not netloc or port == 0 or ":" not in env or parts.query or parts.fragment:
        raise BadValue(f"an environment on a server reads http://HOST:PORT/FAMILY:NAME, got {url!r}")
    if "@" in netloc:
        raise BadValue("a token is no part of the address; give it as token=..., or in PALESTRA_TOKEN")
    return Address(base=f"{parts.scheme}://{netloc}{path}", env=env)


def token_of(given: str | None) -> str | None:
    """The token to show: what was given, or the one in the environment."""
    return given or os.environ.get("PALESTRA_TOKEN") or None
