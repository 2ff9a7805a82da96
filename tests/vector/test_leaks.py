"""Test that a vector leaves no process, thread, file or socket behind, regardless of how it ends."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # psutil has no type hints
import pytest

from palestra.vector import make_vec
from tests.vector.envs import Trouble
from tests.vector.test_lockstep import each_backend

ROOT = Path(__file__).parents[2]


def used_resources() -> tuple[set[int], set[str], int]:
    """Return this process's child processes, threads and number of open files.

    The warm process is excluded, because it may run programs for other test processes at the same time, and so are the
    threads of rollouts in earlier tests, which end after a few idle seconds.
    """
    me = psutil.Process()
    gc.collect()
    children: set[int] = set()
    for child in me.children():
        try:
            if "tests.warm_process" not in child.cmdline():
                children |= {child.pid, *(grandchild.pid for grandchild in child.children(recursive=True))}
        except psutil.ZombieProcess:
            children.add(child.pid)
        except psutil.NoSuchProcess:
            continue
    return children, {t.name for t in threading.enumerate()} - {"palestra-call"}, me.num_fds()


def wait_for_resources(before: tuple[set[int], set[str], int]) -> tuple[set[int], set[str], int]:
    """Wait until the resources in use equal `before` or a timeout has passed, and return them."""
    end = time.monotonic() + 120
    while used_resources() != before and time.monotonic() < end:
        time.sleep(0.02)
    return used_resources()


@each_backend
def test_close_releases_everything(how: dict[str, Any]) -> None:
    with make_vec(Trouble, **how) as warm_up:
        warm_up.reset()
    before = used_resources()
    for _ in range(2):
        vec = make_vec(Trouble, num_envs=4, **how)
        vec.reset()
        vec.step(["a"] * 4)
        vec.send(["sleep 0.1"] * 4)  # the vector is closed during this step
        vec.close()
        vec.close()
    assert wait_for_resources(before) == before


@each_backend
def test_a_garbage_collected_vector_releases_everything(how: dict[str, Any]) -> None:
    before = used_resources()
    vec = make_vec(Trouble, num_envs=4, **how)
    vec.reset()
    vec.step(["a", "raise", "a", "a"])
    del vec
    assert wait_for_resources(before) == before


def test_replaced_workers_leave_nothing() -> None:
    before = used_resources()
    with make_vec(Trouble, num_envs=4, backend="process", workers=2, step_timeout=2.0) as vec:
        vec.reset()
        held = used_resources()
        vec.step(["exit", "kill", "hang", "a"])
        after = used_resources()
        assert (len(after[0]), after[1], after[2]) == (len(held[0]), held[1], held[2])
    assert wait_for_resources(before) == before


def test_a_vector_that_cannot_be_created_leaves_nothing() -> None:
    before = used_resources()
    with pytest.raises(Exception, match="has no keyword"):
        make_vec([Trouble, Trouble], vec_kwargs=[{}, {"wrong": 1}], backend="process", workers=2)
    assert wait_for_resources(before) == before


def test_a_hung_thread_ends_at_its_next_python_instruction() -> None:
    before = used_resources()
    with make_vec(Trouble, num_envs=2, backend="thread", step_timeout=2.0) as vec:
        vec.reset()
        vec.step(["hang", "a"])
    assert wait_for_resources(before) == before


DRIVER = """
import os, sys, time
from palestra.vector import make_vec
from tests.vector.envs import Trouble

if __name__ == "__main__":
    vec = make_vec(Trouble, num_envs=4, backend="process", workers=2, turns=10**9)
    _, infos = vec.reset()
    vec.step(["child", "a", "a", "a"])
    print(*{info["pid"] for info in infos}, flush=True)
    input()
    {then}
"""


def driven(then: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Run a program that creates a vector. Return its process and all processes that it has started."""
    program = subprocess.Popen(
        [sys.executable, "-c", DRIVER.replace("{then}", then)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert program.stdout is not None
    assert program.stdin is not None
    workers = [psutil.Process(int(pid)) for pid in program.stdout.readline().split()]
    assert len(workers) == 2
    below = [child for worker in workers for child in worker.children(recursive=True)]
    assert [child.name() for child in below] == ["sleep"]
    program.stdin.write("\n")
    program.stdin.close()
    return program, workers + below


def gone(processes: list[psutil.Process]) -> bool:
    end = time.monotonic() + 300
    while time.monotonic() < end:
        if all(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in processes):
            return True
        time.sleep(0.02)
    return False


IDLE = "time.sleep(600)"
STEPPING = "while True: vec.step(['a'] * 4)"
HANGING = "vec.step(['hang'] * 4)"
LOCKED = "vec.step(['spin 600'] * 4)"  # the steps hold the GIL


@pytest.mark.parametrize(
    ("by", "then"),
    [
        *((signal.SIGKILL, then) for then in (IDLE, STEPPING, HANGING, LOCKED)),
        (signal.SIGTERM, LOCKED),
        (signal.SIGINT, STEPPING),
    ],
)
def test_a_killed_parent_leaves_no_process(by: signal.Signals, then: str) -> None:
    program, processes = driven(then)
    time.sleep(0.1)
    os.kill(program.pid, by)
    assert gone(processes)
    assert program.wait(timeout=120) != 0
    assert program.stdout is not None
    program.stdout.close()


def test_the_end_of_a_program_leaves_no_process() -> None:
    program, processes = driven("")
    assert gone(processes)
    assert program.wait(timeout=120) == 0
    assert program.stdout is not None
    program.stdout.close()


def test_ctrl_c_closes_the_vector_and_raises() -> None:
    then = """
    import threading, signal
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        vec.step(["hang"] * 4)
    except KeyboardInterrupt:
        try:
            vec.step(["a"] * 4)
        except Exception as err:
            print("interrupted", type(err).__name__, flush=True)
    time.sleep(600)
    """
    program, processes = driven(then)
    assert program.stdout is not None
    assert program.stdout.readline() == "interrupted EnvFailed\n"
    assert gone(processes)
    assert program.poll() is None  # the program itself is still running
    program.kill()
    program.wait()
    program.stdout.close()


def test_a_fork_of_the_parent_does_not_affect_the_workers() -> None:
    with make_vec(Trouble, num_envs=2, backend="process", workers=1) as vec:
        vec.reset()
        vec.step(["a", "a"])
        child = os.fork()
        if child == 0:
            vec.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert [o[:2] for o in vec.step(["b", "b"]).observations] == ["2 ", "2 "]
        assert vec.failed == 0
