"""Execute source code like `python main.py`, or cell by cell, and optionally print the last expression's value."""

from __future__ import annotations

import ast
import builtins
import errno
import linecache
import marshal
import os
import sys
import traceback
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

BRIEF_FRAMES = 6  # number of innermost frames in a brief traceback
_LIMITS = {errno.ENOSPC: "disk", errno.EDQUOT: "disk", errno.EFBIG: "disk"}


class ProgramRunner:
    """Executes one program or several cells in a new `__main__` module."""

    def __init__(self, *, echo: bool, brief: bool) -> None:
        """Create the `__main__` module.

        `echo` prints the value of a trailing expression. `brief` limits tracebacks to the program's own lines.
        """
        self._echo = echo
        self._brief = brief
        self._cells = 0
        self.main = ModuleType("__main__")
        self.main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = self.main

    def run(
        self, source: bytes, *, bytecode: bytes = b"", save: Callable[[bytes], None] | None = None
    ) -> tuple[int, str]:
        """Execute `source`; return the exit code and the name of the limit that was exceeded, or "".

        `bytecode` is the result of compiling `source` earlier; `save` receives it before the program runs.
        """
        self._cells += 1
        name = "main.py" if self._cells == 1 else f"cell {self._cells}"
        running = False
        try:
            text = source.decode("utf-8", "surrogatepass")
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
            code, last = (marshal.loads(bytecode), None) if bytecode else self._compiled(text, name)  # noqa: S302
            if save is not None:
                save(_marshalled(code))
            running = True
            if code is not None:
                exec(code, self.main.__dict__)  # noqa: S102  # running untrusted code is the purpose of the sandbox
            if last is not None:
                value = eval(last, self.main.__dict__)  # noqa: S307
                if value is not None:
                    self.main.__dict__["_"] = value
                    print(repr(value))  # noqa: T201
        except SystemExit as err:
            return _exit_code(err), ""
        except BaseException as err:  # noqa: BLE001  # any exception is a failure of the program
            self._report(err)
            return 1, _limit_of(err) if running else ""  # the compiler raises MemoryError for deeply nested code
        return 0, ""

    def _compiled(self, text: str, name: str) -> tuple[CodeType | None, CodeType | None]:
        """Compile the program; with `echo`, compile a trailing expression separately."""
        if not self._echo:
            return compile(text, name, "exec", dont_inherit=True), None
        tree = ast.parse(text, name)
        if not (tree.body and isinstance(tree.body[-1], ast.Expr)):
            return compile(tree, name, "exec", dont_inherit=True), None
        last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
        return compile(tree, name, "exec", dont_inherit=True), compile(last, name, "eval", dont_inherit=True)

    def _report(self, err: BaseException) -> None:
        """Print the traceback without the frames of this file."""
        try:
            shown = traceback.TracebackException.from_exception(err, compact=True)
            self._trim(shown)
            sys.stdout.flush()
            for line in shown.format():
                sys.stderr.write(line)
            sys.stderr.flush()
        except BaseException:  # noqa: BLE001  # for example, the memory or the stack is exhausted
            _write(f"{type(err).__name__}\n")

    def _trim(self, shown: Any) -> None:
        for _ in range(10):  # follow chained exceptions
            frames = [frame for frame in shown.stack if frame.filename != __file__]
            if self._brief:
                own = [frame for frame in frames if frame.filename == "main.py" or frame.filename.startswith("cell ")]
                frames = own[-BRIEF_FRAMES:] or frames[-1:]
            shown.stack[:] = frames
            shown = shown.__cause__ or shown.__context__
            if shown is None:
                return

    def finish(self, code: int) -> int:
        """Shut down like a normal interpreter: wait for threads, run exit handlers, flush the output streams."""
        try:
            if "threading" in sys.modules:
                sys.modules["threading"]._shutdown()
            if "atexit" in sys.modules:
                sys.modules["atexit"]._run_exitfuncs()
        except BaseException as err:  # noqa: BLE001
            self._report(err)
        return self.flush() or code

    def flush(self) -> int:
        failed = 0
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                failed = 120  # Python's exit code if flushing fails
            except AttributeError:  # the program has replaced the stream
                pass
        return failed


def _marshalled(code: CodeType | None) -> bytes:
    try:
        return marshal.dumps(code)
    except ValueError:  # nested too deeply
        return b""


def _exit_code(err: SystemExit) -> int:
    if err.code is None:
        return 0
    if isinstance(err.code, int):
        return err.code & 0xFF
    _write(f"{err.code}\n")
    return 1


def _limit_of(err: BaseException) -> str:
    if isinstance(err, MemoryError):
        return "memory"
    if isinstance(err, BlockingIOError) or (isinstance(err, RuntimeError) and "start new thread" in str(err)):
        return "processes"  # fork() fails with this error
    return _LIMITS.get(err.errno or 0, "") if isinstance(err, OSError) else ""


def _write(text: str) -> None:
    try:
        os.write(2, text.encode("utf-8", "replace"))
    except OSError:
        return
