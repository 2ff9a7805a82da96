"""What schemathesis has to be told before it can speak msgpack; loaded by it, not by the tests."""

from __future__ import annotations

from typing import Any

import msgspec
import schemathesis


@schemathesis.deserializer("application/msgpack")
def read(_: Any, response: Any) -> Any:
    """As plain JSON types, which its schema speaks of: pictures are base64 there."""
    return msgspec.json.decode(msgspec.json.encode(msgspec.msgpack.decode(response.content)))


@schemathesis.serializer("application/msgpack")
def write(_: Any, value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, UnicodeEncodeError, TypeError):  # it has no numbers that large, and no half characters
        return msgspec.msgpack.encode(repr(value))
