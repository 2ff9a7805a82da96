"""The symbolic workers: right from anywhere, whatever others ask; nothing is left behind."""

from __future__ import annotations

import asyncio
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

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest

from palestra.errors import EnvFailed, InfrastructureError, MissingExtra
from palestra.grading import grade_math
from palestra.grading import workers as module
from palestra.grading.workers import Workers

SLOW = r"\ln 10^{10^{10}}"  # hours, or more memory than there is
RIGHT = (r"3\ln 2", r"\ln 8")
WRONG = (r"2\ln 2", r"\ln 8")


@pytest.fixture(scope="module")
def pool() -> Iterator[Workers]:
    pool = Workers(workers=2)
    yield pool
    pool.close()


def graded(pair: tuple[str, str], pool: Workers | None = None, seconds: float = 5.0) -> bool:
    return grade_math(*pair, workers=pool, seconds=seconds).correct


def children(pid: int | None = None) -> list[psutil.Process]:
    return list(psutil.Process(pid).children(recursive=True))


def grading() -> list[psutil.Process]:
    """Templates and workers of this process's pools; other tests have processes of their own running."""
    return [p for p in children() if p.status() != psutil.STATUS_ZOMBIE and "forge" in " ".join(p.cmdline())]


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=20)
    return not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def test_right_from_many_threads(pool: Workers) -> None:
    with ThreadPoolExecutor(16) as threads:
        work = [RIGHT, WRONG] * 60
        assert list(threads.map(lambda pair: graded(pair, pool), work)) == [True, False] * 60


def test_right_from_tasks_of_an_event_loop(pool: Workers) -> None:
    async def main() -> list[bool]:
        return await asyncio.gather(*(asyncio.to_thread(graded, RIGHT, pool) for _ in range(20)))

    assert asyncio.run(main()) == [True] * 20


def test_after_an_endless_number_the_next_answers_are_graded_right(pool: Workers) -> None:
    for hostile in ("9" * 100_000, r"\ln " + "9" * 3_000 + "^{" + "9" * 900 + "}", SLOW):
        assert not grade_math(hostile, r"\ln 8", workers=pool, seconds=0.3).correct
        for _ in range(3):
            assert graded(RIGHT, pool)
            assert grade_math("8", "8.0", workers=pool).correct


def test_a_question_over_its_time_is_a_verdict_that_says_so(pool: Workers) -> None:
    grade = grade_math(SLOW, r"\ln 8", workers=pool, seconds=0.2)
    assert not grade.correct
    assert "longer than 0.2 s" in grade.why or "memory" in grade.why


def test_time_on_the_wall_is_limited_as_well(pool: Workers) -> None:
    """A worker that uses no processor time at all is given up, too."""
    graded(RIGHT, pool)
    for process in grading():
        if process.ppid() != os.getpid():
            process.suspend()
    assert pool.ask(r"\ln 8", r"3\ln 2", cpu=5.0, wall=0.3) == "time"
    assert graded(RIGHT, pool)


def test_slow_questions_do_not_delay_others(pool: Workers) -> None:
    """Every regular place is taken by a question without end; another one is still answered before they are."""
    done: list[str] = []

    def slow() -> None:
        pool.ask(SLOW, r"\ln 8", cpu=60.0, wall=3.0)
        done.append("slow")

    threads = [threading.Thread(target=slow) for _ in range(pool.workers)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    assert graded(RIGHT, pool)
    done.append("quick")
    for thread in threads:
        thread.join()
    assert done[0] == "quick" or pool.ask(SLOW, r"\ln 8", cpu=60.0, wall=1.0) == "memory"


def test_memory_is_limited() -> None:
    pool = Workers(workers=1, memory=4 << 20)
    try:
        assert pool.ask(r"\ln 8", r"\ln (10^{10^{8}})", cpu=50.0, wall=100.0) == "memory"
        assert graded(RIGHT, pool)
    finally:
        pool.close()


@pytest.mark.parametrize("whom", ["workers", "template"])
def test_killed_processes_are_replaced(pool: Workers, whom: str) -> None:
    assert graded(RIGHT, pool)
    own = grading()
    templates = [p for p in own if p.ppid() == os.getpid()]
    victims = templates if whom == "template" else [p for p in own if p.ppid() != os.getpid()]
    assert victims
    for victim in victims:
        victim.kill()
    assert graded(RIGHT, pool)
    assert not graded(WRONG, pool)
    if whom == "template":
        assert gone(own)  # its workers went with it


def test_closing_and_collecting_leave_no_process() -> None:
    before = {p.pid for p in children()}
    pool = Workers(workers=1)
    assert graded(RIGHT, pool)
    mine = [p for p in children() if p.pid not in before]
    assert len(mine) >= 2
    pool.close()
    pool.close()
    assert gone(mine)
    assert graded(RIGHT, pool)  # a closed pool starts again when asked
    mine = [p for p in children() if p.pid not in before]
    del pool
    gc.collect()
    assert gone(mine)


PROGRAM = r"""
import os, sys
from palestra.grading import grade_math

def right():
    return grade_math(r"3\ln 2", r"\ln 8").correct and not grade_math(r"2\ln 2", r"\ln 8").correct

assert right()
print("ready", flush=True)
"""


def started(then: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + then], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process, children(process.pid)


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_nothing_outlives_the_interpreter(how: str) -> None:
    process, below = started("sys.stdin.read()")
    assert len(below) >= 2
    if how == "kill":
        process.kill()
        process.communicate()
    else:
        process.communicate("")
        assert process.returncode == 0
    assert gone(below)


def test_a_fork_has_workers_of_its_own() -> None:
    """Parent and child grade on; the parent's death ends its workers though the child lives."""
    then = """
sys.stdin.readline()
child = os.fork()
print("child" if child == 0 else "parent", right(), flush=True)
sys.stdin.read()
"""
    process, below = started(then)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    said = {process.stdout.readline(), process.stdout.readline()}
    assert said == {"child True\n", "parent True\n"}
    every = children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    assert gone(below)
    process.communicate()  # the child's end of the pipe closes now
    assert gone(every)


def test_workers_that_cannot_start_are_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    pool = Workers()
    with pytest.raises(EnvFailed, match="do not start"):
        grade_math(*RIGHT, workers=pool)
    assert issubclass(EnvFailed, InfrastructureError)
    assert grade_math("0.5", "1/2", workers=pool).correct  # what needs no worker goes on


def test_a_template_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BOOT", "raise SystemExit('out of order')")
    with pytest.raises(EnvFailed, match="out of order"):
        grade_math(*RIGHT, workers=Workers())


def test_without_the_library_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtra, match=r"palestra\[math\]"):
        grade_math(*RIGHT, workers=Workers())


def test_plain_answers_need_no_library_and_no_process() -> None:
    code = (
        "import sys, palestra.grading as g; assert 'palestra.grading.math' not in sys.modules; "
        "assert g.grade_math('1/2', '0.5').correct; assert not g.grade_math('x+1', 'x').correct; "
        "assert not {'sympy', 'math_verify', 'subprocess'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
