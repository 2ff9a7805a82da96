"""Hooks that add msgpack support to schemathesis, which loads this module."""

from __future__ import annotations

from typing import Any

import msgspec
import schemathesis


@schemathesis.deserializer("application/msgpack")
def read(_: Any, response: Any) -> Any:
    """Decode a msgpack response to the JSON types that the schema describes, with images as base64."""
    return msgspec.json.decode(msgspec.json.encode(msgspec.msgpack.decode(response.content)))


@schemathesis.serializer("application/msgpack")
def write(_: Any, value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    # Integers of more than 64 bits and unpaired surrogates cannot be encoded.
    except (OverflowError, UnicodeEncodeError, TypeError):
        return msgspec.msgpack.encode(repr(value))
