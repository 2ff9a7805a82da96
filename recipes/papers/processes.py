"""Run `palestra` commands in processes that are used again, because starting one takes longer than some runs.

Python, PyTorch and a GPU are initialized once per process. A command that runs out of time ends its process, and so
does a crash; the next command then starts another one. Run as a script, this module is such a process.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import IO

HERE = Path(__file__).parent

_idle: list[Process] = []
_all: set[Process] = set()
_lock = threading.Lock()
_ended = threading.Event()


class Process:
    """A process that runs one command at a time."""

    def __init__(self) -> None:
        paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,
        )

    def run(self, arguments: Sequence[str], log: Path, seconds: float) -> int | None:
        """Run a command; return its exit code, or None if it was stopped after `seconds`."""
        commands, answers = self._process.stdin, self._process.stdout
        if commands is None or answers is None:
            raise RuntimeError("the process has no pipes")
        with suppress(BrokenPipeError):  # the process has ended
            commands.write(json.dumps({"arguments": list(arguments), "log": str(log)}).encode() + b"\n")
            commands.flush()
        ready, _, _ = select.select([answers], [], [], max(0.0, seconds))
        line = answers.readline() if ready else b""
        if line:
            return int(line)
        self.kill()
        return self._process.returncode if ready and not stopping() else None

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """End the process and those that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill(self) -> None:
        """End the process and close its pipes, which no other thread may use."""
        self.end()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def palestra(arguments: Sequence[str], log: Path, seconds: float) -> int | None:
    """Run a `palestra` command in an idle process; return its exit code, or None if it was stopped after `seconds`."""
    with _lock:
        if stopping():
            return None
        usable = [process for process in _idle if process.running]
        process = usable.pop() if usable else Process()
        _idle[:] = usable
        _all.add(process)
    code = process.run(arguments, log, seconds)
    with _lock:
        if process.running:
            _idle.append(process)
        else:
            _all.discard(process)
    return code


def stopping() -> bool:
    """Return whether `end_all` was called."""
    return _ended.is_set()


@atexit.register
def end_all() -> None:
    """End all processes; the commands that they run count as stopped, and so do later ones."""
    _ended.set()
    with _lock:
        for process in _all:
            process.end()


def serve(commands: SimpleQueue[bytes], answers: IO[bytes]) -> None:
    """Run commands one after the other; the output of each goes to its log, its exit code to `answers`."""
    from palestra.cli import main

    while True:
        command = json.loads(commands.get())
        log = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        try:
            code = main(command["arguments"])
        except SystemExit as err:
            code = err.code if isinstance(err.code, int) else int(err.code is not None)
        except BaseException:  # noqa: BLE001  # as in a process of its own, a traceback and exit code 1
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        gc.collect()
        torch = sys.modules.get("torch")
        if torch is not None and torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # for the other processes on this GPU
        answers.write(b"%d\n" % code)
        answers.flush()


def _read(commands: SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        commands.put(line)
    os._exit(1)  # the script that sends the commands has ended


if __name__ == "__main__":
    queue: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(queue,), daemon=True).start()
    serve(queue, os.fdopen(os.dup(1), "wb"))
