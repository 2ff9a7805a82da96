"""Run Python programs in forks of a process that has already imported torch, transformers and `palestra.training`.

The imports take several seconds of CPU time per process. `run` and `Popen` take the same commands as in
`subprocess`: a list that starts with `sys.executable`, followed by `-m MODULE`, `-c CODE` or a script, and arguments.
Everything else is as in a new process: arguments, environment variables, working directory, standard streams, signals
and exit code. Use `subprocess` in tests that check imports or process startup. If the imports start threads, as some
builds of torch do, a fork would not be safe, and each program runs in a new process instead. The test processes of
pytest-xdist share one warm process, and are forks of it themselves (see warm_worker.py).
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any, TextIO, cast

PRELOAD = (
    "hypothesis",  # before numpy, because it registers numpy's random generator when imported
    "aiohttp",
    "datasets",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "mcp",
    "minigrid",
    "palestra.cli",
    "palestra.engines.local.scheduler_selection",
    "palestra.evals",
    "peft",
    "playwright.sync_api",
    "tensorboard.backend.event_processing.event_accumulator",
)
FROM_TRANSFORMERS = ("AutoTokenizer", "LlamaForCausalLM", "Qwen3ForCausalLM")
TEST_RUN = "PALESTRA_TEST_RUN"  # environment variable, the same in all processes of a test run
_LOCK = threading.Lock()
_RUN, _NEW_PROCESS = subprocess.run, subprocess.Popen  # tests replace the originals with the functions below


def Popen(command: Sequence[str], *, text: bool = True, **options: Any) -> Any:  # noqa: N802  # as in subprocess
    """Start a program in a fork of the warm process, or in a new process if there is no warm process."""
    if _template() is None:
        return _NEW_PROCESS(command, text=text, **options)
    return _Fork(command, text=text, **options)


class _Fork:
    """Program in a fork of the warm process. `stdout` and `stderr` are files; `subprocess.PIPE` opens a pipe."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        stdin: int | None = None,
        stdout: Any = None,
        stderr: Any = None,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        text: bool = True,
    ) -> None:
        assert command[0] == sys.executable
        assert text
        self.stdout, outside_out = _output(stdout, 1)
        self.stderr, outside_err = _output(stderr, 2)
        request = {
            "arguments": [str(word) for word in command[1:]],
            "folder": str(cwd or Path.cwd()),
            "variables": dict(os.environ if env is None else env),
        }
        self._connection, outside = socket.socketpair()
        with outside, Path(os.devnull).open() as nothing:
            streams = [nothing.fileno() if stdin is None else stdin, outside_out, outside_err, outside.fileno()]
            template = _template()
            assert template is not None
            with _LOCK:
                socket.send_fds(template, [b"."], streams)
        for stream, end in ((self.stdout, outside_out), (self.stderr, outside_err)):
            if stream is not None:
                os.close(end)
        self._lines = self._connection.makefile("rw")
        self._lines.write(json.dumps(request) + "\n")
        self._lines.flush()
        self.pid = int(self._lines.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self._connection.setblocking(False)
            try:
                ended = bool(self._connection.recv(1, socket.MSG_PEEK))
            except BlockingIOError:
                ended = False
            self._connection.setblocking(True)
            if ended:
                self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            self.returncode = int(self._lines.readline())
            self._lines.close()
            self._connection.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Return the remaining output. The program must write less to standard error than fits into a pipe."""
        texts = []
        for stream in (self.stdout, self.stderr):
            texts.append("" if stream is None else stream.read())
            if stream is not None:
                stream.close()
        self.wait(timeout)
        return texts[0], texts[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(command: Sequence[str], *, capture_output: bool = False, check: bool = False, **options: Any) -> Any:
    """Return the exit code and the output of a program as a `subprocess.CompletedProcess`."""
    if _template() is None:
        return _RUN(command, capture_output=capture_output, check=check, **{**options, "text": True})
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        streams: dict[str, Any] = {"stdout": out, "stderr": err} if capture_output else {}
        code = Popen(command, **streams, **options).wait()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    done = subprocess.CompletedProcess(command, code, *(texts if capture_output else (None, None)))
    if check:
        done.check_returncode()
    return done


def _output(stream: Any, default: int) -> tuple[TextIO | None, int]:
    """Return the read end of a new pipe, or None without a pipe, and the descriptor that the program writes to."""
    if stream == subprocess.PIPE:
        inside, outside = os.pipe()
        return os.fdopen(inside), outside
    if stream is None:
        return None, default
    return None, stream if isinstance(stream, int) else stream.fileno()


@cache
def _template() -> socket.socket | None:
    """Connect to the warm process, and start it if there is none; return None if it cannot be forked safely.

    It ends when all test processes have closed their connections.
    """
    run = os.environ.get(TEST_RUN) or str(os.getpid())
    address = f"\0palestra-warm-process-{run}"  # an abstract socket, which needs no file
    connection = socket.socket(socket.AF_UNIX)
    process = None
    with socket.socket(socket.AF_UNIX) as listener, suppress(OSError):
        listener.bind(address)  # fails if another test process has started the warm process
        listener.listen()
        process = _NEW_PROCESS(
            [sys.executable, "-m", "tests.warm_process", str(listener.fileno())],
            pass_fds=[listener.fileno()],
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # without numpy threads, because the process is forked
            cwd=Path(__file__).parents[1],
            stdin=subprocess.DEVNULL,
        )
        atexit.register(_wait, process)
    atexit.register(connection.close)  # runs before the wait, because exit handlers run in reverse order
    for _ in range(100):
        with suppress(ConnectionRefusedError):  # the other test process has not called `listen` yet
            connection.connect(address)
            break
        time.sleep(0.01)
    with suppress(OSError):
        if connection.recv(1) == b"1":
            return connection
    if process is not None:  # it has exited
        _wait(process)
    return None


def _wait(process: subprocess.Popen[bytes]) -> None:
    with suppress(subprocess.TimeoutExpired):  # other test processes may need it longer
        process.wait(10)


def _import_packages() -> None:
    for name in PRELOAD:
        import_module(name)
    training = import_module("palestra.training")
    for info in walk_packages(training.__path__, "palestra.training."):
        import_module(info.name)
    transformers = import_module("transformers")
    for name in FROM_TRANSFORMERS:
        getattr(transformers, name)
    gc.freeze()


def _requests(listener: socket.socket) -> Generator[list[int], None, None]:
    """Yield the file descriptors in each request. End when all connections are closed."""
    with selectors.DefaultSelector() as ready:
        ready.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in ready.select():
                if key.fileobj is listener:
                    connection, _ = listener.accept()
                    ready.register(connection, selectors.EVENT_READ)
                    connection.sendall(b"1")
                    continue
                connection = cast("socket.socket", key.fileobj)
                _, streams, _, _ = socket.recv_fds(connection, 1, 4)
                if streams:
                    yield streams
                    continue
                ready.unregister(connection)
                connection.close()
                if len(ready.get_map()) == 1:
                    return


def _forked(listener: socket.socket) -> dict[str, Any]:
    """Fork for every request, and return the request in the fork. Another fork reports the exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that forks that report an exit code need no `wait`
    requests = _requests(listener)
    for streams in requests:
        if os.fork():
            for stream in streams:
                os.close(stream)
            continue
        requests.close()
        listener.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        connection = socket.socket(fileno=streams.pop())
        lines = connection.makefile("rw")
        request: dict[str, Any] = json.loads(lines.readline())
        pid = os.fork()
        if not pid:
            lines.close()
            connection.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return request
        for stream in (0, 1, 2, *streams):
            os.close(stream)
        lines.write(f"{pid}\n")
        lines.flush()
        status = os.waitpid(pid, 0)[1]
        lines.write(f"{os.waitstatus_to_exitcode(status)}\n")
        lines.flush()
        os._exit(0)
    os._exit(0)


def _prepare(request: dict[str, Any]) -> None:
    """Set up the standard streams, the environment and the working directory as a new interpreter does."""
    os.environ.clear()
    os.environ.update(request["variables"])
    os.chdir(request["folder"])
    through = "PYTHONUNBUFFERED" in os.environ
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)  # type: ignore[misc]
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = os.fdopen(number, "w", closefd=False, errors="backslashreplace" if number == 2 else "strict")
        stream.reconfigure(line_buffering=number == 2 or stream.isatty(), write_through=through)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _execute(arguments: list[str]) -> None:
    kind, name, *rest = arguments if arguments[0] in ("-m", "-c") else ("", *arguments)
    sys.argv = [kind or name, *rest]
    sys.path[0] = "" if kind else str(Path(name).parent)
    if kind == "-m":
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    elif kind == "-c":
        module = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(name, "<string>", "exec"), vars(module))
    else:
        runpy.run_path(name, run_name="__main__")


def _exit_code(arguments: list[str]) -> int:
    try:
        _execute(arguments)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        return -signal.SIGINT
    except BaseException:  # noqa: BLE001  # reported as an interpreter would
        traceback.print_exc()
        return 1
    return 0


def _end(code: int) -> None:
    """End the process as an interpreter does, but without freeing every object, which would take 0.5 s."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads that are not daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as _listener:
        _import_packages()
        _threads = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
        if len(_threads) > 1:
            sys.stderr.write(f"The tests start new processes, which is slow: imports started threads ({_threads})\n")
            sys.exit()
        _request = _forked(_listener)
    _prepare(_request)
    _end(_exit_code(_request["arguments"]))
