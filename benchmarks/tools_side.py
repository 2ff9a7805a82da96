"""One side of tools.py, in a process of its own: reads a JSON command a line, times its own calls, answers a line.

Run by either interpreter, with Palestra (`tools_side.py ours`) or with GEM (`tools_side.py gem`) installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from sides import answer_all

CODE = "print(1+1)"


class Ours:
    """The Python tool on the sandbox, isolated; asynchronous, as rollouts call it."""

    def __init__(self) -> None:
        from palestra.tools.python import PythonTool
        from palestra.tools.sandbox import shared_sandbox

        began = perf_counter()
        self.box = shared_sandbox()
        self.tool = PythonTool()
        self.one()
        self.first_s = perf_counter() - began

    def one(self) -> None:
        result = self.tool.run({"code": CODE})
        assert result.text == "2", result

    def many(self, concurrent: int, calls: int) -> None:
        async def main() -> None:
            todo = iter(range(calls))

            async def worker() -> None:
                for _ in todo:
                    result = await self.tool.arun({"code": CODE})
                    assert result.text == "2", result

            await asyncio.gather(*(worker() for _ in range(concurrent)))

        asyncio.run(main())

    def cell(self, calls: int) -> float:
        """Milliseconds of a session's next cell."""
        with self.box.session(echo=True) as session:
            session.run("x = 1")
            times = []
            for _ in range(calls):
                began = perf_counter()
                assert session.run("x + 1").stdout == "2\n"
                times.append(perf_counter() - began)
        return 1e3 * median(times)

    def state(self) -> dict[str, float]:
        """What is held: processes below this one, open files, megabytes of this process and of its largest template."""
        below, todo = [], [os.getpid()]
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    children.setdefault(int(fields[1]), []).append(int(entry.name))
        while todo:
            todo += (more := children.get(todo.pop(), []))
            below += more
        sizes = []
        for pid in below:
            with contextlib.suppress(OSError):
                sizes.append(
                    int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
                )
        own = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        files = len(list(Path("/proc/self/fd").iterdir()))
        return {"processes": len(below), "files": files, "own_mb": own, "template_mb": max(sizes, default=0.0)}


class Gem:
    """Its Python tool as it comes: no isolation, an interpreter a call."""

    def __init__(self) -> None:
        from gem.tools.python_code_tool import PythonCodeTool

        os.chdir(tempfile.mkdtemp())  # it makes a folder a call in the current one
        began = perf_counter()
        self.tool = PythonCodeTool()
        self.one()
        self.first_s = perf_counter() - began

    def one(self) -> None:
        said = self.tool.execute_action(f"<python>{CODE}</python>")
        assert said[2].split() == ["Code", "execution", "result:", "2"], said

    def many(self, concurrent: int, calls: int) -> None:
        with ThreadPoolExecutor(concurrent) as pool:
            list(pool.map(lambda _: self.one(), range(calls)))


class Side:
    def __init__(self, name: str) -> None:
        self.tool: Any = Ours() if name == "ours" else Gem()

    def first(self) -> float:
        return float(self.tool.first_s)

    def latency(self, calls: int) -> float:
        """Milliseconds of a call, one caller."""
        times = []
        for _ in range(calls):
            began = perf_counter()
            self.tool.one()
            times.append(perf_counter() - began)
        return 1e3 * median(times)

    def throughput(self, concurrent: int, calls: int) -> float:
        """Calls a second."""
        began = perf_counter()
        self.tool.many(concurrent, calls)
        return calls / (perf_counter() - began)

    def cell(self, calls: int) -> float:
        return float(self.tool.cell(calls))

    def growth(self, calls: int) -> dict[str, Any]:
        """What is held after many calls, against what was held before them."""
        self.tool.many(16, 500)
        before = self.tool.state()
        began = perf_counter()
        self.tool.many(16, calls)
        took = perf_counter() - began
        return {"before": before, "after": self.tool.state(), "seconds": took, "calls": calls}

    def cpu(self) -> float:
        """Seconds of processor time of this process and of children that have ended."""
        own, below = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime


if __name__ == "__main__":
    answer_all(lambda: Side(sys.argv[1]))
