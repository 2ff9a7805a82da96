"""Host-side handle for one template process: start it, send requests to it, and kill it with all its programs."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from palestra.errors import ToolFailed
from palestra.tools.sandbox import isolation
from palestra.tools.sandbox.cgroups import MemoryGroup

START_TIMEOUT = 120.0  # seconds; the template imports numpy and sympy, possibly on a busy machine
SEND_TIMEOUT = 60.0  # seconds to wait if the control socket's buffer is full
_MAIN = "import sys; sys.path.insert(0, {code!r}); from palestra.tools.sandbox.guest.template import main; main()"
_UIDS = 1_000_000_000  # first user id, above the ids of all accounts; each template uses 256 ids
_CODE = os.path.dirname(__file__).removesuffix(os.path.join("palestra", "tools", "sandbox"))  # noqa: PTH118, PTH120


class SandboxDied(ToolFailed):
    """The sandbox itself failed; the program did not cause the failure."""


class ProgramKilled(SandboxDied):
    """The program was killed from outside the sandbox, for example by the kernel's out-of-memory killer."""


class TemplateProcess:
    """A running template process that accepts requests."""

    def __init__(self, level: isolation.IsolationLevel, modules: Sequence[str]) -> None:
        self.busy = 0  # number of programs that the template is running
        self._control, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid = os.getpid()
        self._stderr = memory_file("errors")
        self._pidfd: int | None = None  # refers to the template itself, not to bwrap
        self._cleans_up = level.name == "none"
        self._group = MemoryGroup() if level.name != "none" else None
        handles: list[int] = []
        try:
            with remote:
                self._process = self._start(level, modules, remote.fileno(), handles)
                self._control.settimeout(START_TIMEOUT)
                for handle in handles:
                    os.close(handle)
                handles.clear()
            if self._control.recv(16) != b"ready":
                raise SandboxDied(f"the sandbox did not start: {self._last_errors()}")
        except (OSError, ToolFailed) as err:
            stderr = self._last_errors()
            self.close()
            if isinstance(err, ToolFailed):
                raise
            raise SandboxDied(f"the sandbox did not start: {err}. {stderr}") from err
        finally:
            for handle in handles:
                os.close(handle)
        self._control.settimeout(SEND_TIMEOUT)

    def _start(
        self, level: isolation.IsolationLevel, modules: Sequence[str], control: int, handles: list[int]
    ) -> subprocess.Popen[bytes]:
        protected = level.name != "none"
        first_uid = _UIDS + (os.getpid() * 4093 + id(self) // 64) % 3_900_000 * 256
        main = _MAIN.format(code=isolation.CODE if protected else _CODE)
        python = [sys.executable, "-s", "-P", "-B"]
        group = -1 if self._group is None or self._group.handle is None else self._group.handle
        args = [*python, "-c", main, str(control), level.confinement, str(first_uid), ",".join(modules), str(group)]
        pass_fds = [control] if group < 0 else [control, group]
        read = -1
        if protected:
            data = {name: _filled(content) for name, content in isolation.data_files().items()}
            read, info = os.pipe()
            handles += [*data.values(), info]
            hide_groups = self._group is None or not self._group.version_2
            args = isolation.command(args, info=info, data=data, hide_groups=hide_groups)
            pass_fds += [*data.values(), info]
        environment = dict(isolation.ENVIRONMENT)
        if not protected:
            environment["TMPDIR"] = tempfile.gettempdir()
        process = subprocess.Popen(
            args,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            env=environment,
            cwd="/",
            pass_fds=pass_fds,
            start_new_session=True,  # so that Ctrl-C in the host's terminal does not reach the template
        )
        if self._group is not None:
            self._group.close_handle()
        if protected:
            os.close(handles.pop())  # `info`; the read below returns when all writers have closed it
            with open(read, "rb") as file, contextlib.suppress(ValueError, KeyError, OSError):  # noqa: PTH123
                self._pidfd = os.pidfd_open(json.loads(file.read())["child-pid"])
        else:
            self._pidfd = os.pidfd_open(process.pid)
        return process

    def send(self, message: bytes, handles: Sequence[int]) -> None:
        """Send one request with its file descriptors."""
        try:
            socket.send_fds(self._control, [message], list(handles))
        except OSError as err:
            raise SandboxDied(f"the sandbox is no longer running: {err}. {self._last_errors()}") from err

    def close(self) -> None:
        """Kill the template; the kernel then kills all processes in its pid namespace. Idempotent."""
        self._control.close()
        if self._pid != os.getpid():  # in a fork of the host, the template belongs to the parent
            for handle in (self._pidfd, self._stderr):
                if handle is not None and handle >= 0:
                    os.close(handle)
            self._pidfd, self._stderr = None, -1
            return
        if self._pidfd is not None:
            if self._cleans_up:  # without namespaces, only the template can kill its programs
                select.select([self._pidfd], [], [], 30.0)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            os.close(self._pidfd)
            self._pidfd = None
        process = getattr(self, "_process", None)
        if process is not None:
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._group is not None:
            self._group.close()
        if self._stderr >= 0:
            os.close(self._stderr)
            self._stderr = -1

    def _last_errors(self) -> str:
        """Return the last part of the template's standard error."""
        if self._stderr < 0:
            return ""
        size = os.fstat(self._stderr).st_size
        return os.pread(self._stderr, 1000, max(0, size - 1000)).decode("utf-8", "replace").strip()


def memory_file(name: str) -> int:
    """Create an anonymous in-memory file, which is freed when its last descriptor is closed."""
    return os.memfd_create(f"palestra-{name}", os.MFD_CLOEXEC)


def _filled(content: bytes) -> int:
    handle = memory_file("data")
    os.write(handle, content)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle
