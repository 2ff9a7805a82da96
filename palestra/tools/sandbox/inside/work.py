"""A request as the confined fork meets it: read it, set the interpreter up as if new, run its program or its cells."""

from __future__ import annotations

import gc
import json
import os
import socket
import struct
import sys

from palestra.tools.sandbox.inside.runner import Program

HEADER = struct.Struct("<IIBBBQ")  # of a request: bytes of the files' names, of code; echo, brief, seeded, seed
CHANNEL = 3  # a program's descriptor for notes, and for a session's cells


class Work:
    """A request, read by the program that will carry it out; the file it came in is left empty, for a note."""

    def __init__(self, handle: int) -> None:
        data = os.pread(handle, os.fstat(handle).st_size, 0)
        os.ftruncate(handle, 0)
        names, size, echo, brief, seeded, seed = HEADER.unpack_from(data)
        self.seed: int | None = seed if seeded else None
        self.echo, self.brief = bool(echo), bool(brief)
        at = HEADER.size + names
        self.code = data[at : at + size]
        at += size
        for name, length in json.loads(data[HEADER.size : HEADER.size + names]) if names else ():
            folder = os.path.dirname(name)  # noqa: PTH120
            if folder:
                os.makedirs(folder, exist_ok=True)  # noqa: PTH103
            with open(name, "wb") as file:  # noqa: PTH123
                file.write(data[at : at + length])
            at += length


def converse(work: Work) -> int:
    """A session: run cells as they come, in one `__main__`."""
    program = Program(echo=work.echo, brief=work.brief)
    channel = socket.socket(fileno=CHANNEL)
    while True:
        try:
            header = _exactly(channel, 4)
            if not header:
                return 0
            source = _exactly(channel, struct.unpack("<I", header)[0])
        except KeyboardInterrupt:  # it came when the cell was over
            continue
        try:
            code, limit = program.run(source)
            program.flush()
        except KeyboardInterrupt:
            code, limit = 1, ""
        channel.sendall(json.dumps({"exit": code, "limit": limit}).encode())


def _exactly(channel: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(size - len(parts), 1 << 20))
        if not part:
            return b""
        parts += part
    return bytes(parts)


def close_but(one: int, other: int) -> None:
    """Close all descriptors from 3 up but these two."""
    low, high = (one, other) if one < other else (other, one)
    os.closerange(CHANNEL, low)
    os.closerange(low + 1, high)
    os.closerange(high + 1, 4096)


def fresh(seed: int | None, folder: str) -> None:
    """An interpreter as it is when it has just been started."""
    sys.path[0] = folder
    if seed is not None:
        import random  # not before the fork: every fork would have to seed it anew

        random.seed(seed)
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed(None if seed is None else seed % 2**32)
    gc.enable()
