"""Child process that runs one side of tools.py. It reads JSON commands, one per line, and returns measurements.

The interpreter must have either Palestra (`tools_side.py ours`) or GEM (`tools_side.py gem`) installed.
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

from sides import serve_commands

CODE = "print(1+1)"


class Palestra:
    """The Python tool in the sandbox, called asynchronously, as in rollouts."""

    def __init__(self) -> None:
        from palestra.tools.python import PythonTool
        from palestra.tools.sandbox import shared_sandbox

        start = perf_counter()
        self.sandbox = shared_sandbox()
        self.tool = PythonTool()
        self.one()
        self.first_s = perf_counter() - start

    def one(self) -> None:
        result = self.tool.run({"code": CODE})
        assert result.text == "2", result

    def many(self, concurrent: int, calls: int) -> None:
        async def main() -> None:
            remaining = iter(range(calls))

            async def worker() -> None:
                for _ in remaining:
                    result = await self.tool.arun({"code": CODE})
                    assert result.text == "2", result

            await asyncio.gather(*(worker() for _ in range(concurrent)))

        asyncio.run(main())

    def cell(self, calls: int) -> float:
        """Return the median time per executed cell, in milliseconds."""
        with self.sandbox.session(echo=True) as session:
            session.run("x = 1")
            times = []
            for _ in range(calls):
                start = perf_counter()
                assert session.run("x + 1").stdout == "2\n"
                times.append(perf_counter() - start)
        return 1e3 * median(times)

    def state(self) -> dict[str, float]:
        """Return the numbers of child processes and open files, and the MB used by this process and its template."""
        descendants, pending = [], [os.getpid()]
        children: dict[int, list[int]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    children.setdefault(int(fields[1]), []).append(int(entry.name))
        while pending:
            pending += (more := children.get(pending.pop(), []))
            descendants += more
        sizes = []
        for pid in descendants:
            with contextlib.suppress(OSError):
                sizes.append(
                    int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
                )
        own = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
        files = len(list(Path("/proc/self/fd").iterdir()))
        return {"processes": len(descendants), "files": files, "own_mb": own, "template_mb": max(sizes, default=0.0)}


class Gem:
    """GEM's Python tool: no isolation, one interpreter per call."""

    def __init__(self) -> None:
        from gem.tools.python_code_tool import PythonCodeTool

        os.chdir(tempfile.mkdtemp())  # GEM creates a folder per call in the working directory
        start = perf_counter()
        self.tool = PythonCodeTool()
        self.one()
        self.first_s = perf_counter() - start

    def one(self) -> None:
        reply = self.tool.execute_action(f"<python>{CODE}</python>")
        assert reply[2].split() == ["Code", "execution", "result:", "2"], reply

    def many(self, concurrent: int, calls: int) -> None:
        with ThreadPoolExecutor(concurrent) as pool:
            list(pool.map(lambda _: self.one(), range(calls)))


class Side:
    def __init__(self, name: str) -> None:
        self.tool: Any = Palestra() if name == "ours" else Gem()

    def first(self) -> float:
        return float(self.tool.first_s)

    def latency(self, calls: int) -> float:
        """Return the median milliseconds per call with one caller."""
        times = []
        for _ in range(calls):
            start = perf_counter()
            self.tool.one()
            times.append(perf_counter() - start)
        return 1e3 * median(times)

    def throughput(self, concurrent: int, calls: int) -> float:
        """Return calls per second."""
        start = perf_counter()
        self.tool.many(concurrent, calls)
        return calls / (perf_counter() - start)

    def cell(self, calls: int) -> float:
        return float(self.tool.cell(calls))

    def growth(self, calls: int) -> dict[str, Any]:
        """Return the resources held before and after many calls."""
        self.tool.many(16, 500)
        before = self.tool.state()
        start = perf_counter()
        self.tool.many(16, calls)
        seconds = perf_counter() - start
        return {"before": before, "after": self.tool.state(), "seconds": seconds, "calls": calls}

    def cpu(self) -> float:
        """Return the CPU seconds used by this process and its terminated children."""
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    serve_commands(lambda: Side(sys.argv[1]))
