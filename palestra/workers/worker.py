"""The life of a worker process: reads commands, carries them out, writes replies, and ends with its parent."""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import resource
import signal
import socket
import sys
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, NoReturn

from palestra.errors import EnvFailed, PalestraError
from palestra.workers.env_runner import EnvRunner
from palestra.workers.executor import MOST_PATIENCE, PATIENCE, Executor, ExecutorThread
from palestra.workers.types import CALL, NO_REWARD, STEP, Autoreset, Command, Factory, Limits, Reply
from palestra.workers.wire import CHUNK, Frames, Marks, frame

SPOILED = 86  # exit status: out of memory, and the marks say whose fault it was
FOREVER = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a worker is told first."""

    factories: bytes  # pickled apart, since they may need cloudpickle
    indices: list[int]
    roots: list[int]
    autoreset: Autoreset
    limits: Limits
    threads: int
    lanes: int
    eager: bool  # make the envs now and say how that went; a replacement makes each when it is needed


class Worker:
    def __init__(self, sock: socket.socket, orders: Orders, marks: Marks) -> None:
        self._sock = sock
        self._marks = marks
        self._limits = orders.limits
        self._timed = orders.limits.step_timeout is not None or orders.limits.reset_timeout is not None
        self._done: deque[Reply] = deque()
        self._sending = threading.Lock()
        self._here = threading.local()
        factories: list[Factory] = pickle.loads(orders.factories)  # noqa: S301  # from our own parent
        self._runners: dict[int, EnvRunner] = {}
        for index, root, factory in zip(orders.indices, orders.roots, factories, strict=True):
            self._runners[index] = EnvRunner(
                index, factory, root, orders.autoreset, phase=self._phase, fatal_memory=orders.limits.memory is not None
            )
        self._threads = orders.threads
        self._latest: dict[int, Command] = {}

    def make_all(self) -> None:
        for runner in self._runners.values():
            runner.make()

    def _phase(self, name: str) -> None:
        """Called by a runner: its clock starts again."""
        if self._timed and hasattr(self._here, "lane"):
            limit = self._limits.step_timeout if name == "step" else self._limits.reset_timeout
            self._marks.begin(self._here.lane, self._here.index, FOREVER if limit is None else monotonic() + limit)

    def _run(self, command: Command, lane: int) -> None:
        index, kind, payload = command
        here = self._here
        here.lane, here.index = lane, index
        self._latest[index] = command
        self._marks.begin(lane, index, FOREVER)
        try:
            reply = self._runners[index].run(kind, payload)
        except MemoryError:
            self._spoiled(index)
        # The mark stands until the reply is kept: whoever dies before has no outcome, whoever dies after has one.
        if reply is not None:
            self._done.append(reply)
        self._marks.end(lane)

    def _run_in_crew(self, command: Command, thread: ExecutorThread) -> None:
        self._run(command, thread.lane)

    def _spoiled(self, index: int) -> NoReturn:
        """Out of memory: no further word from this process can be trusted, so another takes over."""
        self._marks.blame(index)
        os._exit(SPOILED)

    def _flush(self) -> None:
        with self._sending:
            done = []
            while self._done:  # not swapped for a new list, as another thread may be about to append
                done.append(self._done.popleft())
            if done:
                self._send(done)

    def _send(self, done: list[Reply]) -> None:
        try:
            data = frame(done)
        except Exception:  # noqa: BLE001  # some value cannot be pickled: find out whose
            data = frame([self._sendable(reply) for reply in done])
        try:
            self._sock.sendall(data)
        except OSError:
            os._exit(0)  # nobody is there to read it

    def _sendable(self, reply: Reply) -> Reply:
        """`reply`, or a failure in its place where it cannot be pickled."""
        index = reply[0]
        runner = self._runners[index]
        _, kind, payload = self._latest[index]
        for attempt in range(3):
            try:
                pickle.dumps(reply)
            except Exception as err:  # noqa: BLE001
                error = EnvFailed(f"what it returned cannot be sent to another process: {type(err).__name__}: {err}")
                failure = runner.failure_of(error, payload if kind == STEP else None)
                if kind == CALL or attempt:  # a reset's words cannot be sent either: the failure alone can
                    runner.pending = kind != CALL and runner.autoreset != "disabled"
                    reply = (index, "", NO_REWARD, False, kind != CALL, {"failure": failure}, runner.episode)
                else:
                    reply = runner.after_failure(failure)
            else:
                break
        return reply

    def serve(self, batches: list[tuple[list[Command], bool]], frames: Frames) -> None:
        """Until the parent hangs up."""
        executor = None
        if self._threads > 1:
            executor = Executor(self._run_in_crew, self._flush, most=self._threads, name="palestra-worker")
        while True:
            for commands, whole in batches:
                if executor is not None:
                    executor.submit(commands, whole)
                else:
                    self._run_here(commands, MOST_PATIENCE if whole else PATIENCE)
            data = self._receive()
            if not data:
                break
            frames.feed(data)
            batches = frames.take()
        for runner in self._runners.values():
            runner.discard()

    def _run_here(self, commands: list[Command], patience: float) -> None:
        told = monotonic()
        slow: set[int] = set()
        for command in commands:
            if self._done and command[0] in slow:
                self._flush()
            began = monotonic()
            self._run(command, 0)
            now = monotonic()
            if now - began > PATIENCE:
                slow.add(command[0])
            if now - told > patience:
                self._flush()
                told = now
        self._flush()

    def _receive(self) -> bytes:
        try:
            return self._sock.recv(CHUNK)
        except ConnectionError:
            return b""


def tie_to_parent(fd: int) -> None:
    """Let the kernel end this process and all it started once the other end of `fd` is gone, whatever they are at."""
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
        with suppress(BlockingIOError):  # gone already, before anybody listened?
            os.set_blocking(fd, False)
            if os.read(fd, 1) == b"":
                os._exit(0)
    else:
        threading.Thread(target=_end_with, args=(fd,), daemon=True).start()


def _end_with(fd: int) -> None:
    os.read(fd, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def limit_memory(limit: int) -> None:
    # Data alone where the system counts it apart: address space is reserved in gigabytes and not used.
    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    resource.setrlimit(kind, (limit, resource.getrlimit(kind)[1]))


def calm_collector() -> None:
    """For a process that is ours alone and makes thousands of small, short-lived objects: collect seldom.

    What is there already is never looked at again; a full collection of a large process takes tens of milliseconds.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def settle(sock_fd: int, life_fd: int, marks_fd: int) -> tuple[socket.socket, Frames, list[Any]]:
    """Take over the handles a parent left open, and wait for its first messages; none: it is gone already."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    for fd in (sock_fd, life_fd, marks_fd):
        os.set_inheritable(fd, False)
    tie_to_parent(life_fd)
    sock = socket.socket(fileno=sock_fd)
    frames = Frames()
    messages: list[Any] = []
    while not messages:
        data = sock.recv(CHUNK)
        if not data:
            break
        frames.feed(data)
        messages = frames.take()
    return sock, frames, messages


def main(sock_fd: int, life_fd: int, marks_fd: int) -> None:
    """Entry of a worker, by the handles its parent left open for it."""
    sock, frames, messages = settle(sock_fd, life_fd, marks_fd)
    if not messages:
        return
    orders: Orders = messages[0]
    marks = Marks(orders.lanes, marks_fd)
    if orders.limits.memory is not None:
        limit_memory(orders.limits.memory)
    try:
        worker = Worker(sock, orders, marks)
        if orders.eager:
            worker.make_all()
    except Exception as err:  # noqa: BLE001  # raised again in the parent
        sock.sendall(frame(_portable(err)))
        return
    sock.sendall(frame("ready"))
    worker.serve(messages[1:], frames)


def _portable(err: Exception) -> Exception:
    if isinstance(err, PalestraError):
        with suppress(Exception):
            pickle.loads(pickle.dumps(err))  # noqa: S301
            return err
    return EnvFailed(f"an env could not be made in its worker: {type(err).__name__}: {err}")
