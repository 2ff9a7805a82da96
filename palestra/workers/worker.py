"""Worker process for a vector environment, which runs commands and records which env causes a failure."""

from __future__ import annotations

import os
import pickle
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import NoReturn

from palestra.errors import EnvFailed, PalestraError
from palestra.workers.command_loop import CommandLoop
from palestra.workers.env_runner import EnvRunner
from palestra.workers.executor import MAX_WATCH, SLOW, Executor, ExecutorThread
from palestra.workers.types import CALL, NO_REWARD, RESTORE, STEP, Autoreset, Command, Factory, Limits, Reply
from palestra.workers.wire import ActivityTable, encode_frame
from palestra.workers.worker_setup import connect_to_parent, limit_memory

OUT_OF_MEMORY = 86  # exit status after a MemoryError; the activity table contains the responsible env
NO_DEADLINE = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Envs and limits for a worker, sent to it as the first message."""

    factories: bytes  # pickled separately, because this may require cloudpickle
    indices: list[int]
    roots: list[int]
    autoreset: Autoreset
    limits: Limits
    threads: int
    lanes: int
    eager: bool  # whether to create all envs at startup and report errors; otherwise, each env is created when needed


class EnvWorker(CommandLoop):
    def __init__(self, sock: socket.socket, config: WorkerConfig, activity: ActivityTable) -> None:
        super().__init__(sock, activity)
        self._limits = config.limits
        self._timed = config.limits.step_timeout is not None or config.limits.reset_timeout is not None
        self._local = threading.local()
        factories: list[Factory] = pickle.loads(config.factories)  # noqa: S301  # sent by the parent process
        self._runners: dict[int, EnvRunner] = {}
        for index, root, factory in zip(config.indices, config.roots, factories, strict=True):
            self._runners[index] = EnvRunner(
                index,
                factory,
                root,
                config.autoreset,
                on_phase=self._set_deadline,
                raise_memory_error=config.limits.memory is not None,
            )
        self._latest: dict[int, Command] = {}
        self._executor: Executor | None = None
        if config.threads > 1:
            self._executor = Executor(
                self._run_in_thread, self._flush, max_threads=config.threads, name="palestra-worker"
            )

    def make_all(self) -> None:
        for runner in self._runners.values():
            runner.make()

    def _set_deadline(self, phase: str) -> None:
        """Set the deadline for the phase that an env runner is starting."""
        if self._timed and hasattr(self._local, "lane"):
            limit = self._limits.step_timeout if phase == "step" else self._limits.reset_timeout
            deadline = NO_DEADLINE if limit is None else monotonic() + limit
            self._activity.start(self._local.lane, self._local.index, deadline)

    def _run(self, command: Command, lane: int) -> None:
        index, kind, payload = command
        local = self._local
        local.lane, local.index = lane, index
        self._latest[index] = (index, *payload[1:]) if kind == RESTORE else command
        self._activity.start(lane, index, NO_DEADLINE)
        try:
            reply = self._runners[index].run(kind, payload)
        except MemoryError:
            self._exit_out_of_memory(index)
        self._done.append(reply)
        # The activity ends after the reply is stored, so that every command is either active or has a reply.
        self._activity.end(lane)

    def _run_in_thread(self, command: Command, thread: ExecutorThread) -> None:
        self._run(command, thread.lane)

    def _exit_out_of_memory(self, index: int) -> NoReturn:
        """End the process, because it is no longer reliable. The parent starts a new process."""
        self._activity.blame(index)
        os._exit(OUT_OF_MEMORY)

    def encode(self, replies: list[Reply]) -> bytes:
        try:
            return encode_frame(replies)
        except Exception:  # noqa: BLE001  # one of the replies cannot be pickled
            return encode_frame([self._picklable(reply) for reply in replies])

    def _picklable(self, reply: Reply) -> Reply:
        """Return `reply`, or a failure if it cannot be pickled."""
        index = reply[0]
        runner = self._runners[index]
        _, kind, payload = self._latest[index]
        for attempt in range(3):
            try:
                pickle.dumps(reply)
            except Exception as err:  # noqa: BLE001
                error = EnvFailed(f"the result cannot be sent to another process: {type(err).__name__}: {err}")
                failure = runner.failure_of(error, payload if kind == STEP else None)
                if kind == CALL or attempt:  # a second attempt means that the next episode cannot be pickled either
                    runner.pending_reset = kind != CALL and runner.autoreset != "disabled"
                    reply = (index, "", NO_REWARD, False, kind != CALL, {"failure": failure}, runner.episode)
                else:
                    reply = runner.after_failure(failure)
            else:
                break
        return reply

    def handle(self, batch: tuple[list[Command], bool]) -> None:
        commands, whole = batch
        if self._executor is not None:
            self._executor.submit(commands, whole)
        else:
            self._run_in_main_thread(commands, MAX_WATCH if whole else SLOW)

    def _run_in_main_thread(self, commands: list[Command], flush_interval: float) -> None:
        flushed = monotonic()
        slow: set[int] = set()
        for command in commands:
            if self._done and command[0] in slow:
                self._flush()
            start = monotonic()
            self._run(command, 0)
            now = monotonic()
            if now - start > SLOW:
                slow.add(command[0])
            if now - flushed > flush_interval:
                self._flush()
                flushed = now
        self._flush()

    def close_envs(self) -> None:
        for runner in self._runners.values():
            runner.discard()


def main(sock_fd: int, life_fd: int, activity_fd: int) -> None:
    """Run a worker that communicates over the file descriptors passed by its parent."""
    sock, decoder, messages = connect_to_parent(sock_fd, life_fd, activity_fd)
    if not messages:
        return
    config: WorkerConfig = messages[0]
    activity = ActivityTable(config.lanes, activity_fd)
    if config.limits.memory is not None:
        limit_memory(config.limits.memory)
    try:
        worker = EnvWorker(sock, config, activity)
        if config.eager:
            worker.make_all()
    except Exception as err:  # noqa: BLE001  # raised again in the parent
        sock.sendall(encode_frame(_picklable_error(err)))
        return
    sock.sendall(encode_frame("ready"))
    worker.serve(messages[1:], decoder)


def _picklable_error(err: Exception) -> Exception:
    if isinstance(err, PalestraError):
        with suppress(Exception):
            pickle.loads(pickle.dumps(err))  # noqa: S301
            return err
    return EnvFailed(f"a worker could not create an env: {type(err).__name__}: {err}")
