"""Hooks that add msgpack support to schemathesis, which loads this module; the tests do not import it."""

from __future__ import annotations

from typing import Any

import msgspec
import schemathesis


@schemathesis.deserializer("application/msgpack")
def read(_: Any, response: Any) -> Any:
    """Convert a value to the JSON types that the schema describes, with images as base64."""
    return msgspec.json.decode(msgspec.json.encode(msgspec.msgpack.decode(response.content)))


@schemathesis.serializer("application/msgpack")
def write(_: Any, value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (
        OverflowError,
        UnicodeEncodeError,
        TypeError,
    ):  # integers over 64 bits or unpaired surrogates
        return msgspec.msgpack.encode(repr(value))
