"""A submission and many tests -> what came of each, from inside of one sandbox: a fork for every test.

The work is JSON on standard input: what to type or to call, never what is expected. A line of JSON comes back for every
test. A fork starts from the same warm interpreter, in an empty folder, under its own limits; what it leaves behind is
swept away before the next one. The submission's own output goes to a file; where functions are called it goes nowhere,
and what they return is written as plain data, with tags for what JSON lacks.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import resource
import signal
import sys
import traceback
from time import monotonic
from types import CodeType, ModuleType
from typing import Any

RESULT = 200  # the descriptor results are written to; beyond what a program opens
IN, OUT, ERR = 201, 202, 203  # files a test's program reads from and writes to; emptied for the next one
ERRORS = 2_000  # bytes of a traceback that are told
_STREAMS = (("r", "surrogateescape"), ("w", "surrogateescape"), ("w", "backslashreplace"))


def main(source: str, names: dict[str, list[str]]) -> None:
    """Do all the work on standard input."""
    work = json.loads(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))
    os.dup2(1, RESULT, inheritable=False)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    code: CodeType | None = None
    error = ""
    try:
        code = compile(source, "main.py", "exec", dont_inherit=True)
    except BaseException as err:  # noqa: BLE001  # the compiler raises many things
        error = f"{type(err).__name__}: {err}"
    for handle in (IN, OUT, ERR):
        opened = os.open("-", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.unlink("-")  # noqa: PTH108
        os.dup2(opened, handle, inheritable=False)
        os.close(opened)
    _kept.update(os.listdir())  # noqa: PTH208
    gc.collect()
    gc.freeze()
    for test in work["tests"]:
        if code is None:
            said: dict[str, Any] = {"exit": 1, "limit": "", "out": "", "err": error}
        else:
            said = _tested(code, source, names, test, work)
        line = (json.dumps(said) + "\n").encode()
        while line:
            line = line[os.write(RESULT, line) :]
        if work["stop"] and (said["exit"] or said["limit"]):
            break
    os._exit(0)


def _tested(
    code: CodeType, source: str, names: dict[str, list[str]], test: dict[str, Any], work: Any
) -> dict[str, Any]:
    for handle in (IN, OUT, ERR):
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
    data = test.get("stdin", "").encode("utf-8", "surrogatepass")
    while data:
        data = data[os.write(IN, data) :]
    os.lseek(IN, 0, os.SEEK_SET)
    began = monotonic()
    pid = os.fork()
    if pid == 0:
        _become(code, source, names, test, work)
    limit, status, spent = _waited(pid, began + work["wall"])
    _sweep()
    if not limit and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL and spent >= work["cpu"] - 0.1:
        limit = "cpu"
    out, longer = _read(OUT, work["output"])
    if longer and not limit:
        limit = "output"
    err = os.pread(ERR, ERRORS, max(0, os.fstat(ERR).st_size - ERRORS)).decode("utf-8", "replace")
    exit_code = os.waitstatus_to_exitcode(status)
    return {"exit": exit_code, "limit": limit, "out": out, "err": err}


def _waited(pid: int, deadline: float) -> tuple[str, int, float]:
    """The limit it was ended for, how it ended, the processor time it used."""
    limit = ""
    while True:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            return limit, status, usage.ru_utime + usage.ru_stime
        left = deadline - monotonic()
        if left <= 0:
            limit = "time"
            os.kill(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            return limit, status, usage.ru_utime + usage.ru_stime
        signal.sigtimedwait({signal.SIGCHLD}, left)


_kept: set[str] = set()  # what the box shows here: an interpreter that lives below a folder of the same name


def _sweep() -> None:
    """End what a test started and remove what it wrote."""
    if os.getpid() == 1:  # of a namespace of our own: all others in it are its leftovers
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0):
                continue
    left = set(os.listdir()) - _kept  # noqa: PTH208
    if left:
        import shutil

        for name in left:
            if os.path.isdir(name) and not os.path.islink(name):  # noqa: PTH112, PTH114
                shutil.rmtree(name, ignore_errors=True)
            else:
                os.unlink(name)  # noqa: PTH108


def _read(handle: int, most: int) -> tuple[str, bool]:
    data = os.pread(handle, most + 1, 0)
    return data[:most].decode("utf-8", "replace"), len(data) > most


def _become(code: CodeType, source: str, names: dict[str, list[str]], test: dict[str, Any], work: Any) -> None:
    """In the fork: be the program, or call its functions. Does not return."""
    exit_code = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        seconds = max(1, math.ceil(work["cpu"]))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        os.dup2(IN, 0)
        called = "stdin" not in test
        way_out = os.dup(OUT) if called else -1
        os.dup2(os.open(os.devnull, os.O_WRONLY) if called else OUT, 1)
        os.dup2(ERR, 2)
        for handle in (RESULT, IN, OUT, ERR):
            os.close(handle)
        _fresh()
        main_module = ModuleType("__main__")
        space = main_module.__dict__
        space["__builtins__"] = __builtins__
        sys.modules["__main__"] = main_module
        if called:
            _provide(space, source, names)
            exec(code, space)  # noqa: S102  # this is what it is all for
            said = json.dumps([test["key"], _called(space, test)]).encode()
            while said:
                said = said[os.write(way_out, said) :]
            exit_code = 0
        else:
            exit_code = _run(code, space)
    except BaseException as err:  # noqa: BLE001  # whatever it raises, the test has failed
        _report(err)
    finally:
        os._exit(exit_code)


def _fresh() -> None:
    """Streams, generators and arguments as a new interpreter has them."""
    opened = [
        open(handle, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        for handle, (mode, errors) in enumerate(_STREAMS)
    ]
    for name, stream in zip(("stdin", "stdout", "stderr"), opened, strict=True):
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = ["main.py"]
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed(None)


def _run(code: CodeType, space: dict[str, Any]) -> int:
    """The program from top to end; its exit code."""
    exit_code = 0
    try:
        exec(code, space)  # noqa: S102
    except SystemExit as err:
        if isinstance(err.code, int):
            exit_code = err.code & 0xFF
        elif err.code is not None:
            sys.stderr.write(f"{err.code}\n")
            exit_code = 1
    except BaseException as err:  # noqa: BLE001
        _report(err)
        exit_code = 1
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            exit_code = exit_code or 120
        except AttributeError:
            continue
    return exit_code


def _report(err: BaseException) -> None:
    try:
        text = "".join(traceback.format_exception_only(type(err), err))
        os.write(2, text.encode("utf-8", "replace")[-ERRORS:])
    except BaseException:  # noqa: BLE001  # out of memory, or of stack
        os.write(2, f"{type(err).__name__}\n".encode())


def _provide(space: dict[str, Any], source: str, names: dict[str, list[str]]) -> None:
    """What solutions use without importing it, because their judges import it for them."""
    for module, wanted in names.items():
        if any(name in source for name in wanted):
            loaded = __import__(module)
            space.setdefault(module, loaded)
            for name in wanted:
                if hasattr(loaded, name):
                    space.setdefault(name, getattr(loaded, name))


def _called(space: dict[str, Any], test: dict[str, Any]) -> Any:
    sys.set_int_max_str_digits(0)
    if "function" in test:
        function = space.get(test["function"])
        if function is None and "Solution" in space:
            function = getattr(space["Solution"](), test["function"], None)
        if function is None:
            raise NameError(f"the program has no function {test['function']!r}")
        return _plain(function(*test["args"]), 0)
    exec(compile(test["setup"], "setup", "exec", dont_inherit=True), space)  # noqa: S102
    for statement in test["run"]:
        exec(compile(statement, "test", "exec", dont_inherit=True), space)  # noqa: S102
    return [_plain(eval(compile(v, "test", "eval", dont_inherit=True), space), 0) for v in test["values"]]  # noqa: S307


def _plain(value: Any, depth: int) -> Any:
    """As JSON, with tags."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if depth > 150:
        return {"other": "nesting too deep"}
    if kind is list:
        return [_plain(item, depth + 1) for item in value]
    if kind in (tuple, set, frozenset):
        return {kind.__name__: [_plain(item, depth + 1) for item in value]}
    if kind is dict:
        return {"dict": [[_plain(k, depth + 1), _plain(v, depth + 1)] for k, v in value.items()]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    for scalar in (int, float, str):
        if isinstance(value, scalar):
            return scalar(value)
    for base in (list, tuple, set, frozenset, dict):
        if isinstance(value, base):
            return _plain(base(value), depth + 1)
    if kind.__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        return _plain(value.tolist(), depth + 1)
    if hasattr(value, "__next__"):
        return [_plain(item, depth + 1) for item in value]
    return {"other": kind.__name__}
