"""The engine room: worker processes and what is under way in them, seen from the server's event loop.

Commands of one turn of the loop travel together. A worker that dies is replaced, and whoever had a session there is
told; one with too many hung threads takes no more sessions and ends with its last; one that no longer answers is
killed.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from palestra.server.worker import DROP, GIVE_UP, PING, Orders, main
from palestra.workers.worker_process import WorkerProcess, end_all

GRACE = 5.0  # seconds workers get to close their environments
PATIENCE = 5.0  # seconds a worker may take to answer a ping, once something hangs in it
MOST_STUCK = 16  # hung threads in one worker
START = 60.0  # seconds a worker may take to start
log = logging.getLogger("palestra.server")

Replied = Callable[[int, int, int, Any], None]  # session number, what, how, data
Died = Callable[["Worker", str, frozenset[int]], None]  # which, how it ended, the sessions it was at


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Workers of one kind: those families that run under one interpreter."""

    families: frozenset[str]  # empty: all that no other group has
    python: str | None = None
    workers: int = 1


class Worker:
    """One process and how it stands."""

    def __init__(self, group: Group, number: int, link: WorkerProcess) -> None:
        self.group = group
        self.number = number
        self.link = link
        self.sessions: set[int] = set()
        self.outbox: list[tuple[int, int, Any]] = []
        self.stuck = 0
        self.retired = False  # takes no new sessions, ends with its last
        self.pinged: float | None = None  # unanswered since
        self.started = monotonic()
        self.writing = False

    def __repr__(self) -> str:
        return f"worker {self.number} (pid {self.link.process.pid})"


class WorkerPool:
    def __init__(
        self,
        groups: Iterable[Group],
        *,
        replied: Replied,
        died: Died,
        threads: int = 64,
        memory: int | None = None,
        imports: Iterable[str] = (),
        preload: Iterable[str] = (),
    ) -> None:
        self._groups = list(groups)
        self._replied = replied
        self._died = died
        self._orders = Orders(
            lanes=threads + 1, threads=threads, memory=memory, imports=list(imports), preload=list(preload)
        )
        self.workers: list[Worker] = []
        self.deaths = 0
        self._number = 0
        self._quick_deaths: dict[Group, int] = {}
        self._loop: asyncio.AbstractEventLoop  # from `start` on
        self._dirty: set[Worker] = set()
        self._restarts: set[asyncio.TimerHandle] = set()
        self._scratch: tempfile.TemporaryDirectory[str]  # from `start` on
        self._closed = False

    async def start(self) -> None:
        """Until every worker is ready."""
        self._loop = asyncio.get_running_loop()
        self._scratch = tempfile.TemporaryDirectory(prefix="palestra-serve-", ignore_cleanup_errors=True)
        for group in self._groups:
            for _ in range(group.workers):
                self._hire(group)
        end = monotonic() + START
        while not all(worker.link.ready for worker in self.workers) and monotonic() < end:
            await asyncio.sleep(0.01)

    @property
    def ready(self) -> bool:
        """Has every group a worker that can take a session?"""
        return all(any(w.group is g and w.link.ready and not w.retired for w in self.workers) for g in self._groups)

    def place(self, family: str) -> Worker | None:
        """The worker for a new session: the one with the fewest."""
        group = next((g for g in self._groups if family in g.families), None)
        if group is None:
            group = next((g for g in self._groups if not g.families), None)
        free = [w for w in self.workers if w.group is group and not w.retired and w.link.alive]
        return min(free, key=lambda worker: len(worker.sessions), default=None)

    def send(self, worker: Worker, command: tuple[int, int, Any]) -> None:
        """With everything else that is sent in this turn of the loop."""
        worker.outbox.append(command)
        if not self._dirty:
            self._loop.call_soon(self._post)
        self._dirty.add(worker)

    def drop(self, worker: Worker, key: int) -> None:
        """Close a session's environment; nobody waits for it."""
        worker.sessions.discard(key)
        if worker.link.alive:
            self.send(worker, (key, DROP, None))
        self._maybe_dismiss(worker)

    def give_up(self, worker: Worker, key: int) -> None:
        """A call hangs: leave its thread to itself, and see whether the rest of the worker is well."""
        worker.sessions.discard(key)
        worker.stuck += 1
        self.send(worker, (key, GIVE_UP, None))
        self.send(worker, (0, PING, None))
        worker.pinged = worker.pinged or monotonic()
        if worker.stuck >= MOST_STUCK and not worker.retired:
            log.warning("worker retired", extra={"worker": worker.number, "stuck": worker.stuck})
            worker.retired = True
            self._rehire(worker.group)
        self._maybe_dismiss(worker)

    def look(self) -> None:
        """Called now and then: kill who no longer answers."""
        now = monotonic()
        for worker in list(self.workers):
            if worker.pinged is not None and now - worker.pinged > PATIENCE:
                log.error("worker does not answer", extra={"worker": worker.number})
                worker.link.kill()
            if not worker.link.ready and now - worker.started > START:
                worker.link.kill()

    async def stop(self) -> None:
        self._closed = True
        for handle in self._restarts:
            handle.cancel()
        links = [worker.link for worker in self.workers]
        for worker in self.workers:
            self._unwatch(worker)
        self.workers = []
        await asyncio.to_thread(end_all, links, GRACE)
        self._scratch.cleanup()

    # Workers.

    def _hire(self, group: Group) -> None:
        self._number += 1
        link = WorkerProcess(
            main,
            asdict(self._orders),
            lanes=self._orders.lanes,
            python=group.python,
            more_path=[self._package()] if group.python else [],
            cwd=self._empty(),
        )
        worker = Worker(group, self._number, link)
        self.workers.append(worker)
        self._loop.add_reader(link.sock, self._read, worker)
        self._watch_write(worker)
        log.info("worker started", extra={"worker": worker.number, "pid": link.process.pid})

    def _package(self) -> str:
        """A folder with this package and nothing else, for interpreters that do not have it."""
        import palestra

        folder = Path(self._scratch.name) / "package"
        if not folder.exists():
            folder.mkdir()
            (folder / "palestra").symlink_to(Path(palestra.__file__).parent, target_is_directory=True)
        return str(folder)

    def _empty(self) -> str:
        """Where workers live, so that no name leads to a file."""
        folder = Path(self._scratch.name) / "empty"
        folder.mkdir(exist_ok=True)
        return str(folder)

    def _post(self) -> None:
        dirty, self._dirty = self._dirty, set()
        for worker in dirty:
            batch, worker.outbox = worker.outbox, []
            if batch and worker.link.alive:
                worker.link.post(batch)
                if worker.link.full is not worker.writing:
                    self._watch_write(worker)

    def _watch_write(self, worker: Worker) -> None:
        worker.writing = worker.link.full
        if worker.writing:
            self._loop.add_writer(worker.link.sock, self._write, worker)
        else:
            self._loop.remove_writer(worker.link.sock)

    def _write(self, worker: Worker) -> None:
        worker.link.push()
        if not worker.link.full:
            self._watch_write(worker)

    def _read(self, worker: Worker) -> None:
        replied = self._replied
        for message in worker.link.read():
            if message == "ready":
                worker.link.ready = True
                self._quick_deaths.pop(worker.group, None)
                continue
            for key, what, how, data in message:
                if what == PING:
                    worker.pinged = None
                elif what != DROP:
                    replied(key, what, how, data)
        if not worker.link.alive:
            self._bury(worker)

    def _unwatch(self, worker: Worker) -> None:
        self._loop.remove_reader(worker.link.sock)
        self._loop.remove_writer(worker.link.sock)

    def _bury(self, worker: Worker) -> None:
        """A worker has ended: tell, and replace it."""
        self._unwatch(worker)
        self.workers.remove(worker)
        self._dirty.discard(worker)
        link = worker.link
        link.last_words()
        at = frozenset(link.marks.running())
        code = link.process.returncode
        expected = worker.retired and not worker.sessions
        link.release()
        if self._closed or expected:
            return
        self.deaths += 1
        log.error("worker died", extra={"worker": worker.number, "exit": code, "sessions": len(worker.sessions)})
        self._died(worker, f"exit status {code}" if code is None or code >= 0 else f"signal {-code}", at)
        if worker.retired:
            return
        quick = self._quick_deaths.get(worker.group, 0) + 1 if not link.ready else 0
        self._quick_deaths[worker.group] = quick
        if quick == 0:
            self._rehire(worker.group)
        else:  # it does not even start: not in a tight loop
            self._hire_in(min(0.1 * 2**quick, 30.0), worker.group)

    def _rehire(self, group: Group) -> None:
        if self._closed:
            return
        try:
            self._hire(group)
        except OSError as err:  # the machine is out of memory, processes or handles
            log.error("no worker can be started", extra={"error": str(err)})
            self._hire_in(1.0, group)

    def _hire_in(self, seconds: float, group: Group) -> None:
        handle = self._loop.call_later(seconds, self._rehire, group)
        self._restarts = {h for h in self._restarts if not h.cancelled() and h.when() > self._loop.time()}
        self._restarts.add(handle)

    def _maybe_dismiss(self, worker: Worker) -> None:
        if worker.retired and not worker.sessions and worker.link.alive:
            worker.link.hang_up()
            self._loop.call_later(GRACE, worker.link.kill)

    @property
    def pids(self) -> list[int]:
        return [worker.link.process.pid for worker in self.workers]
