"""Questions to the algebra system -> answers within their limits, from any thread, whatever the question does.

A template process (`forge`) loads the library once and forks workers. Each question has a worker to itself, with a
limit of processor time that the kernel enforces, of memory, and of wall-clock time that we do; a worker that is past
one is killed and replaced by another fork, which takes milliseconds. Everything hangs by one socket: when this process
goes, however it goes, the template sees its end and ends all workers.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from time import monotonic
from typing import IO, Any, Literal

from palestra.errors import EnvFailed, MissingExtra
from palestra.grading.template_process import LENGTH, MESSAGE, NOT_SET_UP

Failure = Literal["time", "memory", "nesting", "crash"]

START = 120.0  # seconds the template may take to load the library, on a machine that may be busy
MEMORY = 512 << 20  # bytes a worker may add to what the template has
LIVES = 2_000  # questions a worker answers before it is replaced: the library's caches grow
SLOW = 0.25  # seconds after which a question counts as slow, and no longer keeps others waiting
_BOOT = (
    "import json, sys; path, *args = json.loads(sys.argv[1]); sys.path[:] = path; "
    "from palestra.grading.template_process import main; main(*args)"
)
_NO_START = "the workers of the math grader do not start"
_pools: weakref.WeakSet[Workers] = weakref.WeakSet()


class _Gone(Exception):
    """A process that should be there is not."""


class _Template:
    """The process that forks workers, as its parent has it."""

    def __init__(self, memory: int) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _BOOT, json.dumps([sys.path, theirs.fileno(), memory])],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._errors,
                    start_new_session=True,  # a Ctrl-C is not meant for it
                )
            self._control.settimeout(START)
            if self._received()[0] != b"R":
                raise _Gone
            self._control.settimeout(30.0)
        except (OSError, _Gone) as err:
            said = self._said()
            self.close()
            raise EnvFailed(
                f"the workers of the math grader do not start: {said or err or type(err).__name__}"
            ) from err

    def fork(self, connection: socket.socket) -> int:
        """A new worker on `connection`; its process id."""
        with self._lock:
            socket.send_fds(self._control, [MESSAGE.pack(b"F", 0)], [connection.fileno()])
            pid = self._received()[1]
        if pid <= 0:
            raise EnvFailed(f"no worker can be forked for the math grader: {os.strerror(-pid)}")
        return pid

    def end(self, pid: int) -> int:
        """End a worker; how it ended: minus a signal, or its exit code."""
        with self._lock:
            self._control.sendall(MESSAGE.pack(b"E", pid))
            return self._received()[1]

    def _received(self) -> tuple[bytes, int]:
        data = b""
        while len(data) < MESSAGE.size:
            part = self._control.recv(MESSAGE.size - len(data))
            if not part:
                raise _Gone
            data += part
        operation, number = MESSAGE.unpack(data)
        return operation, number

    def _said(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            self._errors.seek(0)
            return self._errors.read()[-500:].decode("utf-8", "replace").strip()
        return ""

    def close(self) -> None:
        """It ends all workers and itself."""
        self._control.close()
        process = getattr(self, "_process", None)
        if process is not None:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._errors.close()

    def forget(self) -> None:
        """In a fork of the parent: let go of what is the parent's."""
        self._control.close()
        self._errors.close()
        process = getattr(self, "_process", None)
        if process is not None:
            process.returncode = 0  # not ours to wait for


class _Worker:
    """One worker, as we talk to it."""

    def __init__(self, template: _Template) -> None:
        self.template = template
        self.asked = 0
        self.connection, theirs = socket.socketpair()
        try:
            with theirs:
                self.pid = template.fork(theirs)
        except BaseException:
            self.connection.close()
            raise

    def ask(self, job: bytes, wall: float) -> dict[str, Any]:
        """Its answer. TimeoutError where it takes longer; _Gone where it ends without one."""
        self.asked += 1
        end = monotonic() + wall
        try:
            self.connection.settimeout(wall)
            self.connection.sendall(LENGTH.pack(len(job)) + job)
            size = LENGTH.unpack(self._exactly(LENGTH.size, end))[0]
            answer: dict[str, Any] = json.loads(self._exactly(size, end))
        except TimeoutError:
            raise
        except OSError as err:
            raise _Gone from err
        return answer

    def _exactly(self, size: int, end: float) -> bytes:
        parts = b""
        while len(parts) < size:
            self.connection.settimeout(max(0.001, end - monotonic()))
            part = self.connection.recv(size - len(parts))
            if not part:
                raise _Gone
            parts += part
        return parts

    def end(self) -> int:
        self.connection.close()
        try:
            return self.template.end(self.pid)
        except OSError as err:
            raise _Gone from err


class Workers:
    """A pool of symbolic workers; started when first asked, safe from any thread and in forks."""

    def __init__(self, *, workers: int | None = None, memory: int = MEMORY) -> None:
        """`workers`: questions at a time; slow ones do not count, up to four times as many in all."""
        self.workers = workers or max(2, os.cpu_count() or 1)
        self._memory = memory
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        self._template: _Template | None = None
        self._starting = threading.Lock()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._turn = threading.Condition()
        self._running: dict[object, float] = {}

    def ask(self, gold: str, answer: str, *, cpu: float, wall: float) -> bool | Failure:
        """Are they equal? Or which limit the question broke. EnvFailed where no worker can be had."""
        job = json.dumps({"gold": gold, "answer": answer, "cpu": cpu}).encode()
        ticket = object()
        self._enter(ticket)
        try:
            crashes = 0
            for attempt in range(5):
                worker = self._take(fresh=attempt > 0)
                try:
                    said = worker.ask(job, wall)
                except TimeoutError:
                    self._drop(worker)
                    return "time"
                except _Gone:
                    status = self._drop(worker)
                    if status == -signal.SIGPROF:
                        return "time"
                    # A worker that somebody killed, or that could not set itself up, says nothing about the question.
                    if worker.asked == 1 and status not in (None, -signal.SIGKILL, NOT_SET_UP):
                        crashes += 1
                    if crashes == 2:
                        return "crash"
                    continue
                except BaseException:
                    self._drop(worker)
                    raise
                if "failed" in said or worker.asked >= LIVES:
                    self._drop(worker)
                else:
                    self._put_back(worker)
                return said["failed"] if "failed" in said else bool(said["equal"])
            raise EnvFailed("the workers of the math grader are lost time and again")
        finally:
            with self._turn:
                del self._running[ticket]
                self._turn.notify()

    def _enter(self, ticket: object) -> None:
        """Wait for a turn. Questions that take long do not keep others from theirs."""
        with self._turn:
            while True:
                now = monotonic()
                quick = sum(now - began < SLOW for began in self._running.values())
                if quick < self.workers and len(self._running) < 4 * self.workers:
                    self._running[ticket] = now
                    return
                self._turn.wait(SLOW / 2)

    def _take(self, *, fresh: bool) -> _Worker:
        with self._turn:
            if self._idle and not fresh:
                worker = self._idle.pop()
                self._busy.add(worker)
                return worker
        for attempt in range(3):
            template = self._started()
            try:
                worker = _Worker(template)
            except (OSError, _Gone) as err:
                self._lost(template)
                if attempt == 2:
                    raise EnvFailed(
                        f"the workers of the math grader do not start: {err or 'their template died'}"
                    ) from err
                continue
            with self._turn:
                self._busy.add(worker)
            return worker
        raise AssertionError("the last attempt raises")

    def _put_back(self, worker: _Worker) -> None:
        with self._turn:
            self._busy.discard(worker)
            if worker.template is self._template and len(self._idle) < self.workers:
                self._idle.append(worker)
                return
        self._drop(worker)

    def _drop(self, worker: _Worker) -> int | None:
        """End it; how it ended, None where its template is gone as well."""
        with self._turn:
            self._busy.discard(worker)
        try:
            return worker.end()
        except _Gone:
            self._lost(worker.template)
            return None

    def _started(self) -> _Template:
        with self._starting:
            if self._template is None:
                if importlib.util.find_spec("math_verify") is None:
                    raise MissingExtra("math_verify is not installed. Get it with: pip install 'palestra[math]'")
                self._template = _Template(self._memory)
            return self._template

    def _lost(self, template: _Template) -> None:
        """Use no more of a template that died."""
        with self._starting:
            if self._template is template:
                self._template = None
                with self._turn:
                    idle, self._idle = self._idle, []
                for worker in idle:
                    worker.connection.close()
                template.close()

    def close(self) -> None:
        """End all processes; the next question starts others. May be called twice."""
        template = self._template
        if template is not None:
            self._lost(template)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def _forget(self) -> None:
        """In a fork: the processes are the parent's; begin anew."""
        for worker in [*self._idle, *self._busy]:
            worker.connection.close()
        if self._template is not None:
            self._template.forget()
        self._begin()


_shared: Workers | None = None
_shared_lock = threading.Lock()


def shared_workers() -> Workers:
    """The pool of this process; ends with it."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Workers()
        return _shared


def _in_child() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()
    for pool in list(_pools):
        pool._forget()


os.register_at_fork(after_in_child=_in_child)


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        with contextlib.suppress(Exception):
            pool.close()
