"""Parent's side of a worker process: start it, exchange messages, watch it, end it."""

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

from palestra.workers.wire import CHUNK, ActivityTable, FrameDecoder, encode_frame

_BOOT = (
    "import json, sys; path, more, fds = json.loads(sys.argv[1]); sys.path[:] = path or sys.path + more; "
    "from {module} import {name}; {name}(*fds)"
)


class WorkerProcess:
    """Worker in a separate process and session; the kernel kills it when this process ends in any way."""

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

        `lanes`: size of the activity table, one lane per thread. `python`: path of another interpreter, which keeps
        its own `sys.path`, followed by `more_path`.
        """
        self.activity = ActivityTable(lanes)
        self.alive = True  # False once the end of its messages was read
        self.ready = False
        self.started = monotonic()
        self._decoder = FrameDecoder()
        self._outbox = bytearray()
        self.sock, child_sock = socket.socketpair()
        self.sock.setblocking(False)
        life_fd, self._life_fd = os.pipe()  # never written to: its closing ends the worker
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
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # keeps Ctrl-C away from it, and one signal ends it with its children
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
        """Send a message; what does not fit into the socket now is sent by the next `flush`."""
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
        """Return the messages that have arrived; `alive` becomes False when no more will come."""
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
        except ChildProcessError:  # reaped by other code of this process
            return True

    @property
    def exit_status(self) -> str:
        """Describe how the process ended, for messages."""
        code = self.process.returncode
        if code is not None and code < 0:
            try:
                return f"signal {signal.Signals(-code).name}"
            except ValueError:
                return f"signal {-code}"
        return f"exit status {code}"

    def close_input(self) -> None:
        """Let the worker close its envs and exit."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """Kill the worker and every process it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def kill_and_read(self) -> list[Any]:
        """Kill the worker, reap it, and return the messages it had sent."""
        self.kill()
        self.process.wait()
        messages = self.read()
        while self.alive:
            before = len(messages)
            messages += self.read()
            if len(messages) == before:  # a child that left the process group holds the socket open
                break
        return messages

    def release(self) -> None:
        """Close the handles of a worker that has ended."""
        self.sock.close()
        os.close(self._life_fd)
        self.activity.close()

    def forget(self) -> None:
        """Close the handles that a fork of the parent inherited, without affecting the worker."""
        self.process.returncode = 0  # not a child of this process: never wait for it
        self.release()


def _absolute_path() -> list[str]:
    """Return `sys.path` with the working directory spelled out, for a process that starts in another one."""
    return [entry or str(Path.cwd()) for entry in sys.path]


def end_workers(workers: Sequence[WorkerProcess], grace: float) -> None:
    """End workers: let them close their envs for up to `grace` seconds, then kill them."""
    for worker in workers:
        worker.close_input()
    end = monotonic() + grace
    while monotonic() < end and not all(worker.exited() for worker in workers):
        for worker in workers:
            worker.read()  # so that none blocks while writing
        sleep(0.002)
    for worker in workers:
        worker.kill()
        worker.process.wait()
        worker.release()
