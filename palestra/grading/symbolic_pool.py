"""Pool of worker processes that compare expressions with a computer algebra system under resource limits.

A template process (`template_process`) imports the library once and forks workers. Each comparison runs in one worker,
with limits on CPU time and memory, which the kernel enforces. A worker that exceeds a limit is killed and replaced by a
new fork, which takes milliseconds. A comparison that exceeds its wall-clock limit, which this module enforces, is
repeated in a new worker; if that takes too long as well, the machine is overloaded and the comparison fails. When this
process exits or is killed, its socket to the template closes, and the template then kills all workers and exits.
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
from palestra.machine import usable_cores
from palestra.optional import install_command

Failure = Literal["time", "memory", "nesting", "crash"]

START_TIMEOUT = 120.0  # seconds; the template imports sympy, possibly on a busy machine
MEMORY = 512 << 20  # bytes per worker in addition to the template's own memory
MAX_COMPARISONS = 2_000  # a worker is replaced after this many comparisons, because caches grow
SLOW = 0.25  # seconds after which a comparison no longer counts toward `workers`
_BOOT = (
    "import json, sys; path, *args = json.loads(sys.argv[1]); sys.path[:] = path; "
    "from palestra.grading.template_process import main; main(*args)"
)
_pools: weakref.WeakSet[SymbolicPool] = weakref.WeakSet()


class _ProcessLost(Exception):
    """A process exited unexpectedly."""


class _Template:
    """Handle for the template process, which forks workers."""

    def __init__(self, memory: int) -> None:
        self._lock = threading.Lock()
        self._control, remote = socket.socketpair()
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # stays open as long as the process runs
        try:
            with remote:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _BOOT, json.dumps([sys.path, remote.fileno(), memory])],
                    pass_fds=[remote.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._stderr,
                    start_new_session=True,  # so that Ctrl-C does not interrupt the template
                )
            self._control.settimeout(START_TIMEOUT)
            if self._received()[0] != b"R":
                raise _ProcessLost
            self._control.settimeout(120.0)
        except (OSError, _ProcessLost) as err:
            stderr = self._last_errors()
            self.close()
            raise EnvFailed(f"the math grader's workers do not start: {stderr or err or type(err).__name__}") from err

    def fork(self, connection: socket.socket) -> int:
        """Fork a worker that serves `connection`, and return its process id."""
        with self._lock:
            socket.send_fds(self._control, [MESSAGE.pack(b"F", 0)], [connection.fileno()])
            pid = self._received()[1]
        if pid <= 0:
            raise EnvFailed(f"the math grader cannot fork a worker: {os.strerror(-pid)}")
        return pid

    def end(self, pid: int) -> int:
        """Kill a worker; return its exit code, or the negative number of the signal that killed it."""
        with self._lock:
            self._control.sendall(MESSAGE.pack(b"E", pid))
            return self._received()[1]

    def _received(self) -> tuple[bytes, int]:
        data = b""
        while len(data) < MESSAGE.size:
            part = self._control.recv(MESSAGE.size - len(data))
            if not part:
                raise _ProcessLost
            data += part
        operation, number = MESSAGE.unpack(data)
        return operation, number

    def _last_errors(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            self._stderr.seek(0)
            return self._stderr.read()[-500:].decode("utf-8", "replace").strip()
        return ""

    def close(self) -> None:
        """Stop the template and all its workers."""
        self._control.close()
        process = getattr(self, "_process", None)
        if process is not None:
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._stderr.close()

    def detach(self) -> None:
        """Release the descriptors in a forked child, without stopping the parent's template."""
        self._control.close()
        self._stderr.close()
        process = getattr(self, "_process", None)
        if process is not None:
            process.returncode = 0  # a forked child cannot wait for its parent's processes


class _SymbolicWorker:
    """Handle for one worker."""

    def __init__(self, template: _Template) -> None:
        self.template = template
        self.comparisons = 0
        self.connection, remote = socket.socketpair()
        try:
            with remote:
                self.pid = template.fork(remote)
        except BaseException:
            self.connection.close()
            raise

    def compare(self, job: bytes, wall: float) -> dict[str, Any]:
        """Return the worker's reply; raise TimeoutError after `wall` seconds, _ProcessLost if the worker exits."""
        self.comparisons += 1
        end = monotonic() + wall
        try:
            self.connection.settimeout(wall)
            self.connection.sendall(LENGTH.pack(len(job)) + job)
            size = LENGTH.unpack(self._receive(LENGTH.size, end))[0]
            reply: dict[str, Any] = json.loads(self._receive(size, end))
        except TimeoutError:
            raise
        except OSError as err:
            raise _ProcessLost from err
        return reply

    def _receive(self, size: int, end: float) -> bytes:
        parts = b""
        while len(parts) < size:
            self.connection.settimeout(max(0.001, end - monotonic()))
            part = self.connection.recv(size - len(parts))
            if not part:
                raise _ProcessLost
            parts += part
        return parts

    def end(self) -> int:
        self.connection.close()
        try:
            return self.template.end(self.pid)
        except OSError as err:
            raise _ProcessLost from err


class SymbolicPool:
    """Pool of symbolic workers, started on first use; can be used from any thread and in forked processes."""

    def __init__(self, *, workers: int | None = None, memory: int = MEMORY) -> None:
        """Create a pool without starting processes.

        `workers` is the maximum number of concurrent comparisons. Slow comparisons do not count toward it, but the
        total never exceeds four times this number.
        """
        self.workers = workers or max(2, usable_cores())
        self._memory = memory
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._template: _Template | None = None
        self._start_lock = threading.Lock()
        self._idle: list[_SymbolicWorker] = []
        self._busy: set[_SymbolicWorker] = set()
        self._changed = threading.Condition()
        self._running: dict[object, float] = {}

    def compare(self, gold: str, answer: str, *, cpu: float, wall: float) -> bool | Failure:
        """Return whether two expressions are equal, or the exceeded limit; raise EnvFailed if no worker can run."""
        return self.timed_compare(gold, answer, cpu=cpu, wall=wall)[0]

    def timed_compare(self, gold: str, answer: str, *, cpu: float, wall: float) -> tuple[bool | Failure, float]:
        """Return the result of `compare` and the CPU seconds that it used."""
        job = json.dumps({"gold": gold, "answer": answer, "cpu": cpu}).encode()
        ticket = object()
        self._enter(ticket)
        try:
            crashes = 0
            for attempt in range(5):
                worker = self._acquire(fresh=attempt > 0)
                try:
                    reply = worker.compare(job, wall)
                except TimeoutError as err:  # the worker has not used up its CPU time, so the machine is overloaded
                    self._drop(worker)
                    if attempt > 0:
                        raise EnvFailed(f"the math grader's workers do not reply within {wall:g} s") from err
                    continue
                except _ProcessLost:
                    status = self._drop(worker)
                    if status == -signal.SIGPROF:
                        return "time", cpu
                    # A worker that was killed, or whose setup failed, does not count as a crash.
                    if worker.comparisons == 1 and status not in (None, -signal.SIGKILL, NOT_SET_UP):
                        crashes += 1
                    if crashes == 2:
                        return "crash", cpu
                    continue
                except BaseException:
                    self._drop(worker)
                    raise
                if "failed" in reply or worker.comparisons >= MAX_COMPARISONS:
                    self._drop(worker)
                else:
                    self._put_back(worker)
                return reply["failed"] if "failed" in reply else bool(reply["equal"]), reply["cpu"]
            raise EnvFailed("the math grader's workers exit repeatedly")
        finally:
            with self._changed:
                del self._running[ticket]
                self._changed.notify()

    def _enter(self, ticket: object) -> None:
        """Wait until another comparison may start; slow comparisons do not block others."""
        with self._changed:
            while True:
                now = monotonic()
                recent = sum(now - start < SLOW for start in self._running.values())
                if recent < self.workers and len(self._running) < 4 * self.workers:
                    self._running[ticket] = now
                    return
                self._changed.wait(SLOW / 2)

    def _acquire(self, *, fresh: bool) -> _SymbolicWorker:
        with self._changed:
            if self._idle and not fresh:
                worker = self._idle.pop()
                self._busy.add(worker)
                return worker
        for attempt in range(3):
            template = self._get_template()
            try:
                worker = _SymbolicWorker(template)
            except (OSError, _ProcessLost) as err:
                self._discard(template)
                if attempt == 2:
                    raise EnvFailed(
                        f"the math grader's workers do not start: {err or 'their template exited'}"
                    ) from err
                continue
            with self._changed:
                self._busy.add(worker)
            return worker
        raise AssertionError("unreachable: the last attempt raises its error")

    def _put_back(self, worker: _SymbolicWorker) -> None:
        with self._changed:
            self._busy.discard(worker)
            if worker.template is self._template and len(self._idle) < self.workers:
                self._idle.append(worker)
                return
        self._drop(worker)

    def _drop(self, worker: _SymbolicWorker) -> int | None:
        """Kill a worker; return its exit status, or None if its template has exited too."""
        with self._changed:
            self._busy.discard(worker)
        try:
            return worker.end()
        except _ProcessLost:
            self._discard(worker.template)
            return None

    def _get_template(self) -> _Template:
        with self._start_lock:
            if self._template is None:
                if importlib.util.find_spec("math_verify") is None:
                    raise MissingExtra(f"math_verify is not installed. Install it with: {install_command('math')}")
                self._template = _Template(self._memory)
            return self._template

    def _discard(self, template: _Template) -> None:
        """Stop using a template that has exited."""
        with self._start_lock:
            if self._template is template:
                self._template = None
                with self._changed:
                    idle, self._idle = self._idle, []
                for worker in idle:
                    worker.connection.close()
                template.close()

    def close(self) -> None:
        """Stop all processes; the next comparison starts new ones. Idempotent."""
        template = self._template
        if template is not None:
            self._discard(template)

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def _detach(self) -> None:
        """Reset the pool in a forked child, because the existing workers belong to the parent."""
        for worker in [*self._idle, *self._busy]:
            worker.connection.close()
        if self._template is not None:
            self._template.detach()
        self._reset()


_shared: SymbolicPool | None = None
_shared_lock = threading.Lock()


def shared_pool() -> SymbolicPool:
    """Return the pool that all graders in this process share; it is closed when the process exits."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = SymbolicPool()
        return _shared


def _in_child() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()
    for pool in list(_pools):
        pool._detach()


os.register_at_fork(after_in_child=_in_child)


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        with contextlib.suppress(Exception):
            pool.close()
