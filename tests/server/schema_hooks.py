"""Hooks that teach schemathesis msgpack; loaded by schemathesis, not by the tests."""

from __future__ import annotations

from typing import Any

import msgspec
import schemathesis


@schemathesis.deserializer("application/msgpack")
def read(_: Any, response: Any) -> Any:
    """Convert to JSON types, which the schema describes: images are base64 there."""
    return msgspec.json.decode(msgspec.json.encode(msgspec.msgpack.decode(response.content)))


@schemathesis.serializer("application/msgpack")
def write(_: Any, value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (
        OverflowError,
        UnicodeEncodeError,
        TypeError,
    ):  # integers over 64 bits, lone surrogates
        return msgspec.msgpack.encode(repr(value))
