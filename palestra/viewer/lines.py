"""Random access to the lines of plain or gzip-compressed JSON Lines files."""

from __future__ import annotations

import errno
import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from palestra.errors import ParsingFailed

CHUNK = 1 << 20
LONGEST = 64 << 20  # maximum bytes per line; longer lines are skipped to limit memory


@dataclass(frozen=True, slots=True)
class LinePosition:
    """Position of a line in a file.

    In a gzip file, the line starts `inner` bytes after the start of the decompressed member at `offset`.
    """

    offset: int
    inner: int
    length: int


@dataclass(frozen=True, slots=True)
class Line:
    spot: LinePosition
    data: bytes | None  # None if the line is too long
    resume: int | None  # offset at which a later scan can continue after this line; None inside a gzip member


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading; raise OSError for a named pipe or device, whose reader could wait forever."""
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: PTH123, SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def scan(path: Path, start: int = 0) -> Iterator[Line]:
    """Yield the complete lines after byte `start`, which is 0 or a `resume` value; skip an incomplete last line."""
    with open_file(path) as file:
        file.seek(start)
        yield from (_packed if path.suffix == ".gz" else _plain)(file, start)


def read(path: Path, spot: LinePosition) -> bytes:
    """Read the line at `spot`."""
    with open_file(path) as file:
        file.seek(spot.offset)
        if path.suffix != ".gz":
            data = file.read(spot.length)
        else:
            data = b""
            skip = spot.inner
            for _, _, piece, _ in _unpacked(file, spot.offset):
                dropped = min(skip, len(piece))
                skip -= dropped
                data += piece[dropped : dropped + spot.length - len(data)]
                if len(data) == spot.length:
                    break
    if len(data) != spot.length:
        raise ParsingFailed(f"{path.name} was truncated")
    return data


def _plain(file: BinaryIO, start: int) -> Iterator[Line]:
    # `at` is the offset of the current line, `held` contains its bytes so far, and `dropped` counts discarded bytes.
    held, at, dropped = b"", start, 0
    while piece := file.read(CHUNK):
        *whole, held = (held + piece).split(b"\n")
        for data in whole:
            end = at + dropped + len(data) + 1
            yield Line(LinePosition(at, 0, end - at - 1), None if dropped else data, end)
            at, dropped = end, 0
        if len(held) > LONGEST:
            dropped, held = dropped + len(held), b""


def _packed(file: BinaryIO, start: int) -> Iterator[Line]:
    held, spot, dropped = b"", (start, 0), 0  # `spot` is the position of `held`
    for member, inner, piece, ended in _unpacked(file, start):
        *whole, rest = piece.split(b"\n")
        for i, part in enumerate(whole):
            inner += len(part) + 1
            data = held + part
            at_end = ended is not None and i == len(whole) - 1 and not rest
            yield Line(LinePosition(*spot, dropped + len(data)), None if dropped else data, ended if at_end else None)
            held, spot, dropped = b"", (member, inner), 0
        held += rest
        if len(held) > LONGEST:
            dropped, held = dropped + len(held), b""
        if ended is not None and not held and not dropped:
            spot = (ended, 0)


def _unpacked(file: BinaryIO, start: int) -> Iterator[tuple[int, int, bytes, int | None]]:
    """Yield decompressed chunks from a gzip file, which may be truncated.

    Each item contains the offset of the gzip member, the position of the chunk in the decompressed member, the chunk,
    and, for the last chunk of a member, the offset at which the member ends.
    """
    unpacker = zlib.decompressobj(wbits=31)
    member = position = start
    seen = 0
    while data := file.read(CHUNK):
        while data:
            try:
                text = unpacker.decompress(data, CHUNK)
            except zlib.error as err:
                raise ParsingFailed(f"damaged near byte {position}: {err}") from err
            rest = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
            position += len(data) - len(rest)
            data = rest
            if unpacker.eof:
                yield member, seen, text, position
                unpacker, member, seen = zlib.decompressobj(wbits=31), position, 0
            elif text:
                yield member, seen, text, None
                seen += len(text)
