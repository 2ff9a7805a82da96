"""ProcessBackend: envs in worker processes, which may hang, swell or die without costing more than one env each.

The pool keeps a log of every env: its seed and the actions of the running episode. When a worker is lost, another
takes its seat, and each env is played up to where it was when it is needed next; a reply that was under way is asked
for again. Only the env that was being stepped is reported failed: a worker marks its doings in memory that outlives it.
"""

from __future__ import annotations

import os
import selectors
import signal
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any

from palestra.errors import EnvFailed
from palestra.vector.backend import Backend
from palestra.workers.env_runner import factory_name
from palestra.workers.replay_log import ReplayLog
from palestra.workers.types import Autoreset, Cause, Command, Factory, Limits, Reply
from palestra.workers.wire import dump_factories
from palestra.workers.worker import SPOILED, Orders, main
from palestra.workers.worker_process import WorkerProcess, end_all

THREADS = 32  # in one worker, unless said otherwise
START = 120.0  # seconds a worker may take to make its envs
GRACE = 3.0  # seconds workers get to close their envs
LOOK = 0.25  # seconds between looks at the clock and at the workers, while waiting


class Seat:
    """A worker's place: its envs, and whoever sits there now."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.indices = orders.indices
        self.link = WorkerProcess(main, orders, lanes=orders.lanes)
        self.replacement: Orders | None = None
        self.suspects: deque[int] = deque()  # one of them killed a worker: they are run one at a time
        self.trial: int | None = None  # the one that is
        self.held: list[Command] = []  # what waits for the end of the trials
        self.words = ""  # the worker's own account of why it could not start
        self.writing = False  # the selector looks out for room to write


class ProcessBackend(Backend):
    tick = LOOK

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
        times = [t for t in (limits.step_timeout, limits.reset_timeout) if t is not None]
        self.tick = min([LOOK, *(t / 4 for t in times)])
        self._selector = selectors.DefaultSelector()
        self._seats: list[Seat] = []
        self._envs: dict[int, ReplayLog] = {}
        self._seat_of: dict[int, Seat] = {}
        self._under_way = 0
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
        count = min(len(indices), threads or THREADS)
        orders = Orders(
            factories=dump_factories([factories[i] for i in indices]),
            indices=indices,
            roots=[roots[i] for i in indices],
            autoreset=autoreset,
            limits=self._limits,
            threads=count,
            lanes=count + 1,
            eager=True,
        )
        seat = Seat(orders)
        self._seats.append(seat)
        self._selector.register(seat.link.sock, selectors.EVENT_READ, seat)
        for i in indices:
            self._envs[i] = ReplayLog(i, factory_name(factories[i]), roots[i], autoreset)
            self._seat_of[i] = seat

    def _await_ready(self) -> None:
        """Until every worker has made its envs; raises what the first that could not says."""
        end = monotonic() + START
        while not all(seat.link.ready for seat in self._seats):
            if monotonic() > end:
                raise EnvFailed(f"the workers did not make their envs within {START:g} s")
            for key, _ in self._selector.select(LOOK):
                seat: Seat = key.data
                seat.link.push()
                for message in seat.link.read():
                    if isinstance(message, Exception):
                        raise message
                    seat.link.ready = True
                if not seat.link.alive:
                    seat.link.last_words()
                    how = _ending(seat.link.process.returncode)
                    raise EnvFailed(f"a worker ended while it made its envs: {how}")

    # Commands out.

    def submit(self, commands: Sequence[Command], whole: bool = False) -> None:
        batches: dict[Seat, list[Command]] = {}
        for command in commands:
            log = self._envs[command[0]]
            log.command = command
            batches.setdefault(self._seat_of[command[0]], []).append(command)
        self._under_way += len(commands)
        for seat, batch in batches.items():
            self._dispatch(seat, batch, whole)

    def _dispatch(self, seat: Seat, commands: Iterable[Command], whole: bool = False) -> None:
        """Send commands to a worker, each behind what its env needs first."""
        if seat.suspects or seat.trial is not None:
            seat.held.extend(commands)
            self._next_trial(seat)
            return
        self._send(seat, commands, whole)

    def _send(self, seat: Seat, commands: Iterable[Command], whole: bool = False) -> None:
        batch: list[Command] = []
        for command in commands:
            batch += self._envs[command[0]].needs(command)
        seat.link.send(batch, whole)
        self._look_out(seat)

    def _look_out(self, seat: Seat) -> None:
        """Wait for room to write where there was too little."""
        if seat.link.full is not seat.writing:
            seat.writing = seat.link.full
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if seat.writing else 0)
            self._selector.modify(seat.link.sock, events, seat)

    def _next_trial(self, seat: Seat) -> None:
        while seat.trial is None and seat.suspects:
            index = seat.suspects.popleft()
            command = self._envs[index].command
            if command is not None:
                seat.trial = index
                seat.held = [held for held in seat.held if held[0] != index]
                self._send(seat, [command])
        if seat.trial is None and seat.held:
            held, seat.held = seat.held, []
            self._send(seat, held)

    # Replies in.

    def collect(self, timeout: float | None) -> list[Reply]:
        end = None if timeout is None else monotonic() + timeout
        look = self._owner == os.getpid()
        while look and self._under_way > len(self._done):
            left = LOOK if end is None else end - monotonic()
            quiet = not self._pump(max(0.0, min(left, self.tick or LOOK)) if not self._done else 0.0)
            self._see_to_the_late()
            if quiet:
                self._see_to_the_dead()
            if self._done or (end is not None and monotonic() >= end):
                break
        done, self._done = self._done, []
        self._under_way -= len(done)
        return done

    def _pump(self, wait: float) -> bool:
        """Read and write what can be; False where nothing could."""
        events = self._selector.select(wait)
        for key, mask in events:
            seat: Seat = key.data
            if mask & selectors.EVENT_WRITE:
                seat.link.push()
                self._look_out(seat)
            if mask & selectors.EVENT_READ:
                self._take(seat, seat.link.read())
                if not seat.link.alive:
                    self._bury(seat)
        return bool(events)

    def _take(self, seat: Seat, messages: list[Any]) -> None:
        for message in messages:
            if isinstance(message, list):
                for reply in message:
                    self._take_reply(seat, reply)
            elif isinstance(message, Exception):
                seat.words = str(message)
            else:
                seat.link.ready = True

    def _take_reply(self, seat: Seat, reply: Reply) -> None:
        log = self._envs[reply[0]]
        command = log.command
        if command is None:
            return  # nothing was asked
        log.command = None
        log.note(command, reply)
        self._done.append(reply)
        if "failure" not in reply[5]:
            self._restarts = min(self._restarts + 0.01, self._limits.restarts)
        if seat.trial == reply[0]:
            seat.trial = None
            self._next_trial(seat)

    # Faults.

    def _see_to_the_late(self) -> None:
        now = monotonic()
        for seat in self._seats if self._timed else ():
            late = [index for index, until in seat.link.marks.running().items() if now > until]
            if late:
                seat.link.kill()
                self._bury(seat, late=late)

    def _see_to_the_dead(self) -> None:
        """Workers whose end was not noticed, as something they started keeps their side of the socket open."""
        for seat in self._seats:
            if not seat.link.ready and monotonic() - seat.link.started > START:
                seat.link.kill()
            if seat.link.exited():
                self._bury(seat)

    def _bury(self, seat: Seat, late: Sequence[int] = ()) -> None:
        """A worker is gone, or has to go: blame the env it died of, and seat another."""
        link = seat.link
        self._selector.unregister(link.sock)
        seat.writing = False
        self._take(seat, link.last_words())
        running = [i for i in link.marks.running() if i in self._envs and self._envs[i].command is not None]
        blamed, code = link.marks.blamed, link.process.returncode
        link.release()
        trial, seat.trial = seat.trial, None
        cause: Cause = "died"
        message = f"its worker ended with {_ending(code)}"
        if late:
            cause, guilty = "deadline", [i for i in late if i in running]
            message = (
                f"it ran past its deadline (step {self._limits.step_timeout} s, reset {self._limits.reset_timeout} s)"
            )
        elif code == SPOILED and blamed is not None:
            cause, guilty = "memory", [blamed] if self._envs[blamed].command is not None else []
            message = f"its worker needed more than {self._limits.memory} bytes"
        else:
            guilty = running if len(running) == 1 else []
        suspects = [] if late or guilty else running
        self._restarts -= 1
        if self._restarts < 0:
            words = f": {seat.words}" if seat.words else f"; the last time {message}"
            error = EnvFailed(
                f"workers were lost too often, and no more than {self._limits.restarts} are replaced{words}"
            )
            seat.link = link
            self.close(skip=link)
            raise error
        if seat.replacement is None:
            seat.replacement = _replacement(seat.orders)
        seat.link = WorkerProcess(main, seat.replacement, lanes=seat.replacement.lanes)
        self._selector.register(seat.link.sock, selectors.EVENT_READ, seat)
        if trial is not None and trial not in guilty and self._envs[trial].command is not None:
            seat.suspects.appendleft(trial)
        seat.suspects.extend(i for i in suspects if i not in seat.suspects)
        again: list[Command] = []
        for index in seat.indices:
            log = self._envs[index]
            log.stale = True
            if log.command is not None:
                reply = log.blame(log.command, cause, message) if index in guilty else None
                if reply is not None:
                    self._done.append(reply)
                else:
                    again.append(log.command)
        seat.held = []
        if again:
            self._dispatch(seat, again)

    def watch(self, loop: AbstractEventLoop, callback: Callable[[], None]) -> Callable[[], None]:
        fd: int = self._selector.fileno()  # epoll and kqueue can be waited for like a file
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
        links = [seat.link for seat in self._seats if seat.link is not skip]
        if self._owner == os.getpid():
            end_all(links, GRACE)
        else:
            for link in links:
                link.forget()
        self._selector.close()


def _replacement(orders: Orders) -> Orders:
    from dataclasses import replace

    return replace(orders, eager=False)


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        try:
            return f"signal {signal.Signals(-code).name}"
        except ValueError:
            return f"signal {-code}"
    return f"exit status {code}"
