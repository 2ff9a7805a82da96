"""Vector backend that runs envs in worker processes, which can be replaced if a call hangs, crashes or uses up memory.

The backend stores the seed and the actions of every running episode. When a worker is lost, a new worker replaces it.
Its envs are restored by replaying their episodes when they are next needed, and commands in flight are sent again. Only
the env that caused the loss is reported as failed. To find it, workers record in shared memory which env is running.
"""

from __future__ import annotations

import os
import selectors
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from palestra.errors import EnvFailed
from palestra.vector.backend import Backend
from palestra.workers.env_runner import factory_name
from palestra.workers.replay_log import ReplayLog
from palestra.workers.types import Autoreset, Cause, Command, Factory, Limits, Reply
from palestra.workers.wire import dump_factories
from palestra.workers.worker import OUT_OF_MEMORY, WorkerConfig, main
from palestra.workers.worker_process import WorkerProcess, end_workers

DEFAULT_THREADS = 32  # default number of threads per worker
START_TIMEOUT = 120.0  # maximum seconds for a worker to create its envs
GRACE = 3.0  # maximum seconds for workers to close their envs
CHECK_INTERVAL = 0.25  # seconds between checks of deadlines and workers


class WorkerHandle:
    """Group of envs and the worker process that currently runs them."""

    def __init__(self, config: WorkerConfig) -> None:
        self.config = config
        self.indices = config.indices
        self.process = WorkerProcess(main, config, lanes=config.lanes)
        self.suspects: deque[int] = deque()  # one of these envs terminated a worker, so they are run one at a time
        self.isolated: int | None = None  # the suspect that is currently running
        self.held: list[Command] = []  # commands to send after all suspects have run
        self.start_error = ""  # reason why the worker could not create its envs
        self.writing = False  # whether the selector watches the socket for writability


class ProcessBackend(Backend):
    tick = CHECK_INTERVAL

    def __init__(
        self,
        factories: Sequence[Factory],
        roots: Sequence[int],
        autoreset: Autoreset,
        limits: Limits,
        *,
        workers: int,
        threads: int | None,
    ) -> None:
        self._limits = limits
        self._owner = os.getpid()
        self._restarts = float(limits.restarts)
        self._done: list[Reply] = []
        self._closed = False
        self._timed = limits.step_timeout is not None or limits.reset_timeout is not None
        timeouts = [t for t in (limits.step_timeout, limits.reset_timeout) if t is not None]
        self.tick = min([CHECK_INTERVAL, *(t / 4 for t in timeouts)])
        self._selector = selectors.DefaultSelector()
        self._workers: list[WorkerHandle] = []
        self._logs: dict[int, ReplayLog] = {}
        self._worker_of: dict[int, WorkerHandle] = {}
        self._in_flight = 0
        workers = min(workers, len(factories))
        try:
            for number in range(workers):
                self._open(list(range(number, len(factories), workers)), factories, roots, autoreset, threads)
            self._await_ready()
        except BaseException:
            self.close()
            raise

    def _open(
        self,
        indices: list[int],
        factories: Sequence[Factory],
        roots: Sequence[int],
        autoreset: Autoreset,
        threads: int | None,
    ) -> None:
        count = min(len(indices), threads or DEFAULT_THREADS)
        config = WorkerConfig(
            factories=dump_factories([factories[i] for i in indices]),
            indices=indices,
            roots=[roots[i] for i in indices],
            autoreset=autoreset,
            limits=self._limits,
            threads=count,
            lanes=count + 1,
            eager=True,
        )
        worker = WorkerHandle(config)
        self._workers.append(worker)
        self._selector.register(worker.process.sock, selectors.EVENT_READ, worker)
        for i in indices:
            self._logs[i] = ReplayLog(i, factory_name(factories[i]), roots[i], autoreset)
            self._worker_of[i] = worker

    def _await_ready(self) -> None:
        """Wait until every worker has created its envs. If a worker fails, raise its error."""
        end = monotonic() + START_TIMEOUT
        while not all(worker.process.ready for worker in self._workers):
            if monotonic() > end:
                raise EnvFailed(f"the workers did not create their envs within {START_TIMEOUT:g} s")
            for key, _ in self._selector.select(CHECK_INTERVAL):
                process: WorkerProcess = key.data.process
                process.flush()
                for message in process.read():
                    if isinstance(message, Exception):
                        raise message
                    process.ready = True
                if not process.alive:
                    process.kill_and_read()
                    raise EnvFailed(f"a worker ended with {process.exit_status} while creating its envs")

    # Commands.

    def submit(self, commands: Sequence[Command], whole: bool = False) -> None:
        batches: dict[WorkerHandle, list[Command]] = {}
        for command in commands:
            self._logs[command[0]].command = command
            batches.setdefault(self._worker_of[command[0]], []).append(command)
        self._in_flight += len(commands)
        for worker, batch in batches.items():
            self._dispatch(worker, batch, whole)

    def _dispatch(self, worker: WorkerHandle, commands: Iterable[Command], whole: bool = False) -> None:
        """Send commands to a worker, or store them while suspects run one at a time."""
        if worker.suspects or worker.isolated is not None:
            worker.held.extend(commands)
            self._run_next_suspect(worker)
            return
        self._send(worker, commands, whole)

    def _send(self, worker: WorkerHandle, commands: Iterable[Command], whole: bool = False) -> None:
        batch = [self._logs[command[0]].prepare(command) for command in commands]
        worker.process.send((batch, whole))
        self._watch_write(worker)

    def _watch_write(self, worker: WorkerHandle) -> None:
        """Watch the socket for writability if and only if there is unsent data."""
        if worker.process.has_unsent is not worker.writing:
            worker.writing = worker.process.has_unsent
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.writing else 0)
            self._selector.modify(worker.process.sock, events, worker)

    def _run_next_suspect(self, worker: WorkerHandle) -> None:
        """Run the next suspect alone, if none is running. After the last suspect, send the stored commands."""
        while worker.isolated is None and worker.suspects:
            index = worker.suspects.popleft()
            command = self._logs[index].command
            if command is not None:
                worker.isolated = index
                worker.held = [held for held in worker.held if held[0] != index]
                self._send(worker, [command])
        if worker.isolated is None and worker.held:
            held, worker.held = worker.held, []
            self._send(worker, held)

    # Replies.

    def collect(self, timeout: float | None) -> list[Reply]:
        end = None if timeout is None else monotonic() + timeout
        owned = self._owner == os.getpid() and not self._closed
        while owned and self._in_flight > len(self._done):
            left = CHECK_INTERVAL if end is None else end - monotonic()
            quiet = not self._exchange(max(0.0, min(left, self.tick or CHECK_INTERVAL)) if not self._done else 0.0)
            self._replace_late()
            if quiet:
                self._replace_dead()
            if self._done or (end is not None and monotonic() >= end):
                break
        replies, self._done = self._done, []
        self._in_flight -= len(replies)
        return replies

    def _exchange(self, wait: float) -> bool:
        """Wait up to `wait` seconds for ready sockets, then read and write. Return False if no socket is ready."""
        events = self._selector.select(wait)
        for key, mask in events:
            worker: WorkerHandle = key.data
            if mask & selectors.EVENT_WRITE:
                worker.process.flush()
                self._watch_write(worker)
            if mask & selectors.EVENT_READ:
                self._take(worker, worker.process.read())
                if worker.process.alive:
                    self._run_next_suspect(worker)
                else:
                    self._replace(worker)
        return bool(events)

    def _take(self, worker: WorkerHandle, messages: list[Any]) -> None:
        for message in messages:
            if isinstance(message, list):
                for reply in message:
                    self._take_reply(worker, reply)
            elif isinstance(message, Exception):
                worker.start_error = str(message)
            else:
                worker.process.ready = True

    def _take_reply(self, worker: WorkerHandle, reply: Reply) -> None:
        log = self._logs[reply[0]]
        command = log.command
        if command is None:
            return  # a duplicate reply
        log.command = None
        log.record(command, reply)
        self._done.append(reply)
        if "failure" not in reply[5]:
            self._restarts = min(self._restarts + 0.01, self._limits.restarts)
        if worker.isolated == reply[0]:
            worker.isolated = None  # the caller runs the next suspect, unless the worker was lost after this reply

    # Failures.

    def _replace_late(self) -> None:
        """Replace workers that are running a command beyond its deadline."""
        now = monotonic()
        for worker in self._workers if self._timed else ():
            late = [index for index, deadline in worker.process.activity.running().items() if now > deadline]
            if late:
                worker.process.kill()
                self._replace(worker, late=late)

    def _replace_dead(self) -> None:
        """Replace workers that have exited, including those with a child process that keeps their socket open."""
        for worker in self._workers:
            if not worker.process.ready and monotonic() - worker.process.started > START_TIMEOUT:
                worker.process.kill()
            if worker.process.exited():
                self._replace(worker)

    def _replace(self, worker: WorkerHandle, late: Sequence[int] = ()) -> None:
        """Replace a lost worker process, and report the env that caused the loss as failed."""
        process = worker.process
        self._selector.unregister(process.sock)
        worker.writing = False
        self._take(worker, process.kill_and_read())
        running = [i for i in process.activity.running() if i in self._logs and self._logs[i].command is not None]
        blamed = process.activity.blamed
        process.release()
        isolated, worker.isolated = worker.isolated, None
        cause: Cause = "died"
        message = f"its worker ended with {process.exit_status}"
        if late:
            cause, failed = "deadline", [i for i in late if i in running]
            message = (
                f"the call exceeded its deadline (step_timeout {self._limits.step_timeout} s, "
                f"reset_timeout {self._limits.reset_timeout} s)"
            )
        elif process.process.returncode == OUT_OF_MEMORY and blamed is not None:
            cause, failed = "memory", [blamed] if self._logs[blamed].command is not None else []
            message = f"its worker used more than {self._limits.memory} bytes of memory"
        else:
            failed = running if len(running) == 1 else []
        suspects = [] if late or failed else running
        self._count_restart(worker, message)
        worker.process = WorkerProcess(main, replace(worker.config, eager=False), lanes=worker.config.lanes)
        self._selector.register(worker.process.sock, selectors.EVENT_READ, worker)
        if isolated is not None and isolated not in failed and self._logs[isolated].command is not None:
            worker.suspects.appendleft(isolated)
        worker.suspects.extend(i for i in suspects if i not in worker.suspects)
        again: list[Command] = []
        for index in worker.indices:
            log = self._logs[index]
            log.stale = True
            if log.command is not None:
                reply = log.blame(log.command, cause, message) if index in failed else None
                if reply is not None:
                    self._done.append(reply)
                else:
                    again.append(log.command)
        worker.held = []
        if again:
            self._dispatch(worker, again)

    def _count_restart(self, worker: WorkerHandle, message: str) -> None:
        self._restarts -= 1
        if self._restarts < 0:
            self.close(skip=worker.process)
            reason = worker.start_error or f"last failure: {message}"
            raise EnvFailed(f"more than {self._limits.restarts} workers were lost (see max_restarts); {reason}")

    def watch(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> Callable[[], None]:
        fd: int = self._selector.fileno()  # file descriptors of epoll and kqueue can be watched like sockets
        loop.add_reader(fd, callback)
        if self._done:
            loop.call_soon(callback)

        def stop() -> None:
            loop.remove_reader(fd)

        return stop

    def close(self, skip: WorkerProcess | None = None) -> None:
        if self._closed:
            return
        self._closed = True
        processes = [worker.process for worker in self._workers if worker.process is not skip]
        if self._owner == os.getpid():
            end_workers(processes, GRACE)
        else:
            for process in processes:
                process.forget()
        self._selector.close()
