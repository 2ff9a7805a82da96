"""Pool of worker processes for the environment server.

The pool runs in the server's event loop and sends all commands from one event loop iteration together. A worker that
exits unexpectedly is replaced, and its sessions are reported as lost. A worker with too many hung threads receives no
new sessions and exits when its last session ends. A worker that does not reply to a ping is killed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from palestra.server.scratch import ScratchFolder, remove_abandoned
from palestra.server.worker import ABANDON, DROP, PING, SessionWorkerConfig, main
from palestra.workers.worker_process import WorkerProcess, end_workers

GRACE = 5.0  # maximum seconds for workers to close their environments
PING_TIMEOUT = 5.0  # maximum seconds to wait for the reply to a ping
MAX_STUCK = 16  # maximum number of hung threads per worker
START_TIMEOUT = 60.0  # maximum seconds to wait for a worker to start
log = logging.getLogger("palestra.server")

OnReply = Callable[[int, int, int, Any], None]  # session key, kind, status, data
OnDeath = Callable[["Worker", str, frozenset[int]], None]  # worker, exit status, keys of sessions with a running call


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Group of workers that run certain environment families in the same interpreter."""

    families: frozenset[str]  # if empty, the group runs all families that are in no other group
    python: str | None = None
    workers: int = 1


class Worker:
    """One worker process and its sessions."""

    def __init__(self, group: Group, number: int, process: WorkerProcess) -> None:
        self.group = group
        self.number = number
        self.process = process
        self.sessions: set[int] = set()
        self.outbox: list[tuple[int, int, Any]] = []
        self.stuck = 0  # number of hung threads
        self.retired = False  # a retired worker receives no new sessions and exits when its last session ends
        self.pinged: float | None = None  # time of the oldest ping that has no reply yet
        self.started = monotonic()
        self.writing = False  # whether the event loop watches the socket for writability

    @property
    def pid(self) -> int:
        return self.process.pid

    def __repr__(self) -> str:
        return f"worker {self.number} (pid {self.pid})"


class WorkerPool:
    def __init__(
        self,
        groups: Iterable[Group],
        *,
        on_reply: OnReply,
        on_death: OnDeath,
        threads: int = 64,
        memory: int | None = None,
        imports: Iterable[str] = (),
        preload: Iterable[str] = (),
        expose_errors: bool = False,
    ) -> None:
        self._groups = list(groups)
        self._on_reply = on_reply
        self._on_death = on_death
        self._config = SessionWorkerConfig(
            lanes=threads + 1,
            threads=threads,
            memory=memory,
            imports=list(imports),
            preload=list(preload),
            expose_errors=expose_errors,
        )
        self.workers: list[Worker] = []
        self.deaths = 0
        self._number = 0
        self._failed_starts: dict[Group, int] = {}
        self._loop: asyncio.AbstractEventLoop  # set by `start`
        self._dirty: set[Worker] = set()
        self._restarts: set[asyncio.TimerHandle] = set()
        self._scratch: ScratchFolder  # set by `start`
        self._closed = False

    async def start(self) -> None:
        """Start all workers and wait until they are ready."""
        self._loop = asyncio.get_running_loop()
        remove_abandoned()
        self._scratch = ScratchFolder()
        for group in self._groups:
            for _ in range(group.workers):
                self._start_worker(group)
        end = monotonic() + START_TIMEOUT
        while not all(worker.process.ready for worker in self.workers) and monotonic() < end:
            await asyncio.sleep(0.01)

    @property
    def ready(self) -> bool:
        """True if every group has a worker that accepts sessions."""
        return all(any(w.group is g and w.process.ready and not w.retired for w in self.workers) for g in self._groups)

    def place(self, family: str) -> Worker | None:
        """Return the worker with the fewest sessions among the workers for this family, or None."""
        group = next((g for g in self._groups if family in g.families), None)
        if group is None:
            group = next((g for g in self._groups if not g.families), None)
        free = [w for w in self.workers if w.group is group and not w.retired and w.process.alive]
        return min(free, key=lambda worker: len(worker.sessions), default=None)

    def send(self, worker: Worker, command: tuple[int, int, Any]) -> None:
        """Send a command, together with all other commands from this event loop iteration."""
        worker.outbox.append(command)
        if not self._dirty:
            self._loop.call_soon(self._send_all)
        self._dirty.add(worker)

    def drop(self, worker: Worker, key: int) -> None:
        """Close a session's environment without waiting for the reply."""
        worker.sessions.discard(key)
        if worker.process.alive:
            self.send(worker, (key, DROP, None))
        self._end_if_unused(worker)

    def abandon(self, worker: Worker, key: int) -> None:
        """Abandon the hung call of a session, and ping its worker to check whether the worker still responds."""
        worker.sessions.discard(key)
        worker.stuck += 1
        self.send(worker, (key, ABANDON, None))
        self.send(worker, (0, PING, None))
        worker.pinged = worker.pinged or monotonic()
        if worker.stuck >= MAX_STUCK and not worker.retired:
            log.warning("worker retired", extra={"worker": worker.number, "stuck": worker.stuck})
            worker.retired = True
            self._replace(worker.group)
        self._end_if_unused(worker)

    def check_workers(self) -> None:
        """Kill workers that do not reply to pings or do not start in time. Called periodically."""
        now = monotonic()
        for worker in list(self.workers):
            if worker.pinged is not None and now - worker.pinged > PING_TIMEOUT:
                log.error("worker does not respond", extra={"worker": worker.number})
                worker.process.kill()
            if not worker.process.ready and now - worker.started > START_TIMEOUT:
                worker.process.kill()

    async def stop(self) -> None:
        self._closed = True
        for handle in self._restarts:
            handle.cancel()
        processes = [worker.process for worker in self.workers]
        for worker in self.workers:
            self._unwatch(worker)
        self.workers = []
        await asyncio.to_thread(end_workers, processes, GRACE)
        self._scratch.remove()

    # Workers.

    def _start_worker(self, group: Group) -> None:
        self._number += 1
        process = WorkerProcess(
            main,
            asdict(self._config),
            lanes=self._config.lanes,
            python=group.python,
            more_path=[self._package_folder()] if group.python else [],
            cwd=self._empty_folder(),
        )
        worker = Worker(group, self._number, process)
        self.workers.append(worker)
        self._loop.add_reader(process.sock, self._read, worker)
        self._watch_write(worker)
        log.info("worker started", extra={"worker": worker.number, "pid": worker.pid})

    def _package_folder(self) -> str:
        """Return a folder that contains only this package, for interpreters in which the package is not installed."""
        import palestra

        folder = self._scratch.path / "package"
        if not folder.exists():
            folder.mkdir()
            (folder / "palestra").symlink_to(Path(palestra.__file__).parent, target_is_directory=True)
        return str(folder)

    def _empty_folder(self) -> str:
        """Return an empty folder as the working directory of workers, so that relative paths do not match any file."""
        folder = self._scratch.path / "empty"
        folder.mkdir(exist_ok=True)
        return str(folder)

    def _send_all(self) -> None:
        dirty, self._dirty = self._dirty, set()
        for worker in dirty:
            batch, worker.outbox = worker.outbox, []
            if batch and worker.process.alive:
                worker.process.send(batch)
                if worker.process.has_unsent is not worker.writing:
                    self._watch_write(worker)

    def _watch_write(self, worker: Worker) -> None:
        worker.writing = worker.process.has_unsent
        if worker.writing:
            self._loop.add_writer(worker.process.sock, self._write, worker)
        else:
            self._loop.remove_writer(worker.process.sock)

    def _write(self, worker: Worker) -> None:
        worker.process.flush()
        if not worker.process.has_unsent:
            self._watch_write(worker)

    def _read(self, worker: Worker) -> None:
        on_reply = self._on_reply
        for message in worker.process.read():
            if message == "ready":
                worker.process.ready = True
                self._failed_starts.pop(worker.group, None)
                continue
            for key, kind, status, data in message:
                if kind == PING:
                    worker.pinged = None
                elif kind != DROP:
                    on_reply(key, kind, status, data)
        if not worker.process.alive:
            self._on_exit(worker)

    def _unwatch(self, worker: Worker) -> None:
        self._loop.remove_reader(worker.process.sock)
        self._loop.remove_writer(worker.process.sock)

    def _on_exit(self, worker: Worker) -> None:
        """Report and replace a worker that has exited."""
        self._unwatch(worker)
        self.workers.remove(worker)
        self._dirty.discard(worker)
        process = worker.process
        process.kill_and_read()
        running = frozenset(process.activity.running())
        expected = worker.retired and not worker.sessions
        process.release()
        if self._closed or expected:
            return
        self.deaths += 1
        extra = {"worker": worker.number, "exit": process.process.returncode, "sessions": len(worker.sessions)}
        log.error("worker died", extra=extra)
        self._on_death(worker, process.exit_status, running)
        if worker.retired:
            return
        failed_starts = self._failed_starts.get(worker.group, 0) + 1 if not process.ready else 0
        self._failed_starts[worker.group] = failed_starts
        if failed_starts == 0:
            self._replace(worker.group)
        else:  # wait longer after each failed start
            self._replace_in(min(0.1 * 2**failed_starts, 30.0), worker.group)

    def _replace(self, group: Group) -> None:
        if self._closed:
            return
        try:
            self._start_worker(group)
        except OSError as err:  # the system has no free memory, processes or file descriptors
            log.error("cannot start a worker", extra={"error": str(err)})
            self._replace_in(1.0, group)

    def _replace_in(self, seconds: float, group: Group) -> None:
        handle = self._loop.call_later(seconds, self._replace, group)
        self._restarts = {h for h in self._restarts if not h.cancelled() and h.when() > self._loop.time()}
        self._restarts.add(handle)

    def _end_if_unused(self, worker: Worker) -> None:
        if worker.retired and not worker.sessions and worker.process.alive:
            worker.process.close_input()
            self._loop.call_later(GRACE, worker.process.kill)

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self.workers]
