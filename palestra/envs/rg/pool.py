"""Processes that run reasoning-gym, shared by every env of this process: started when needed, killed when they hang."""

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

STARTING = 120.0  # seconds for the package to be imported, on a busy machine
CROWDED = 0.5  # seconds to wait for a process before another one is started


class Worker:
    """One process. Not to be asked by two threads at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
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
        self._in: Any = self.process.stdin
        self._out: Any = self.process.stdout
        hello = self._received(STARTING)
        if hello is None or "error" in hello:
            self.end()
            if hello is not None and str(hello.get("missing")).startswith("reasoning_gym"):
                raise MissingExtra("reasoning_gym is not installed. Get it with: pip install 'palestra[rg]'")
            raise EnvFailed(f"reasoning-gym's process did not start: {(hello or {}).get('error', 'no answer')}")

    def ask(self, limit: float, **request: Any) -> dict[str, Any] | None:
        """The answer, or None where it did not come within `limit` seconds; then the process is of no more use."""
        body = json.dumps({**request, "limit": limit}).encode()
        try:
            self._in.write(struct.pack(">I", len(body)) + body)
            self._in.flush()
        except OSError:
            return None
        return self._received(limit)

    def _received(self, limit: float) -> dict[str, Any] | None:
        head = self._exactly(4, limit)
        body = None if head is None else self._exactly(struct.unpack(">I", head)[0], limit)
        return None if body is None else json.loads(body)

    def _exactly(self, count: int, limit: float) -> bytes | None:
        """That many bytes, or None where nothing came for `limit` seconds. Answers are written at once: one wait."""
        handle = self._out.fileno()
        ready = select.poll()
        ready.register(handle, select.POLLIN | select.POLLHUP)
        pieces = bytearray()
        while len(pieces) < count:
            piece = os.read(handle, count - len(pieces)) if ready.poll(limit * 1000) else b""
            if not piece:
                return None
            pieces += piece
        return bytes(pieces)

    def end(self) -> None:
        self.process.kill()
        self.forget()
        self.process.wait()

    def forget(self) -> None:
        """Let go of the pipes; a process whose pipe is closed ends."""
        for pipe in (self._in, self._out):
            with suppress(OSError):  # what was buffered cannot be written any more
                pipe.close()


class Pool:
    """A few workers. Most requests take less than a millisecond, so one serves many envs; a slow one gets company."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most or max(1, min(4, os.cpu_count() or 1))
        self._idle: list[Worker] = []
        self._all: list[Worker] = []
        self._starting = 0
        self._changed = threading.Condition()

    def ask(self, what: str, limit: float, **request: Any) -> Any:
        """The value of a request. EnvFailed where it raised, hung or took its process down; `what` names it."""
        worker = self._take()
        try:
            answer = worker.ask(limit, **request)
        except BaseException:
            self._drop(worker)  # interrupted between question and answer: the next would get this one's
            raise
        if answer is None:
            died = worker.process.poll()
            self._drop(worker)
            how = f"took longer than {limit:g} s" if died is None else f"brought its process down (exit status {died})"
            raise EnvFailed(f"reasoning-gym: {what} {how}")
        self._give_back(worker)
        if "error" in answer:
            raise EnvFailed(f"reasoning-gym: {what} raised {answer['error']}")
        return answer["value"]

    def _take(self) -> Worker:
        with self._changed:
            if not self._idle and self._all:
                self._changed.wait_for(lambda: bool(self._idle), CROWDED)
            while not self._idle and len(self._all) + self._starting >= self.most:
                self._changed.wait(1.0)
            if self._idle:
                return self._idle.pop()
            self._starting += 1
        try:
            worker = Worker()
        finally:
            with self._changed:
                self._starting -= 1
                self._changed.notify()
        with self._changed:
            self._all.append(worker)
        return worker

    def _give_back(self, worker: Worker) -> None:
        with self._changed:
            self._idle.append(worker)
            self._changed.notify()

    def _drop(self, worker: Worker) -> None:
        with self._changed:
            if worker in self._all:
                self._all.remove(worker)
            self._changed.notify()
        worker.end()

    def close(self) -> None:
        """End every process; the next request starts a new one."""
        with self._changed:
            idle, busy = self._idle, [worker for worker in self._all if worker not in self._idle]
            self._all, self._idle = [], []
        for worker in idle:
            worker.end()
        for worker in busy:
            worker.process.kill()  # who waits for it sees that, and lets go of the pipes

    def abandon(self) -> None:
        """After a fork: the workers are the parent's."""
        for worker in self._all:
            worker.process.returncode = 0  # not ours to wait for
            worker.forget()


_pool: Pool | None = None
_lock = threading.Lock()


def shared_pool() -> Pool:
    """This process's pool."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = Pool()
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
    """Keywords for a data set, as JSON can carry them, or BadValue."""
    try:
        value: dict[str, Any] = dict(json.loads(json.dumps(config)))
    except (TypeError, ValueError) as err:
        raise BadValue(f"config is a dictionary of the data set's settings, got {config!r}") from err
    for name in ("seed", "size"):
        if name in value:
            raise BadValue(f"config does not take {name}: the episode's seed draws the item")
    return value
