"""Set up a worker process: connect to its parent, exit with it, limit memory, and tune garbage collection."""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

from palestra.workers.wire import CHUNK, FrameDecoder


def connect_to_parent(sock_fd: int, life_fd: int, activity_fd: int) -> tuple[socket.socket, FrameDecoder, list[Any]]:
    """Use the file descriptors passed by the parent to connect to it, and wait for its first messages.

    The list of messages is empty if the parent has already exited.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    for fd in (sock_fd, life_fd, activity_fd):
        os.set_inheritable(fd, False)
    end_with_parent(life_fd)
    sock = socket.socket(fileno=sock_fd)
    decoder = FrameDecoder()
    messages: list[Any] = []
    while not messages:
        data = sock.recv(CHUNK)
        if not data:
            break
        decoder.feed(data)
        messages = decoder.messages()
    return sock, decoder, messages


def end_with_parent(fd: int) -> None:
    """Kill this process group as soon as the other end of the pipe `fd` is closed."""
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
        with suppress(BlockingIOError):  # the pipe is still open
            os.set_blocking(fd, False)
            if os.read(fd, 1) == b"":
                os._exit(0)
    else:
        threading.Thread(target=_kill_on_close, args=(fd,), daemon=True).start()


def _kill_on_close(fd: int) -> None:
    os.read(fd, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def limit_memory(limit: int) -> None:
    """Limit this process's memory to `limit` bytes. Allocations beyond the limit raise MemoryError."""
    # On Linux, limit only the data segment, because libraries reserve gigabytes of address space without using it.
    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))


def tune_gc() -> None:
    """Run the garbage collector less often, for a process that creates thousands of small, short-lived objects.

    Existing objects are excluded, because collecting all of them would take tens of milliseconds.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
