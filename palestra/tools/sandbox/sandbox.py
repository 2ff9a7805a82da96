"""Isolated, resource-limited execution of Python programs in pre-started interpreters."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from palestra.errors import BadValue, NoSandbox
from palestra.machine import usable_cores
from palestra.tools.sandbox.isolation import IsolationLevel, isolation_level
from palestra.tools.sandbox.request import KILLED, REPLY_MARGIN, ProgramRequest, pack_batch, pack_program
from palestra.tools.sandbox.session import SandboxSession
from palestra.tools.sandbox.template_process import ProgramKilled, SandboxDied, TemplateProcess
from palestra.tools.sandbox.types import Limits, Result

T = TypeVar("T")
_ATTEMPTS = 3  # if a template process fails or a program is killed from outside, the program is run again
_open_sandboxes: weakref.WeakSet[Sandbox] = weakref.WeakSet()


class Sandbox:
    """Run untrusted Python programs.

    A program has access to a read-only system, a private directory in memory and its own /proc, but not to the network
    or the host's environment variables. It runs under `limits` as an unprivileged user that cannot gain privileges, and
    all processes it started are killed when it ends. The modules in `preload` are already imported for programs that
    mention them.

    `run` and `session` may be called from many threads and `arun` and `asession` from many tasks concurrently; at most
    `concurrency` programs run at a time, forked from up to `workers` template processes per set of preloaded modules.
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
        """Create a sandbox; processes start on first use.

        `run_unprotected_on_this_host` runs programs without isolation, with YOUR permissions, on YOUR files.
        """
        self.level = IsolationLevel(name="none") if run_unprotected_on_this_host else isolation_level()
        if self.level.name == "none" and not run_unprotected_on_this_host:
            raise NoSandbox(
                f"this machine cannot isolate programs: {self.level.why}. {self.level.fix}. `palestra doctor` shows "
                "details. To run model-written code without any protection, with your own permissions and files: "
                "Sandbox(run_unprotected_on_this_host=True)"
            )
        self._unprotected = run_unprotected_on_this_host
        cores = usable_cores()
        self.limits = limits or Limits()
        self.workers = cores if workers is None else workers
        self.concurrency = max(16, 4 * cores) if concurrency is None else concurrency
        if self.workers < 1 or self.concurrency < 1:
            raise BadValue(f"`workers` and `concurrency` must be at least 1, got {self.workers} and {self.concurrency}")
        self.preload = tuple(preload)
        self._preloaded_names = re.compile(rf"\b(?:{'|'.join(map(re.escape, self.preload))})\b") if preload else None
        self._closed = False
        self._reset()
        _open_sandboxes.add(self)

    def _reset(self) -> None:
        """Initialize the state; also called after a fork, because the templates belong to the parent process."""
        self._pid = os.getpid()
        self._templates: dict[bool, list[TemplateProcess]] = {False: [], True: []}  # True if modules are preloaded
        self._lock = threading.Lock()
        self._start_locks: dict[bool, threading.Lock] = {False: threading.Lock(), True: threading.Lock()}
        self._semaphore = threading.BoundedSemaphore(self.concurrency)
        self._async_semaphores: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
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
        """Run `code` as a program in a fresh interpreter.

        `files` are created in its directory. `echo` prints the value of a trailing expression, like a notebook. `brief`
        limits tracebacks to the program's own lines. `seed` seeds `random` and numpy's global generator. If the program
        fails or exceeds a limit, the Result shows it. SandboxDied is raised only if the sandbox fails repeatedly or the
        program is repeatedly killed from outside the sandbox.
        """
        warm, limits = self._checked(code), limits or self.limits
        job = pack_program(code, files, echo=echo, brief=brief, seed=seed)
        prepare = functools.partial(ProgramRequest, kind="run", job=job, stdin=stdin, limits=limits)
        with self._semaphore:
            return self._execute(warm, prepare, limits.wall, ProgramRequest.result)

    def run_each(
        self,
        code: str,
        inputs: Sequence[str | bytes],
        limits: Limits | None = None,
        *,
        peer: str = "",
        stop: bool = False,
    ) -> list[Result]:
        """Run `code` once with each of the inputs as its standard input; this is faster than calling `run` repeatedly.

        Each run has its own process, namespaces, directory and `limits`, and nothing that it leaves behind is visible
        to the next. With `stop`, no more inputs are run after one for which the program fails or exceeds a limit.
        `peer` is the code of a second program that runs at the same time as each run. The two programs are isolated
        from each other and connected only by a socket, which is file descriptor 4 in both.
        """
        warm, limits = self._checked(code), limits or self.limits
        results: list[Result] = []
        failures = 0
        with self._semaphore:
            while len(results) < len(inputs) and not (stop and not all(result.ok for result in results)):
                remaining = inputs[len(results) :]
                job = pack_batch(code, remaining, peer=peer, stop=stop)
                prepare = functools.partial(ProgramRequest, kind="batch", job=job, limits=limits)
                seconds = len(remaining) * limits.wall
                new = self._execute(warm, prepare, seconds, ProgramRequest.batch_results)[: len(remaining)]
                results += new
                failures = 0 if new else failures + 1
                if failures == _ATTEMPTS:
                    raise ProgramKilled(KILLED)
                if failures:
                    time.sleep(_delay(failures))
        return results

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
        """Like `run`, but without blocking the event loop; canceling the call kills the program."""
        warm, limits = self._checked(code), limits or self.limits
        job = pack_program(code, files, echo=echo, brief=brief, seed=seed)
        async with self._async_semaphore():
            for attempt in range(_ATTEMPTS):
                ready = self._idle(warm)
                template = await asyncio.to_thread(self._acquire, warm) if ready is None else ready
                request = None
                try:
                    request = ProgramRequest(kind="run", job=job, stdin=stdin, limits=limits)
                    request.send(template)
                    return request.result(await _areceive(request, limits.wall + REPLY_MARGIN))
                except SandboxDied as err:
                    delay = self._after_failure(template, err, attempt)
                finally:
                    self._release(template, request)
                await asyncio.sleep(delay)
        raise AssertionError("unreachable: the last attempt raises its error")

    def _execute(
        self,
        warm: bool,
        prepare: Callable[[], ProgramRequest],
        seconds: float,
        finish: Callable[[ProgramRequest, bytes], T],
    ) -> T:
        """Send a request and return the result of `finish` for the reply; if the sandbox fails, send it again."""
        for attempt in range(_ATTEMPTS):
            template = self._acquire(warm)
            request = None
            try:
                request = prepare()
                request.send(template)
                request.connection.settimeout(seconds + REPLY_MARGIN)
                return finish(request, _receive(request))
            except SandboxDied as err:
                delay = self._after_failure(template, err, attempt)
            finally:
                self._release(template, request)
            time.sleep(delay)
        raise AssertionError("unreachable: the last attempt raises its error")

    def session(
        self, *, limits: Limits | None = None, echo: bool = False, brief: bool = False, seed: int | None = None
    ) -> SandboxSession:
        """Open an interpreter that keeps its variables between calls to `session.run`. Close it, or use `with`."""
        self._checked("")
        for attempt in range(_ATTEMPTS):
            template = self._acquire(True)  # later cells may need the preloaded modules
            request = None
            try:
                job = pack_program("", None, echo=echo, brief=brief, seed=seed)
                request = ProgramRequest(kind="session", job=job, limits=limits or self.limits)
                request.send(template)
                return SandboxSession(request)
            except SandboxDied as err:
                if request is not None:
                    request.close()
                self._after_failure(template, err, attempt)
            finally:
                self._release(template, None)
        raise AssertionError("unreachable: the last attempt raises its error")

    async def asession(
        self, *, limits: Limits | None = None, echo: bool = False, brief: bool = False, seed: int | None = None
    ) -> SandboxSession:
        """Open a session without blocking the event loop."""
        return await asyncio.to_thread(self.session, limits=limits, echo=echo, brief=brief, seed=seed)

    def close(self) -> None:
        """Kill all template processes and programs. Idempotent."""
        self._closed = True
        with self._lock:
            templates, self._templates = self._templates, {False: [], True: []}
        for template in (template for pool in templates.values() for template in pool):
            template.close()

    def _checked(self, code: str) -> bool:
        """Check that `code` can be run, and return whether it mentions a preloaded module."""
        if self._closed:
            raise BadValue("this sandbox is closed; create another Sandbox()")
        if self._pid != os.getpid():
            for template in (template for pool in self._templates.values() for template in pool):
                template.close()
            self._reset()
        if not isinstance(code, str):
            raise BadValue(f"`code` must be a string, got {type(code).__name__}")
        return self._preloaded_names is not None and self._preloaded_names.search(code) is not None

    # Templates

    def _idle(self, warm: bool) -> TemplateProcess | None:
        """Return the least busy template, or None if a new one should be started."""
        with self._lock:
            pool = self._templates[warm]
            best = min(pool, key=lambda template: template.busy, default=None)
            if best is None or (best.busy > 1 and len(pool) < self.workers):
                return None
            best.busy += 1
            return best

    def _acquire(self, warm: bool) -> TemplateProcess:
        """Return a template; start a new one if there is none, or if all are busy and `workers` allows more."""
        idle = self._idle(warm)
        if idle is not None:
            return idle
        start_lock = self._start_locks[warm]
        while not start_lock.acquire(blocking=not self._templates[warm]):
            with self._lock:  # another thread is starting a template; use a busy one in the meantime
                best = min(self._templates[warm], key=lambda template: template.busy, default=None)
                if best is not None:
                    best.busy += 1
                    return best
        try:
            idle = self._idle(warm)
            if idle is not None:
                return idle
            template = self._start(warm)
            with self._lock:
                if self._closed:
                    template.close()
                    raise BadValue("this sandbox is closed; create another Sandbox()")
                template.busy += 1
                self._templates[warm].append(template)
                return template
        finally:
            start_lock.release()

    def _start(self, warm: bool) -> TemplateProcess:
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(SandboxDied):
                return TemplateProcess(self.level, self.preload if warm else ())
        return TemplateProcess(self.level, self.preload if warm else ())

    def _release(self, template: TemplateProcess, request: ProgramRequest | None) -> None:
        if request is not None:
            request.close()
        with self._lock:
            template.busy -= 1

    def _after_failure(self, template: TemplateProcess, err: SandboxDied, attempt: int) -> float:
        """Return the seconds to wait before the next attempt; raise `err` after the last attempt.

        A template that failed is closed, so that the next attempt uses another. If only the program was killed, the
        template and the other programs in it are not affected.
        """
        delay = _delay(attempt + 1)
        if not isinstance(err, ProgramKilled):
            delay = 0.0
            with self._lock:
                for pool in self._templates.values():
                    if template in pool:
                        pool.remove(template)
            template.close()
        if attempt == _ATTEMPTS - 1 or self._closed:
            raise err
        return delay

    def _async_semaphore(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        semaphore = self._async_semaphores.get(loop)
        if semaphore is None:
            semaphore = self._async_semaphores[loop] = asyncio.Semaphore(self.concurrency)
        return semaphore

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the settings; the unpickled sandbox starts its own templates."""
        settings: dict[str, Any] = {
            "limits": self.limits,
            "workers": self.workers,
            "concurrency": self.concurrency,
            "preload": self.preload,
            "run_unprotected_on_this_host": self._unprotected,
        }
        return functools.partial(type(self), **settings), ()

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


def _delay(failures: int) -> float:
    """Return the seconds to wait after a program was killed, so that memory can become free."""
    return 0.05 * 4.0**failures


def _receive(request: ProgramRequest) -> bytes:
    try:
        return request.connection.recv(65536)
    except TimeoutError as err:
        raise SandboxDied("the sandbox does not respond") from err
    except OSError as err:
        raise SandboxDied(f"the sandbox is no longer running: {err}") from err


async def _areceive(request: ProgramRequest, seconds: float) -> bytes:
    request.connection.setblocking(False)
    try:
        async with asyncio.timeout(seconds):
            return await asyncio.get_running_loop().sock_recv(request.connection, 65536)
    except TimeoutError as err:
        raise SandboxDied("the sandbox does not respond") from err
    except OSError as err:
        raise SandboxDied(f"the sandbox is no longer running: {err}") from err


_shared: tuple[int, Sandbox] | None = None
_shared_lock = threading.Lock()


def shared_sandbox() -> Sandbox:
    """Return the sandbox that all tools and graders in this process share; it is closed when the process exits."""
    global _shared
    with _shared_lock:
        if _shared is None or _shared[0] != os.getpid() or _shared[1]._closed:
            _shared = os.getpid(), Sandbox()
        return _shared[1]


@atexit.register
def _close_all() -> None:
    for sandbox in list(_open_sandboxes):
        if sandbox._pid == os.getpid():
            with contextlib.suppress(Exception):
                sandbox.close()
