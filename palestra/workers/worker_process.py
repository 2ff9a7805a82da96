"""WorkerProcess: one worker process as its parent has it - started, written to, read from, watched and ended."""

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

from palestra.workers.types import Command
from palestra.workers.wire import CHUNK, Frames, Marks, frame

_BOOT = (
    "import json, sys; path, more, fds = json.loads(sys.argv[1]); sys.path[:] = path or sys.path + more; "
    "from {module} import {name}; {name}(*fds)"
)


class WorkerProcess:
    """A worker in a process and session of its own; it dies with this process, whatever kills it."""

    def __init__(
        self,
        entry: Callable[[int, int, int], None],
        orders: Any,
        *,
        lanes: int,
        python: str | None = None,
        more_path: Sequence[str] = (),
        cwd: str | None = None,
    ) -> None:
        """Start a process that imports and calls `entry`.

        `python`: path of another interpreter, which keeps its own `sys.path`, followed by `more_path`.
        """
        self.marks = Marks(lanes)
        self.alive = True  # as far as we have read
        self.ready = False
        self.started = monotonic()
        self._frames = Frames()
        self._outbox = bytearray()
        self.sock, theirs = socket.socketpair()
        self.sock.setblocking(False)
        lifeline, self._lifeline = os.pipe()  # nothing is ever written: its end is the message
        fds = [theirs.fileno(), lifeline, self.marks.fd]
        try:
            self.process = subprocess.Popen(
                [
                    python or sys.executable,
                    "-c",
                    _BOOT.format(module=entry.__module__, name=entry.__name__),
                    json.dumps([_path() if python is None else [], list(more_path), fds]),
                ],
                cwd=cwd,
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # no Ctrl-C for it, and one signal ends it with all it has started
            )
        except BaseException:
            self.sock.close()
            os.close(self._lifeline)
            self.marks.close()
            raise
        finally:
            theirs.close()
            os.close(lifeline)
        self._outbox += frame(orders)
        self.push()

    def send(self, commands: list[Command], whole: bool = False) -> None:
        """Hand over a batch; what does not fit now goes with the next `push`."""
        self.post((commands, whole))

    def post(self, message: Any) -> None:
        """Hand over anything that its reader understands."""
        self._outbox += frame(message)
        self.push()

    def push(self) -> None:
        with suppress(BlockingIOError, ConnectionError):  # a dead worker is found out when it is read from
            while self._outbox:
                sent = self.sock.send(self._outbox[:CHUNK])
                del self._outbox[:sent]

    @property
    def full(self) -> bool:
        """Is something left to push?"""
        return bool(self._outbox)

    def read(self) -> list[Any]:
        """The messages that have arrived; `alive` turns False where none will any more."""
        try:
            while True:
                data = self.sock.recv(CHUNK)
                if not data:
                    self.alive = False
                    break
                self._frames.feed(data)
                if len(data) < CHUNK:
                    break
        except BlockingIOError:
            pass
        except ConnectionError:
            self.alive = False
        return self._frames.take()

    def exited(self) -> bool:
        """Has the process ended? It is not reaped by this, so that its group keeps its number."""
        try:
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # somebody else reaped it
            return True

    def hang_up(self) -> None:
        """Ask the worker to close its envs and end."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End it and whatever it has started, now."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def last_words(self) -> list[Any]:
        """After `kill` or its own death: everything it had written."""
        self.kill()
        self.process.wait()
        messages = self.read()
        while self.alive:
            before = len(messages)
            messages += self.read()
            if len(messages) == before:  # a process that left the group still holds the other end
                break
        return messages

    def release(self) -> None:
        """Give back the handles of a worker that has ended."""
        self.sock.close()
        os.close(self._lifeline)
        self.marks.close()

    def forget(self) -> None:
        """In a fork of the parent: close the copies of its handles, and leave the worker alone."""
        self.process.returncode = 0  # not ours to wait for
        self.release()


def _path() -> list[str]:
    """Where this process finds modules, from whatever folder."""
    return [entry or str(Path.cwd()) for entry in sys.path]


def end_all(links: list[WorkerProcess], grace: float) -> None:
    """End workers, in peace where they do so within `grace` seconds."""
    for link in links:
        link.hang_up()
    end = monotonic() + grace
    while monotonic() < end and not all(link.exited() for link in links):
        for link in links:
            link.read()  # so that nobody is stuck writing
        sleep(0.002)
    for link in links:
        link.kill()
        link.process.wait()
        link.release()
