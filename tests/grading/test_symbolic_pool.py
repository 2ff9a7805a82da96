"""Test that the symbolic pool works from any thread, enforces its limits and leaves no processes behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil  # type: ignore[import-untyped]  # psutil has no type hints
import pytest

from palestra.errors import EnvFailed, InfrastructureError, MissingExtra
from palestra.grading import grade_math
from palestra.grading import symbolic_pool as module
from palestra.grading.symbolic_pool import SymbolicPool
from tests.suspending import suspend

SLOW = r"\ln 10^{10^{10}}"  # needs hours, or more memory than available
EQUAL = (r"3\ln 2", r"\ln 8")
UNEQUAL = (r"2\ln 2", r"\ln 8")


@pytest.fixture(scope="module")
def pool() -> Iterator[SymbolicPool]:
    pool = SymbolicPool(workers=2)
    yield pool
    pool.close()


def graded(pair: tuple[str, str], pool: SymbolicPool | None = None, seconds: float = 60.0) -> bool:
    return grade_math(*pair, pool=pool, seconds=seconds).correct


def children(pid: int | None = None) -> list[psutil.Process]:
    return list(psutil.Process(pid).children(recursive=True))


def grading() -> list[psutil.Process]:
    """Return the template and worker processes of all pools in this process."""
    processes = []
    for process in children():
        with contextlib.suppress(psutil.NoSuchProcess):
            name = "palestra.grading.template_process"
            if process.status() != psutil.STATUS_ZOMBIE and name in " ".join(process.cmdline()):
                processes.append(process)
    return processes


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=300)
    return not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_many_threads(pool: SymbolicPool) -> None:
    with ThreadPoolExecutor(16) as threads:
        work = [EQUAL, UNEQUAL] * 20
        assert list(threads.map(lambda pair: graded(pair, pool), work)) == [True, False] * 20


def test_tasks_of_an_event_loop(pool: SymbolicPool) -> None:
    async def main() -> list[bool]:
        return await asyncio.gather(*(asyncio.to_thread(graded, EQUAL, pool) for _ in range(20)))

    assert asyncio.run(main()) == [True] * 20


def test_later_answers_are_correct_after_hostile_ones(pool: SymbolicPool) -> None:
    for hostile in ("9" * 100_000, r"\ln " + "9" * 3_000 + "^{" + "9" * 900 + "}", SLOW):
        assert not grade_math(hostile, r"\ln 8", pool=pool, seconds=0.3).correct
        for _ in range(3):
            assert graded(EQUAL, pool)
            assert grade_math("8", "8.0", pool=pool).correct


def test_a_timeout_is_reported_in_the_grade(pool: SymbolicPool) -> None:
    grade = grade_math(SLOW, r"\ln 8", pool=pool, seconds=0.2)
    assert not grade.correct
    assert "longer than 0.2 s" in grade.why or "memory" in grade.why


def test_a_worker_that_stalls_is_replaced(pool: SymbolicPool) -> None:
    graded(EQUAL, pool)
    for process in grading():
        if process.ppid() != os.getpid():
            process.suspend()
    assert pool.compare(r"\ln 8", r"3\ln 2", cpu=5.0, wall=1.0) is True
    assert graded(EQUAL, pool)


def test_an_overloaded_machine_raises(pool: SymbolicPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that a comparison raises an error, instead of grading the answer, if its workers get no CPU time."""
    acquire = pool._acquire

    def acquire_suspended(*, fresh: bool) -> Any:
        worker = acquire(fresh=fresh)
        suspend(worker.pid)
        return worker

    monkeypatch.setattr(pool, "_acquire", acquire_suspended)
    with pytest.raises(EnvFailed, match=r"do not reply within 0\.15 s"):
        graded(EQUAL, pool, seconds=0.005)


def test_slow_comparisons_do_not_delay_others(pool: SymbolicPool) -> None:
    """Check that a quick comparison finishes first even if slow comparisons occupy all of the pool's workers."""
    done: list[str] = []

    def slow() -> None:
        # The limit is on CPU time, which does not depend on the machine's load.
        pool.compare(SLOW, r"\ln 8", cpu=0.7, wall=600.0)
        done.append("slow")

    threads = [threading.Thread(target=slow) for _ in range(pool.workers)]
    for thread in threads:
        thread.start()
    while len(pool._running) < pool.workers and not done:  # wait until all slow comparisons have started
        time.sleep(0.01)
    assert graded(EQUAL, pool)
    done.append("quick")
    for thread in threads:
        thread.join()
    assert done[0] == "quick" or pool.compare(SLOW, r"\ln 8", cpu=0.7, wall=600.0) == "memory"


@pytest.mark.parametrize("whom", ["workers", "template"])
def test_killed_processes_are_replaced(pool: SymbolicPool, whom: str) -> None:
    assert graded(EQUAL, pool)
    own = grading()
    templates = [p for p in own if p.ppid() == os.getpid()]
    victims = templates if whom == "template" else [p for p in own if p.ppid() != os.getpid()]
    assert victims
    for victim in victims:
        victim.kill()
    assert graded(EQUAL, pool)
    assert not graded(UNEQUAL, pool)
    if whom == "template":
        assert gone(own)  # the workers exited together with the template


def test_memory_is_limited_and_closing_and_collecting_leave_no_process() -> None:
    before = {p.pid for p in grading()}
    pool = SymbolicPool(workers=1, memory=4 << 20)
    assert pool.compare(r"\ln 8", r"\ln (10^{10^{8}})", cpu=50.0, wall=600.0) == "memory"
    assert graded(EQUAL, pool)
    own = [p for p in grading() if p.pid not in before]
    assert len(own) >= 2
    pool.close()
    pool.close()
    assert gone(own)
    assert graded(EQUAL, pool)  # a closed pool starts new processes when it is used
    own = [p for p in grading() if p.pid not in before]
    del pool
    gc.collect()
    assert gone(own)


PROGRAM = r"""
import os, sys
from palestra.grading import grade_math

def correct():
    return grade_math(r"3\ln 2", r"\ln 8").correct and not grade_math(r"2\ln 2", r"\ln 8").correct

assert correct()
print("ready", flush=True)
"""


def start(then: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + then], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process, children(process.pid)


def test_a_fork_has_its_own_workers() -> None:
    """Grade answers in a parent and its fork.

    When the parent is killed, its workers exit, and the child's do not; they exit with the child.
    """
    then = """
sys.stdin.readline()
child = os.fork()
print("child" if child == 0 else "parent", correct(), flush=True)
sys.stdin.read()
"""
    process, below = start(then)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    lines = {process.stdout.readline(), process.stdout.readline()}
    assert lines == {"child True\n", "parent True\n"}
    every = children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    assert gone(below)
    process.communicate()  # closes the child's standard input, so that it exits
    assert gone(every)


def test_workers_that_cannot_start_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    pool = SymbolicPool()
    with pytest.raises(EnvFailed, match="do not start"):
        grade_math(*EQUAL, pool=pool)
    assert issubclass(EnvFailed, InfrastructureError)
    assert grade_math("0.5", "1/2", pool=pool).correct  # this comparison needs no worker


def test_the_error_of_a_failed_template_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BOOT", "raise SystemExit('out of order')")
    with pytest.raises(EnvFailed, match="out of order"):
        grade_math(*EQUAL, pool=SymbolicPool())


def test_a_missing_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"\[math\]"):
        grade_math(*EQUAL, pool=SymbolicPool())


def test_plain_answers_need_neither_library_nor_process() -> None:
    code = (
        "import sys, palestra.grading as g; assert 'palestra.grading.math' not in sys.modules; "
        "assert g.grade_math('1/2', '0.5').correct; assert not g.grade_math('x+1', 'x').correct; "
        "assert not {'sympy', 'math_verify', 'subprocess'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
