"""Source -> a program that has run, as `python main.py` or cell by cell; shows a trailing expression on request."""

from __future__ import annotations

import ast
import builtins
import errno
import linecache
import os
import sys
import traceback
from types import CodeType, ModuleType
from typing import Any

BRIEF_FRAMES = 6  # of the program's own, from the end of a brief traceback
_LIMITS = {errno.ENOSPC: "disk", errno.EDQUOT: "disk", errno.EFBIG: "disk"}


class Program:
    """One `__main__`, in which one source or many are run."""

    def __init__(self, *, echo: bool, brief: bool) -> None:
        """`echo`: print the value of a trailing expression. `brief`: tracebacks show the program's own lines alone."""
        self._echo = echo
        self._brief = brief
        self._cells = 0
        self.main = ModuleType("__main__")
        self.main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = self.main

    def run(self, source: bytes) -> tuple[int, str]:
        """The exit code, and the limit that ended it, or ""."""
        self._cells += 1
        name = "main.py" if self._cells == 1 else f"cell {self._cells}"
        running = False
        try:
            text = source.decode("utf-8", "surrogatepass")
            linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
            code, last = self._compiled(text, name)
            running = True
            if code is not None:
                exec(code, self.main.__dict__)  # noqa: S102  # this is what it is all for
            if last is not None:
                value = eval(last, self.main.__dict__)  # noqa: S307
                if value is not None:
                    self.main.__dict__["_"] = value
                    print(repr(value))  # noqa: T201
        except SystemExit as err:
            return _exit_code(err), ""
        except BaseException as err:  # noqa: BLE001  # whatever a program raises, it has failed
            self._report(err)
            return 1, _limit_of(err) if running else ""  # the compiler calls brackets too deep a lack of memory
        return 0, ""

    def _compiled(self, text: str, name: str) -> tuple[CodeType | None, CodeType | None]:
        """The program, and its last expression apart where that is to be shown."""
        if not self._echo:
            return compile(text, name, "exec", dont_inherit=True), None
        tree = ast.parse(text, name)
        if not (tree.body and isinstance(tree.body[-1], ast.Expr)):
            return compile(tree, name, "exec", dont_inherit=True), None
        last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
        return compile(tree, name, "exec", dont_inherit=True), compile(last, name, "eval", dont_inherit=True)

    def _report(self, err: BaseException) -> None:
        """The traceback, less what is not the program's."""
        try:
            shown = traceback.TracebackException.from_exception(err, compact=True)
            self._trim(shown)
            sys.stdout.flush()
            for line in shown.format():
                sys.stderr.write(line)
            sys.stderr.flush()
        except BaseException:  # noqa: BLE001  # out of memory or of stack, say: the plain name will do
            _write(f"{type(err).__name__}\n")

    def _trim(self, shown: Any) -> None:
        for _ in range(10):  # links of a chain of causes
            frames = [frame for frame in shown.stack if frame.filename != __file__]
            if self._brief:
                own = [frame for frame in frames if frame.filename == "main.py" or frame.filename.startswith("cell ")]
                frames = own[-BRIEF_FRAMES:] or frames[-1:]
            shown.stack[:] = frames
            shown = shown.__cause__ or shown.__context__
            if shown is None:
                return

    def finish(self, code: int) -> int:
        """What an interpreter does at its end: wait for threads, run exit handlers, write out what is buffered."""
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
                failed = 120  # as Python itself
            except AttributeError:  # the program has put something else there
                pass
        return failed


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
        return "processes"  # fork() says so
    return _LIMITS.get(err.errno or 0, "") if isinstance(err, OSError) else ""


def _write(text: str) -> None:
    try:
        os.write(2, text.encode("utf-8", "replace"))
    except OSError:
        return
