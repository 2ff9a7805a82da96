"""One template process: started, sent requests, asked whether it lives, ended with everything it started."""

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
from palestra.tools.sandbox import levels

START = 30.0  # seconds a template may take to get ready: it imports numpy and sympy, on a machine that may be busy
_MAIN = "import sys; sys.path.insert(0, {code!r}); from palestra.tools.sandbox.inside.zygote import main; main()"
_UIDS = 1_000_000_000  # numbers no account has; each template has 256 of them
_CODE = os.path.dirname(__file__).removesuffix(os.path.join("palestra", "tools", "sandbox"))  # noqa: PTH118, PTH120


class SandboxDied(ToolFailed):
    """The sandbox itself broke; not the program's doing."""


class Worker:
    """A template process, ready for requests."""

    def __init__(self, level: levels.Level, modules: Sequence[str]) -> None:
        self.busy = 0  # programs that run in it
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid = os.getpid()
        self._errors = memory_file("errors")
        self._inner: int | None = None  # a handle of the template itself
        self._gently = level.name == "none"
        handles: list[int] = []
        try:
            with theirs:
                self._process = self._start(level, modules, theirs.fileno(), handles)
                self._ours.settimeout(START)
                for handle in handles:
                    os.close(handle)
                handles.clear()
            if self._ours.recv(16) != b"ready":
                raise SandboxDied(f"the sandbox did not start: {self._said()}")
        except (OSError, ToolFailed) as err:
            self.close()
            if isinstance(err, ToolFailed):
                raise
            raise SandboxDied(f"the sandbox did not start: {err}. {self._said()}") from err
        finally:
            for handle in handles:
                os.close(handle)
        self._ours.settimeout(5.0)

    def _start(
        self, level: levels.Level, modules: Sequence[str], control: int, handles: list[int]
    ) -> subprocess.Popen[bytes]:
        protected = level.name != "none"
        first_uid = _UIDS + (os.getpid() * 4093 + id(self) // 64) % 3_900_000 * 256
        main = _MAIN.format(code=levels.CODE if protected else _CODE)
        python = [sys.executable, "-s", "-P", "-B"]
        args = [*python, "-c", main, str(control), level.inside, str(first_uid), ",".join(modules)]
        pass_fds = [control]
        read = -1
        if protected:
            data = {name: _filled(content) for name, content in levels.data_files().items()}
            read, info = os.pipe()
            handles += [*data.values(), info]
            args = levels.command(args, control=control, info=info, data=data)
            pass_fds += [*data.values(), info]
        environment = {**levels.ENVIRONMENT} if protected else {**levels.ENVIRONMENT, "TMPDIR": tempfile.gettempdir()}
        process = subprocess.Popen(
            args,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env=environment,
            cwd="/",
            pass_fds=pass_fds,
            start_new_session=True,  # a Ctrl-C on the host's terminal is not meant for it
        )
        if protected:
            os.close(handles.pop())  # info: or the end of it would never be read
            with open(read, "rb") as file, contextlib.suppress(ValueError, KeyError, OSError):  # noqa: PTH123
                self._inner = os.pidfd_open(json.loads(file.read())["child-pid"])
        else:
            self._inner = os.pidfd_open(process.pid)
        return process

    def send(self, message: bytes, handles: Sequence[int]) -> None:
        """Hand over one request."""
        try:
            socket.send_fds(self._ours, [message], list(handles))
        except OSError as err:
            raise SandboxDied(f"the sandbox is gone: {err}. {self._said()}") from err

    def close(self) -> None:
        """End the template; the kernel ends everything in its namespace. May be called twice."""
        self._ours.close()
        if self._pid != os.getpid():  # a fork's copy: the process belongs to the parent
            for handle in (self._inner, self._errors):
                if handle is not None and handle >= 0:
                    os.close(handle)
            self._inner, self._errors = None, -1
            return
        if self._inner is not None:
            if self._gently:  # without namespaces nobody but the template can clean up behind programs
                select.select([self._inner], [], [], 5.0)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._inner, signal.SIGKILL)
            os.close(self._inner)
            self._inner = None
        process = getattr(self, "_process", None)
        if process is not None:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._errors >= 0:
            os.close(self._errors)
            self._errors = -1

    def _said(self) -> str:
        """The last it wrote to its standard error."""
        if self._errors < 0:
            return ""
        size = os.fstat(self._errors).st_size
        return os.pread(self._errors, 1000, max(0, size - 1000)).decode("utf-8", "replace").strip()


def memory_file(name: str) -> int:
    """A file that lies in memory and goes with its last descriptor."""
    return os.memfd_create(f"palestra-{name}", os.MFD_CLOEXEC)


def _filled(content: bytes) -> int:
    handle = memory_file("data")
    os.write(handle, content)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle
