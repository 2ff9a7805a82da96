"""Pool of reasoning-gym processes that all environments in this process share; processes that hang are killed."""

from __future__ import annotations

import atexit
import json
import os
import select
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

from palestra.errors import BadValue, EnvFailed, MissingExtra
from palestra.machine import usable_cores
from palestra.optional import install_command

START_TIMEOUT = 120.0  # seconds; importing the package takes long on a busy machine
MAX_WAIT = 0.5  # seconds to wait for an idle process before starting another process


class GymProcess:
    """Process that runs reasoning-gym; not thread-safe."""

    def __init__(self) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "palestra.envs.rg.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                "PYTHONHASHSEED": "0",
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            },
        )
        self._in: Any = self.popen.stdin
        self._out: Any = self.popen.stdout
        hello = self._receive(START_TIMEOUT)
        if hello is None or "error" in hello:
            self.kill()
            if hello is not None and str(hello.get("missing")).startswith("reasoning_gym"):
                raise MissingExtra(f"reasoning_gym is not installed. Install it with: {install_command('rg')}")
            raise EnvFailed(f"the reasoning-gym process did not start: {(hello or {}).get('error', 'no reply')}")

    def request(self, timeout: float, **request: Any) -> dict[str, Any] | None:
        """Return the reply, or None if there is none within `timeout` seconds; the process must then be killed."""
        body = json.dumps({**request, "timeout": timeout}).encode()
        try:
            self._in.write(struct.pack(">I", len(body)) + body)
            self._in.flush()
        except OSError:
            return None
        return self._receive(timeout)

    def _receive(self, timeout: float) -> dict[str, Any] | None:
        head = self._read_exactly(4, timeout)
        body = None if head is None else self._read_exactly(struct.unpack(">I", head)[0], timeout)
        return None if body is None else json.loads(body)

    def _read_exactly(self, count: int, timeout: float) -> bytes | None:
        """Read `count` bytes, or return None if no data arrives for `timeout` seconds."""
        handle = self._out.fileno()
        ready = select.poll()
        ready.register(handle, select.POLLIN | select.POLLHUP)
        data = bytearray()
        while len(data) < count:
            chunk = os.read(handle, count - len(data)) if ready.poll(timeout * 1000) else b""
            if not chunk:
                return None
            data += chunk
        return bytes(data)

    def kill(self) -> None:
        self.popen.kill()
        self.close_pipes()
        self.popen.wait()

    def close_pipes(self) -> None:
        """Close the pipes, which makes the process exit."""
        for pipe in (self._in, self._out):
            with suppress(OSError):  # raised if buffered data can no longer be written
                pipe.close()


class GymProcessPool:
    """Pool that starts processes on demand; one is usually enough because requests take less than a millisecond."""

    def __init__(self, max_processes: int | None = None) -> None:
        self.max_processes = max_processes or max(1, min(4, usable_cores()))
        self._idle: list[GymProcess] = []
        self._all: list[GymProcess] = []
        self._starting = 0
        self._changed = threading.Condition()

    def request(self, description: str, timeout: float, **request: Any) -> Any:
        """Return the result of a request; if it raises, hangs or crashes, raise EnvFailed with `description`."""
        process = self._acquire()
        try:
            reply = process.request(timeout, **request)
        except BaseException:
            self._discard(process)  # the process's pending reply would be mistaken for the next reply
            raise
        if reply is None:
            status = process.popen.poll()
            self._discard(process)
            failure = (
                f"took longer than {timeout:g} s" if status is None else f"crashed its process (exit status {status})"
            )
            raise EnvFailed(f"reasoning-gym: {description} {failure}")
        self._release(process)
        if "error" in reply:
            raise EnvFailed(f"reasoning-gym: {description} raised {reply['error']}")
        return reply["value"]

    def _acquire(self) -> GymProcess:
        with self._changed:
            if not self._idle and self._all:
                self._changed.wait_for(lambda: bool(self._idle), MAX_WAIT)
            while not self._idle and len(self._all) + self._starting >= self.max_processes:
                self._changed.wait(1.0)
            if self._idle:
                return self._idle.pop()
            self._starting += 1
        try:
            process = GymProcess()
        finally:
            with self._changed:
                self._starting -= 1
                self._changed.notify()
        with self._changed:
            self._all.append(process)
        return process

    def _release(self, process: GymProcess) -> None:
        with self._changed:
            self._idle.append(process)
            self._changed.notify()

    def _discard(self, process: GymProcess) -> None:
        with self._changed:
            if process in self._all:
                self._all.remove(process)
            self._changed.notify()
        process.kill()

    def close(self) -> None:
        """Kill every process; the next request starts a new one."""
        with self._changed:
            idle, busy = self._idle, [process for process in self._all if process not in self._idle]
            self._all, self._idle = [], []
        for process in idle:
            process.kill()
        for process in busy:
            process.popen.kill()  # the thread that waits for its reply will discard the process

    def abandon(self) -> None:
        """Detach a forked child from the processes, which belong to the parent."""
        for process in self._all:
            process.popen.returncode = 0  # marks it as finished, because only the parent can wait for it
            process.close_pipes()


_pool: GymProcessPool | None = None
_lock = threading.Lock()


def shared_pool() -> GymProcessPool:
    """Return the process pool that all environments in this process share."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = GymProcessPool()
        return _pool


def _close() -> None:
    if _pool is not None:
        _pool.close()


def _forked() -> None:
    global _pool, _lock
    _lock = threading.Lock()
    if _pool is not None:
        _pool.abandon()
        _pool = None


atexit.register(_close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def check_config(config: object) -> dict[str, Any]:
    """Return a JSON copy of the settings; raise BadValue if they are not serializable or contain `seed` or `size`."""
    try:
        value: dict[str, Any] = dict(json.loads(json.dumps(config)))
    except (TypeError, ValueError) as err:
        raise BadValue(
            f"config must be a JSON-serializable dictionary of the dataset's settings, got {config!r}"
        ) from err
    for name in ("seed", "size"):
        if name in value:
            raise BadValue(f"config must not contain {name}: each episode generates one item from its own seed")
    return value
