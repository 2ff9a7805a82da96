"""Template process for the symbolic workers: import the computer algebra system once and fork workers.

A message on the control socket has five bytes: an operation and a number. "F", sent with a connection's file
descriptor, forks a worker that serves the connection; the reply is the worker's process id. "E" kills the worker whose
process id is the number; the reply is its exit status. When the control socket closes, the template and all workers
exit.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import signal
import socket
import struct
import sys
from time import process_time
from typing import Any

MESSAGE = struct.Struct("<ci")
LENGTH = struct.Struct("<I")
NOT_SET_UP = 70  # exit code of a worker whose setup failed


def main(control_fd: int, memory: int) -> None:
    control = socket.socket(fileno=control_fd)
    control.set_inheritable(False)
    from palestra.grading import symbolic

    symbolic.warm_up()
    gc.collect()
    gc.freeze()  # otherwise the first garbage collection in each fork would copy every page
    base = _virtual_memory()
    control.sendall(MESSAGE.pack(b"R", os.getpid()))
    workers: set[int] = set()
    while True:
        try:
            message, handles, _, _ = socket.recv_fds(control, MESSAGE.size, 1)
            while 0 < len(message) < MESSAGE.size:
                message += control.recv(MESSAGE.size - len(message)) or b"\0" * MESSAGE.size
        except OSError:
            message, handles = b"", []
        if len(message) != MESSAGE.size:
            break
        operation, number = MESSAGE.unpack(message)
        if operation == b"F":
            number = _fork(control, handles[0], base + memory)
            if number > 0:
                workers.add(number)
            os.close(handles[0])
        elif number in workers:
            workers.discard(number)
            number = _end(number)
        try:
            control.sendall(MESSAGE.pack(operation, number))
        except OSError:
            break
    for pid in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _end(pid: int) -> int:
    """Kill a worker if it is still running; return its exit code, or the negative number of a signal."""
    os.kill(pid, signal.SIGKILL)  # the id cannot have been reused, because the process has not been waited for
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _fork(control: socket.socket, handle: int, memory: int) -> int:
    try:
        parent = os.getpid()
        pid = os.fork()
    except OSError as err:
        return -(err.errno or 1)
    if pid:
        return pid
    code = NOT_SET_UP
    try:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG: exit when the template exits
            if os.getppid() != parent:
                os._exit(1)
        control.close()
        with contextlib.suppress(ValueError, OSError):  # the limit is not supported on every platform
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        connection = socket.socket(fileno=handle)
        code = 1
        _serve(connection)
        code = 0
    finally:
        os._exit(code)


def _serve(connection: socket.socket) -> None:
    """Run comparisons until the connection closes."""
    from palestra.grading.symbolic import equal

    while True:
        header = _receive(connection, LENGTH.size)
        if not header:
            return
        job = json.loads(_receive(connection, LENGTH.unpack(header)[0]))
        reply: dict[str, Any]
        start = process_time()
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, job["cpu"])  # the kernel kills this process when its CPU time is used up
        try:
            reply = {"equal": equal(job["gold"], job["answer"])}
        except MemoryError:
            reply = {"failed": "memory"}
        except RecursionError:
            reply = {"failed": "nesting"}
        except Exception as err:  # noqa: BLE001  # the library could not parse the answer
            reply = {"equal": False, "error": f"{type(err).__name__}: {err}"[:200]}
        signal.setitimer(signal.ITIMER_PROF, 0)
        data = json.dumps({**reply, "cpu": process_time() - start}).encode()
        connection.sendall(LENGTH.pack(len(data)) + data)
        if "failed" in reply:
            return


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            return b""
        parts += part
    return bytes(parts)


def _virtual_memory() -> int:
    try:
        with open("/proc/self/statm") as file:  # noqa: PTH123
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
