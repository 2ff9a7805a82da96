"""Trajectories in a file, a JSON line each: append-only, plain or gzip by the name, whole after any crash.

A line is handed to the operating system as soon as its episode is over, so a killed process loses at most the episode
it was writing. A half line that a crash left is skipped by the reader and removed by the next writer.
"""

from __future__ import annotations

import fcntl
import gzip
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from palestra.errors import BadValue, ParsingFailed, StoreFailed
from palestra.rollout.codec import from_json, to_json
from palestra.rollout.types import Trajectory

CHUNK = 1 << 20


class Writer:
    """Appends trajectories to `path` (`.jsonl`, or `.jsonl.gz`); one writer at a time."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as err:
            os.close(self._handle)
            raise BadValue(f"{self.path} is being written by another process") from err
        end = _sound_end(self.path)
        if end < os.fstat(self._handle).st_size:
            os.ftruncate(self._handle, end)  # the half line of a crash

    def write(self, trajectory: Trajectory) -> None:
        """Append one line; whole, or not at all."""
        if self._handle < 0:
            raise BadValue(f"the writer of {self.path} is closed")
        data = _dumps(to_json(trajectory)) + b"\n"
        if self.path.suffix == ".gz":
            data = gzip.compress(data, compresslevel=3, mtime=0)  # a member of its own, readable by itself
        before = os.fstat(self._handle).st_size
        try:
            written = 0
            while written < len(data):
                written += os.write(self._handle, data[written:])
        except OSError as err:
            os.ftruncate(self._handle, before)
            raise StoreFailed(f"{self.path} could not be written: {err}") from err

    def close(self) -> None:
        """To the disk, and let go. May be called twice."""
        if self._handle >= 0:
            os.fsync(self._handle)
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: str | Path) -> Iterator[Trajectory]:
    """Every trajectory of a file, one at a time; a half line at the end is left out."""
    for data in read_json(path):
        yield from_json(data)


def read_json(path: str | Path) -> Iterator[dict[str, Any]]:
    """As `read`, the plain data of each line."""
    path = Path(path)
    if not path.exists():
        raise BadValue(f"there is no file {path}")
    for number, line in enumerate(_lines(path), start=1):
        try:
            data = json.loads(line)
        except ValueError as err:
            raise ParsingFailed(f"{path}, line {number}: {err}") from err
        if not isinstance(data, dict):
            raise ParsingFailed(f"{path}, line {number}: not a trajectory")
        yield data


def _lines(path: Path) -> Iterator[bytes]:
    """Full lines, without their ends."""
    rest = b""
    for piece in _unpacked(path) if path.suffix == ".gz" else _pieces(path):
        *full, rest = (rest + piece).split(b"\n")
        yield from full


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(CHUNK):
            yield piece


def _unpacked(path: Path) -> Iterator[bytes]:
    """What the gzip members hold, member after member, up to the first that is cut off."""
    for _, text in _members(path):
        yield text


def _members(path: Path) -> Iterator[tuple[int, bytes]]:
    """(where it ends in the file, what it holds) of every whole member."""
    unpacker = zlib.decompressobj(wbits=31)
    parts: list[bytes] = []
    position = 0
    for piece in _pieces(path):
        data = piece
        while data:
            try:
                parts.append(unpacker.decompress(data))
            except zlib.error as err:
                raise ParsingFailed(f"{path} is damaged near byte {position}: {err}") from err
            rest = unpacker.unused_data
            position += len(data) - len(rest)
            data = rest
            if unpacker.eof:
                yield position, b"".join(parts)
                unpacker, parts = zlib.decompressobj(wbits=31), []


def _sound_end(path: Path) -> int:
    """Where the last full line ends."""
    if path.suffix == ".gz":
        end = 0
        for end, _ in _members(path):  # noqa: B007  # the last one is wanted
            pass
        return end
    size = path.stat().st_size
    with path.open("rb") as file:
        while size > 0:
            start = max(0, size - CHUNK)
            file.seek(start)
            found = file.read(size - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            size = start
    return 0


def _dumps(data: Any) -> bytes:
    try:
        import orjson

        return orjson.dumps(data)
    except (ImportError, TypeError):  # TypeError: a lone surrogate or a huge integer, which only json takes
        return json.dumps(data).encode()
