"""Program that runs inside the sandbox and executes a submission against many tests, each in a forked process.

Standard input contains the job as JSON, with the inputs or function calls of each test but never the expected results.
One line of JSON is written per test. Each fork starts from the same interpreter in an empty folder with its own limits;
its files and child processes are removed before the next test. The submission's output is written to a file. If a test
calls functions, the output is discarded and the return values are written as JSON, with tags for types that JSON lacks.
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

RESULT = 200  # descriptor for results; programs do not use numbers this high
IN, OUT, ERR = 201, 202, 203  # files for a test's standard streams, truncated before each test
MAX_STDERR = 2_000  # number of bytes returned from the end of standard error
_STREAMS = (("r", "surrogateescape"), ("w", "surrogateescape"), ("w", "backslashreplace"))


def main(source: str, names: dict[str, list[str]]) -> None:
    """Read the job from standard input and run all its tests."""
    job = json.loads(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))
    os.dup2(1, RESULT, inheritable=False)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    code: CodeType | None = None
    error = ""
    try:
        code = compile(source, "main.py", "exec", dont_inherit=True)
    except BaseException as err:  # noqa: BLE001  # the compiler may raise many kinds of exceptions
        error = f"{type(err).__name__}: {err}"
    for handle in (IN, OUT, ERR):
        file = os.open("-", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        os.unlink("-")  # noqa: PTH108
        os.dup2(file, handle, inheritable=False)
        os.close(file)
    _initial_files.update(os.listdir())  # noqa: PTH208
    gc.collect()
    gc.freeze()
    for test in job["tests"]:
        if code is None:
            output: dict[str, Any] = {"exit": 1, "limit": "", "out": "", "err": error}
        else:
            output = _run_test(code, source, names, test, job)
        line = (json.dumps(output) + "\n").encode()
        while line:
            line = line[os.write(RESULT, line) :]
        if job["stop"] and (output["exit"] or output["limit"]):
            break
    os._exit(0)


def _run_test(
    code: CodeType, source: str, names: dict[str, list[str]], test: dict[str, Any], job: Any
) -> dict[str, Any]:
    for handle in (IN, OUT, ERR):
        os.ftruncate(handle, 0)
        os.lseek(handle, 0, os.SEEK_SET)
    data = test.get("stdin", "").encode("utf-8", "surrogatepass")
    while data:
        data = data[os.write(IN, data) :]
    os.lseek(IN, 0, os.SEEK_SET)
    start = monotonic()
    pid = os.fork()
    if pid == 0:
        _run_child(code, source, names, test, job)
    limit, status, cpu = _wait(pid, start + job["wall"])
    _clean_up()
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    if not limit and killed and cpu >= job["cpu"] / 2:  # RLIMIT_CPU is imprecise because it counts ticks
        limit = "cpu"
    out, truncated = _read(OUT, job["output"])
    if truncated and not limit:
        limit = "output"
    err = os.pread(ERR, MAX_STDERR, max(0, os.fstat(ERR).st_size - MAX_STDERR)).decode("utf-8", "replace")
    exit_code = os.waitstatus_to_exitcode(status)
    return {"exit": exit_code, "limit": limit, "out": out, "err": err}


def _wait(pid: int, deadline: float) -> tuple[str, int, float]:
    """Wait for the process; return the limit for which it was killed (or ""), its exit status and its CPU time."""
    limit = ""
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            return limit, status, usage.ru_utime + usage.ru_stime
        left = deadline - monotonic()
        if left <= 0:
            limit = "time"
            os.kill(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            return limit, status, usage.ru_utime + usage.ru_stime
        signal.sigtimedwait({signal.SIGCHLD}, left)


_initial_files: set[str] = set()  # files that tests did not create, such as an interpreter installed in this folder


def _clean_up() -> None:
    """Kill the processes that a test started and remove its files."""
    if os.getpid() == 1:  # in its own pid namespace, where all other processes were started by the test
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, 0):
                continue
    left = set(os.listdir()) - _initial_files  # noqa: PTH208
    if left:
        import shutil

        for name in left:
            if os.path.isdir(name) and not os.path.islink(name):  # noqa: PTH112, PTH114
                shutil.rmtree(name, ignore_errors=True)
            else:
                os.unlink(name)  # noqa: PTH108


def _read(handle: int, limit: int) -> tuple[str, bool]:
    data = os.pread(handle, limit + 1, 0)
    return data[:limit].decode("utf-8", "replace"), len(data) > limit


def _run_child(code: CodeType, source: str, names: dict[str, list[str]], test: dict[str, Any], job: Any) -> None:
    """Run the program or call its functions. Called in the forked process; does not return."""
    exit_code = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        seconds = max(1, math.ceil(job["cpu"]))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        os.dup2(IN, 0)
        is_call = "stdin" not in test
        result_handle = os.dup(OUT) if is_call else -1
        os.dup2(os.open(os.devnull, os.O_WRONLY) if is_call else OUT, 1)
        os.dup2(ERR, 2)
        for handle in (RESULT, IN, OUT, ERR):
            os.close(handle)
        _reset_interpreter()
        main_module = ModuleType("__main__")
        space = main_module.__dict__
        space["__builtins__"] = __builtins__
        sys.modules["__main__"] = main_module
        if is_call:
            _provide(space, source, names)
            exec(code, space)  # noqa: S102  # running untrusted code is the purpose of the sandbox
            result = json.dumps([test["key"], _call(space, test)]).encode()
            while result:
                result = result[os.write(result_handle, result) :]
            exit_code = 0
        else:
            exit_code = _run(code, space)
    except BaseException as err:  # noqa: BLE001  # any exception fails the test
        _report(err)
    finally:
        os._exit(exit_code)


def _reset_interpreter() -> None:
    """Reset streams, random generators and arguments to the state of a new interpreter."""
    streams = [
        open(handle, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        for handle, (mode, errors) in enumerate(_STREAMS)
    ]
    for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = ["main.py"]
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed(None)


def _run(code: CodeType, space: dict[str, Any]) -> int:
    """Run the program; return its exit code."""
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
        os.write(2, text.encode("utf-8", "replace")[-MAX_STDERR:])
    except BaseException:  # noqa: BLE001  # for example, the memory or the stack is exhausted
        os.write(2, f"{type(err).__name__}\n".encode())


def _provide(space: dict[str, Any], source: str, names: dict[str, list[str]]) -> None:
    """Import names that solutions often use without importing them, as most online judges do."""
    for module, wanted in names.items():
        if any(name in source for name in wanted):
            loaded = __import__(module)
            space.setdefault(module, loaded)
            for name in wanted:
                if hasattr(loaded, name):
                    space.setdefault(name, getattr(loaded, name))


def _call(space: dict[str, Any], test: dict[str, Any]) -> Any:
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
    """Convert a value to JSON data, with tags for types that JSON lacks."""
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
