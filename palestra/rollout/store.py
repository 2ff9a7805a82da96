"""Append trajectories to a JSON Lines file and read them back.

Files whose names end in `.gz` are compressed. Each line is written as soon as its episode ends, so a killed process
loses at most the episode it was writing. Readers skip an incomplete last line; the next writer removes it.
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

CHUNK = 1 << 20  # bytes per read


class Writer:
    """Appends trajectories to a file (`.jsonl` or `.jsonl.gz`) and locks it, so that there is one writer at a time."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as err:
            os.close(self._handle)
            raise BadValue(f"{self.path} is open in another writer; close that writer or choose another file") from err
        end = _end_of_complete_lines(self.path)
        if end < os.fstat(self._handle).st_size:
            os.ftruncate(self._handle, end)  # remove the incomplete last line of a crashed writer

    def write(self, trajectory: Trajectory) -> None:
        """Append one line. If writing fails, the file is left unchanged."""
        if self._handle < 0:
            raise BadValue(f"the writer of {self.path} is closed")
        data = _dumps(to_json(trajectory)) + b"\n"
        if self.path.suffix == ".gz":
            data = gzip.compress(data, compresslevel=3, mtime=0)  # one gzip member per line
        size = os.fstat(self._handle).st_size
        try:
            written = 0
            while written < len(data):
                written += os.write(self._handle, data[written:])
        except OSError as err:
            os.ftruncate(self._handle, size)
            raise StoreFailed(f"cannot write to {self.path}: {err}") from err

    def close(self) -> None:
        """Flush the file to disk, then unlock and close it. Idempotent."""
        if self._handle >= 0:
            os.fsync(self._handle)
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: str | Path) -> Iterator[Trajectory]:
    """Yield the trajectories in a file; skip an incomplete last line."""
    for data in read_json(path):
        yield from_json(data)


def read_json(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON data in each complete line."""
    path = Path(path)
    if not path.exists():
        raise BadValue(f"{path} does not exist")
    for number, line in enumerate(_lines(path), start=1):
        try:
            data = json.loads(line)
        except ValueError as err:
            raise ParsingFailed(f"{path}, line {number}: {err}") from err
        if not isinstance(data, dict):
            raise ParsingFailed(f"{path}, line {number}: not a trajectory")
        yield data


def _lines(path: Path) -> Iterator[bytes]:
    """Yield complete lines, without the newline."""
    rest = b""
    for chunk in _decompressed(path) if path.suffix == ".gz" else _chunks(path):
        *full, rest = (rest + chunk).split(b"\n")
        yield from full


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _decompressed(path: Path) -> Iterator[bytes]:
    """Yield the content of each complete gzip member."""
    for _, text in _members(path):
        yield text


def _members(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (end offset in the file, content) of each complete gzip member."""
    decompressor = zlib.decompressobj(wbits=31)
    parts: list[bytes] = []
    position = 0
    for chunk in _chunks(path):
        data = chunk
        while data:
            try:
                parts.append(decompressor.decompress(data))
            except zlib.error as err:
                raise ParsingFailed(f"{path} is damaged near byte {position}: {err}") from err
            rest = decompressor.unused_data
            position += len(data) - len(rest)
            data = rest
            if decompressor.eof:
                yield position, b"".join(parts)
                decompressor, parts = zlib.decompressobj(wbits=31), []


def _end_of_complete_lines(path: Path) -> int:
    """Return the offset after the last complete line."""
    if path.suffix == ".gz":
        end = 0
        for end, _ in _members(path):  # noqa: B007  # only the last value is used
            pass
        return end
    size = path.stat().st_size
    with path.open("rb") as file:
        while size > 0:
            start = max(0, size - CHUNK)
            file.seek(start)
            newline = file.read(size - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            size = start
    return 0


def _dumps(data: Any) -> bytes:
    try:
        import orjson

        return orjson.dumps(data)
    except (ImportError, TypeError):  # TypeError: orjson rejects unpaired surrogates and huge integers
        return json.dumps(data).encode()
