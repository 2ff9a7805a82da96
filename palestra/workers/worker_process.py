"""Start a worker process, exchange messages with it, monitor it, and end it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from palestra.machine import WORKER
from palestra.workers.wire import CHUNK, ActivityTable, FrameDecoder, encode_frame

_BOOT = (
    "import json, sys; path, more, fds = json.loads(sys.argv[1]); sys.path[:] = path or sys.path + more; "
    "from {module} import {name}; {name}(*fds)"
)


class WorkerProcess:
    """Worker in a separate process and session. It is killed when this process ends for any reason."""

    def __init__(
        self,
        entry: Callable[[int, int, int], None],
        config: Any,
        *,
        lanes: int,
        python: str | None = None,
        more_path: Sequence[str] = (),
        cwd: str | None = None,
    ) -> None:
        """Start a process that imports and calls `entry`, and send it `config` as the first message.

        `lanes` is the size of the activity table, with one lane per thread. `python` is the path to another
        interpreter, which uses its own `sys.path`, followed by `more_path`.
        """
        self.activity = ActivityTable(lanes)
        self.alive = True  # False once the worker has closed its socket
        self.ready = False
        self.started = monotonic()
        self._decoder = FrameDecoder()
        self._outbox = bytearray()
        self.sock, child_sock = socket.socketpair()
        self.sock.setblocking(False)
        life_fd, self._life_fd = os.pipe()  # nothing is written to this pipe; the worker exits when it is closed
        fds = [child_sock.fileno(), life_fd, self.activity.fd]
        try:
            self.process = subprocess.Popen(
                [
                    python or sys.executable,
                    "-c",
                    _BOOT.format(module=entry.__module__, name=entry.__name__),
                    json.dumps([_absolute_path() if python is None else [], list(more_path), fds]),
                ],
                cwd=cwd,
                env={**os.environ, WORKER: "1"},
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                # Ctrl-C does not reach processes in another session, and one signal kills the worker and its children.
                start_new_session=True,
            )
        except BaseException:
            self.sock.close()
            os.close(self._life_fd)
            self.activity.close()
            raise
        finally:
            child_sock.close()
            os.close(life_fd)
        self.send(config)

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, message: Any) -> None:
        """Send a message. Data that does not fit into the socket buffer is sent by the next `flush`."""
        self._outbox += encode_frame(message)
        self.flush()

    def flush(self) -> None:
        with suppress(BlockingIOError, ConnectionError):  # a dead worker is detected by `read`
            while self._outbox:
                sent = self.sock.send(self._outbox[:CHUNK])
                del self._outbox[:sent]

    @property
    def has_unsent(self) -> bool:
        return bool(self._outbox)

    def read(self) -> list[Any]:
        """Return the messages that have arrived. Set `alive` to False if the worker has closed its socket."""
        try:
            while True:
                data = self.sock.recv(CHUNK)
                if not data:
                    self.alive = False
                    break
                self._decoder.feed(data)
                if len(data) < CHUNK:
                    break
        except BlockingIOError:
            pass
        except ConnectionError:
            self.alive = False
        return self._decoder.messages()

    def exited(self) -> bool:
        """Return whether the process has ended. It is not reaped, so that its process group id stays reserved."""
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # other code has reaped the process
            return True

    @property
    def exit_status(self) -> str:
        """Exit status or signal with which the process ended, for messages."""
        code = self.process.returncode
        if code is not None and code < 0:
            try:
                return f"signal {signal.Signals(-code).name}"
            except ValueError:
                return f"signal {-code}"
        return f"exit status {code}"

    def close_input(self) -> None:
        """Close the worker's input, so that it closes its envs and exits."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """Kill the worker and all processes that it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def kill_and_read(self) -> list[Any]:
        """Kill and reap the worker, and return the remaining messages that it had sent."""
        self.kill()
        self.process.wait()
        messages = self.read()
        while self.alive:
            before = len(messages)
            messages += self.read()
            if len(messages) == before:  # no more data; a child process outside the group keeps the socket open
                break
        return messages

    def release(self) -> None:
        """Close the file descriptors for a worker that has exited."""
        self.sock.close()
        os.close(self._life_fd)
        self.activity.close()

    def forget(self) -> None:
        """Close the file descriptors in a forked copy of the parent without affecting the worker."""
        self.process.returncode = 0  # prevents a wait for the worker, which is not a child of this process
        self.release()


def _absolute_path() -> list[str]:
    """Return `sys.path` with "" replaced by the working directory, for a process with another working directory."""
    return [entry or str(Path.cwd()) for entry in sys.path]


def end_workers(workers: Sequence[WorkerProcess], grace: float) -> None:
    """Give workers up to `grace` seconds to close their envs and exit, then kill them."""
    for worker in workers:
        worker.close_input()
    end = monotonic() + grace
    while monotonic() < end and not all(worker.exited() for worker in workers):
        for worker in workers:
            worker.read()  # so that the worker does not block on a full socket
        sleep(0.002)
    for worker in workers:
        worker.kill()
        worker.process.wait()
        worker.release()
