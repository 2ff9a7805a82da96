"""A whole vector's step: one request, one answer. Its rows are written in the workers and only put together here.

A row is [index, observation, reward, terminated, truncated, info, episode]: `index` says which step of the request it
answers, `episode` counts where the session begins its episodes itself. A session keeps, as its last answer, the rows
that its own came with, and only a retry takes it out of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from palestra.remote.protocol import MSGPACK, OUTCOME, Fault, encoder
from palestra.server.responses import late, numbered
from palestra.server.sessions import Result, Tell


class Missed(msgspec.Struct, kw_only=True):
    """A step of a vector that has no row."""

    index: int
    error: Fault


class Rows:
    """What a worker wrote for several sessions of one request."""

    __slots__ = ("_found", "data", "keys", "write")

    def __init__(self, keys: Sequence[int], data: bytes, write: str) -> None:
        self.keys = keys  # the sessions, by their numbers, in the order of their rows
        self.data = data  # an array of rows
        self.write = write
        self._found: dict[int, list[Any]] | None = None

    @property
    def by_key(self) -> dict[int, list[Any]]:
        if self._found is None:
            self._found = dict(zip(self.keys, _reader(self.write)(self.data), strict=True))
        return self._found

    def alone(self, key: int, seq: int) -> bytes:
        """One session's row, as the answer to a step that was asked by itself."""
        body = dict(zip(OUTCOME, self.by_key[key][1:], strict=True))
        if body["episode"] is None:
            del body["episode"]
        return numbered(encoder(self.write)(body), seq, self.write)

    def without(self, keys: set[int]) -> bytes:
        """The rows of all other sessions."""
        data: bytes = encoder(self.write)([row for key, row in self.by_key.items() if key not in keys])
        return data


class Vector:
    """The answer to a request for many steps, while it comes together."""

    __slots__ = ("_errors", "_forget", "_left", "_parts", "_size", "_tell", "_timer", "began", "write")

    def __init__(self, size: int, write: str, tell: Tell, forget: Callable[[], object], began: float) -> None:
        self.write = write
        self.began = began
        self._size = size
        self._left = size
        self._parts: list[bytes] = []  # arrays of rows
        self._errors: list[Missed] = []
        self._tell = tell
        self._forget = forget
        self._timer: asyncio.TimerHandle | None = None

    def answer_within(self, seconds: float) -> None:
        """What is not there by then is answered with `not_yet`."""
        if self._left:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._too_late, seconds)

    def add(self, rows: bytes, count: int) -> None:
        if self._left:
            if count:
                self._parts.append(rows)
            self._fewer(count)

    def told(self, index: int, result: Result) -> None:
        """One step's own answer: an error, or what came of it when it was asked before."""
        if not self._left:
            return  # too late
        if isinstance(result, Fault):
            self._errors.append(Missed(index=index, error=result))
        else:
            body = _reader(self.write)(result)
            self._parts.append(encoder(self.write)([[index, *(body.get(name) for name in OUTCOME)]]))
        self._fewer(1)

    def _fewer(self, count: int) -> None:
        self._left -= count
        if self._left == 0:
            if self._timer is not None:
                self._timer.cancel()
            self._forget()
            self._tell(self._written())

    def _too_late(self, seconds: float) -> None:
        there = {missed.index for missed in self._errors}
        for part in self._parts:
            there.update(row[0] for row in _reader(self.write)(part))
        self._errors += [Missed(index=index, error=late(seconds)) for index in range(self._size) if index not in there]
        self._fewer(self._left)

    def _written(self) -> bytes:
        errors: bytes = encoder(self.write)(self._errors)
        if self.write == MSGPACK:
            rows = _array_head(self._size - len(self._errors)) + b"".join(map(_without_head, self._parts))
            return b"\x82" + _ROWS + rows + _ERRORS + errors
        return b'{"rows":[%b],"errors":%b}' % (b",".join(part[1:-1] for part in self._parts), errors)


def _reader(write: str) -> Callable[[bytes], Any]:
    return msgspec.msgpack.decode if write == MSGPACK else msgspec.json.decode


def _array_head(size: int) -> bytes:
    """What an array of msgpack begins with."""
    if size < 16:
        return bytes([0x90 | size])
    return b"\xdc" + size.to_bytes(2, "big") if size < 1 << 16 else b"\xdd" + size.to_bytes(4, "big")


def _without_head(array: bytes) -> bytes:
    return array[{0xDC: 3, 0xDD: 5}.get(array[0], 1) :]


_ROWS: Final = msgspec.msgpack.encode("rows")
_ERRORS: Final = msgspec.msgpack.encode("errors")
