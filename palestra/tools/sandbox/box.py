"""Sandbox: Python source in, Result out, thousands of times an hour; isolated, limited, and warm."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import re
import threading
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from palestra.errors import BadValue, NoSandbox
from palestra.tools.sandbox.levels import Level, level
from palestra.tools.sandbox.records import Limits, Result
from palestra.tools.sandbox.request import PATIENCE, Request
from palestra.tools.sandbox.session import Session
from palestra.tools.sandbox.worker import SandboxDied, Worker

_ATTEMPTS = 3  # on a fresh template each, where one broke
_open: weakref.WeakSet[Sandbox] = weakref.WeakSet()


class Sandbox:
    """Runs Python programs that nobody has read.

    A program sees a read-only system, a private directory in memory, its own /proc, no network and nothing of the
    host's environment; it is an unprivileged user without a way to become another, under `limits`; all it started ends
    with it. Modules named in `preload` are loaded before the fork for programs that mention them.

    `run` and `session` may be called from many threads, `arun` and `asession` from many tasks, at once; at most
    `concurrency` programs run at a time, in up to `workers` template processes.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        workers: int | None = None,
        concurrency: int | None = None,
        preload: Sequence[str] = ("numpy", "sympy"),
        run_unprotected_on_this_host: bool = False,
    ) -> None:
        """`run_unprotected_on_this_host`: where nothing can isolate, run programs with YOUR rights, on YOUR files."""
        self.level: Level = Level(name="none") if run_unprotected_on_this_host else level()
        if self.level.name == "none" and not run_unprotected_on_this_host:
            raise NoSandbox(
                f"this machine cannot isolate programs: {self.level.why}. {self.level.fix}. `palestra doctor` tells "
                "more. To run model-written code without any protection, with your own rights and files: "
                "Sandbox(run_unprotected_on_this_host=True)"
            )
        self._unprotected = run_unprotected_on_this_host
        cores = len(os.sched_getaffinity(0))
        self.limits = limits or Limits()
        self.workers = cores if workers is None else workers
        self.concurrency = max(16, 4 * cores) if concurrency is None else concurrency
        if self.workers < 1 or self.concurrency < 1:
            raise BadValue(f"workers and concurrency are at least 1, got {self.workers} and {self.concurrency}")
        self.preload = tuple(preload)
        self._mentions = re.compile(rf"\b(?:{'|'.join(map(re.escape, self.preload))})\b") if preload else None
        self._closed = False
        self._begin()
        _open.add(self)

    def _begin(self) -> None:
        """In this process: no templates yet. A fork of the host begins anew; the templates are its parent's."""
        self._pid = os.getpid()
        self._pools: dict[bool, list[Worker]] = {False: [], True: []}  # without and with the modules loaded
        self._lock = threading.Lock()
        self._starting: dict[bool, threading.Lock] = {False: threading.Lock(), True: threading.Lock()}
        self._gate = threading.BoundedSemaphore(self.concurrency)
        self._gates: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            weakref.WeakKeyDictionary()
        )

    def run(
        self,
        code: str,
        stdin: str | bytes = "",
        files: Mapping[str, str | bytes] | None = None,
        limits: Limits | None = None,
        *,
        echo: bool = False,
        brief: bool = False,
        seed: int | None = None,
    ) -> Result:
        """Run `code` as a program of its own.

        `files` are put into its directory. `echo`: print the value of a trailing expression, as a notebook does.
        `brief`: tracebacks show the program's own lines alone. `seed` fixes `random` and numpy's global generator. A
        program that fails or hits a limit is a Result; a sandbox that breaks time and again is SandboxDied.
        """
        warm, limits = self._checked(code), limits or self.limits
        with self._gate:
            for attempt in range(_ATTEMPTS):
                worker = self._take(warm)
                request = None
                try:
                    request = Request(
                        kind="run",
                        code=code,
                        stdin=stdin,
                        files=files,
                        limits=limits,
                        echo=echo,
                        brief=brief,
                        seed=seed,
                    )
                    request.send(worker)
                    request.connection.settimeout(limits.wall + PATIENCE)
                    return request.result(_received(request))
                except SandboxDied as err:
                    self._discard(worker, err, attempt)
                finally:
                    self._give_back(worker, request)
        raise AssertionError("the last attempt raises")

    async def arun(
        self,
        code: str,
        stdin: str | bytes = "",
        files: Mapping[str, str | bytes] | None = None,
        limits: Limits | None = None,
        *,
        echo: bool = False,
        brief: bool = False,
        seed: int | None = None,
    ) -> Result:
        """`run`, without blocking the event loop; cancelling it ends the program."""
        warm, limits = self._checked(code), limits or self.limits
        async with self._async_gate():
            for attempt in range(_ATTEMPTS):
                ready = self._idle(warm)
                worker = await asyncio.to_thread(self._take, warm) if ready is None else ready
                request = None
                try:
                    request = Request(
                        kind="run",
                        code=code,
                        stdin=stdin,
                        files=files,
                        limits=limits,
                        echo=echo,
                        brief=brief,
                        seed=seed,
                    )
                    request.send(worker)
                    return request.result(await _areceived(request, limits.wall + PATIENCE))
                except SandboxDied as err:
                    self._discard(worker, err, attempt)
                finally:
                    self._give_back(worker, request)
        raise AssertionError("the last attempt raises")

    def session(
        self, *, limits: Limits | None = None, echo: bool = False, brief: bool = False, seed: int | None = None
    ) -> Session:
        """An interpreter that lives on between cells: `session.run(code)`. Close it, or use `with`."""
        self._checked("")
        for attempt in range(_ATTEMPTS):
            worker = self._take(True)  # nobody knows what the later cells will need
            request = None
            try:
                request = Request(kind="session", limits=limits or self.limits, echo=echo, brief=brief, seed=seed)
                request.send(worker)
                return Session(request)
            except SandboxDied as err:
                if request is not None:
                    request.close()
                self._discard(worker, err, attempt)
            finally:
                self._give_back(worker, None)
        raise AssertionError("the last attempt raises")

    async def asession(
        self, *, limits: Limits | None = None, echo: bool = False, brief: bool = False, seed: int | None = None
    ) -> Session:
        """`session`, without blocking the event loop."""
        return await asyncio.to_thread(self.session, limits=limits, echo=echo, brief=brief, seed=seed)

    def close(self) -> None:
        """End every template and every program. May be called twice."""
        self._closed = True
        with self._lock:
            pools, self._pools = self._pools, {False: [], True: []}
        for worker in (worker for pool in pools.values() for worker in pool):
            worker.close()

    def _checked(self, code: str) -> bool:
        """Whether the program mentions a module that is better loaded before."""
        if self._closed:
            raise BadValue("this sandbox is closed; make another")
        if self._pid != os.getpid():
            for worker in (worker for pool in self._pools.values() for worker in pool):
                worker.close()
            self._begin()
        if not isinstance(code, str):
            raise BadValue(f"code is a string, got {type(code).__name__}")
        return self._mentions is not None and self._mentions.search(code) is not None

    # Templates

    def _idle(self, warm: bool) -> Worker | None:
        """The least busy template, unless another one should be started."""
        with self._lock:
            pool = self._pools[warm]
            best = min(pool, key=lambda worker: worker.busy, default=None)
            if best is None or (best.busy > 1 and len(pool) < self.workers):
                return None
            best.busy += 1
            return best

    def _take(self, warm: bool) -> Worker:
        """A template to send to; started where there is none, or where all are busy and another is allowed."""
        found = self._idle(warm)
        if found is not None:
            return found
        starting = self._starting[warm]
        while not starting.acquire(blocking=not self._pools[warm]):
            with self._lock:  # somebody starts another already: meanwhile, a busy one will do
                best = min(self._pools[warm], key=lambda worker: worker.busy, default=None)
                if best is not None:
                    best.busy += 1
                    return best
        try:
            found = self._idle(warm)
            if found is not None:
                return found
            worker = self._started(warm)
            with self._lock:
                if self._closed:
                    worker.close()
                    raise BadValue("this sandbox is closed; make another")
                worker.busy += 1
                self._pools[warm].append(worker)
                return worker
        finally:
            starting.release()

    def _started(self, warm: bool) -> Worker:
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(SandboxDied):
                return Worker(self.level, self.preload if warm else ())
        return Worker(self.level, self.preload if warm else ())

    def _give_back(self, worker: Worker, request: Request | None) -> None:
        if request is not None:
            request.close()
        with self._lock:
            worker.busy -= 1

    def _discard(self, worker: Worker, err: SandboxDied, attempt: int) -> None:
        """Use no more of a template that broke; the next attempt gets another."""
        with self._lock:
            for pool in self._pools.values():
                if worker in pool:
                    pool.remove(worker)
        worker.close()
        if attempt == _ATTEMPTS - 1 or self._closed:
            raise err

    def _async_gate(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        gate = self._gates.get(loop)
        if gate is None:
            gate = self._gates[loop] = asyncio.Semaphore(self.concurrency)
        return gate

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy in another process is made alike, with templates of its own."""
        given: dict[str, Any] = {
            "limits": self.limits,
            "workers": self.workers,
            "concurrency": self.concurrency,
            "preload": self.preload,
            "run_unprotected_on_this_host": self._unprotected,
        }
        return functools.partial(type(self), **given), ()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)


def _received(request: Request) -> bytes:
    try:
        return request.connection.recv(65536)
    except TimeoutError as err:
        raise SandboxDied("the sandbox does not answer") from err
    except OSError as err:
        raise SandboxDied(f"the sandbox is gone: {err}") from err


async def _areceived(request: Request, seconds: float) -> bytes:
    request.connection.setblocking(False)
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.get_running_loop().sock_recv(request.connection, 65536)
    except TimeoutError as err:
        raise SandboxDied("the sandbox does not answer") from err
    except OSError as err:
        raise SandboxDied(f"the sandbox is gone: {err}") from err


_shared: tuple[int, Sandbox] | None = None
_shared_lock = threading.Lock()


def shared_sandbox() -> Sandbox:
    """The one sandbox of this process, for everybody who needs no other; ends with the process."""
    global _shared
    with _shared_lock:
        if _shared is None or _shared[0] != os.getpid() or _shared[1]._closed:
            _shared = os.getpid(), Sandbox()
        return _shared[1]


@atexit.register
def _close_all() -> None:
    for box in list(_open):
        if box._pid == os.getpid():
            with contextlib.suppress(Exception):
                box.close()
