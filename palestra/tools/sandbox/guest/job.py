"""Read a request in the confined process, and prepare the interpreter for its program."""

from __future__ import annotations

import gc
import json
import os
import socket
import struct
import sys

from palestra.tools.sandbox.guest.program import ProgramRunner

HEADER = struct.Struct("<IIBBBQ")  # lengths of the file listing and the code, followed by echo, brief, seeded and seed
CHANNEL = 3  # descriptor on which a program reports an exceeded limit, or a session receives cells


class Job:
    """Code and options read from a request file.

    The constructor creates the requested input files and truncates the request file. If the program exceeds a limit,
    the name of that limit is later written to the request file.
    """

    def __init__(self, handle: int) -> None:
        data = os.pread(handle, os.fstat(handle).st_size, 0)
        os.ftruncate(handle, 0)
        listing, size, echo, brief, seeded, seed = HEADER.unpack_from(data)
        self.seed: int | None = seed if seeded else None
        self.echo, self.brief = bool(echo), bool(brief)
        at = HEADER.size + listing
        self.code = data[at : at + size]
        at += size
        for name, length in json.loads(data[HEADER.size : HEADER.size + listing]) if listing else ():
            folder = os.path.dirname(name)  # noqa: PTH120
            if folder:
                os.makedirs(folder, exist_ok=True)  # noqa: PTH103
            with open(name, "wb") as file:  # noqa: PTH123
                file.write(data[at : at + length])
            at += length


def run_session(job: Job) -> int:
    """Run the cells received on the channel in one `__main__` until the channel closes."""
    program = ProgramRunner(echo=job.echo, brief=job.brief)
    channel = socket.socket(fileno=CHANNEL)
    while True:
        try:
            header = _receive_exactly(channel, 4)
            if not header:
                return 0
            source = _receive_exactly(channel, struct.unpack("<I", header)[0])
        except KeyboardInterrupt:  # the interrupt arrived after the cell had returned
            continue
        try:
            code, limit = program.run(source)
            program.flush()
        except KeyboardInterrupt:
            code, limit = 1, ""
        channel.sendall(json.dumps({"exit": code, "limit": limit}).encode())


def _receive_exactly(channel: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(size - len(parts), 1 << 20))
        if not part:
            return b""
        parts += part
    return bytes(parts)


def close_all_but(*kept: int) -> None:
    """Close all file descriptors except the standard streams and the arguments."""
    start = CHANNEL
    for handle in sorted(kept):
        os.closerange(start, handle)
        start = handle + 1
    os.closerange(start, 4096)


def reset_interpreter(seed: int | None, folder: str) -> None:
    """Reset the interpreter to the state of a newly started one."""
    sys.path[0] = folder
    if seed is not None:
        import random  # imported after the fork; otherwise every fork would have to reseed `random`

        random.seed(seed)
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed(None if seed is None else seed % 2**32)
    gc.enable()
