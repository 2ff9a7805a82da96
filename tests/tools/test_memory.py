"""Test the limits on memory and CPU time for programs that start other processes or hide memory from accounting."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from palestra.tools.sandbox import Limits, Sandbox
from palestra.tools.sandbox.cgroups import MemoryGroup
from tests.tools.users import copy_package, run_script


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(workers=1) as sandbox:
        yield sandbox


def test_memory_that_no_process_counts_is_refused(sandbox: Sandbox) -> None:
    result = sandbox.run("import mmap\nmmap.mmap(-1, 1 << 20)")
    assert "PermissionError" in result.stderr
    result = sandbox.run("import mmap, os\nmmap.mmap(os.open('/dev/zero', os.O_RDWR), 1 << 20)")
    assert "FileNotFoundError" in result.stderr
    code = "import mmap\nf = open('f', 'w+b'); f.truncate(4096)\nm = mmap.mmap(f.fileno(), 4096); m[0] = 5; print(m[0])"
    assert sandbox.run(code).stdout == "5\n"  # files count as disk space


OTHERS = """
import subprocess, sys, time
for _ in range(6):
    subprocess.Popen([sys.executable, "-I", "-S", "-c", "x = bytearray(24 << 20)\\nimport time\\ntime.sleep(60)"])
time.sleep(60)
"""


def test_memory_of_other_programs_counts(sandbox: Sandbox) -> None:
    """Check that processes that do not share the interpreter's memory are counted completely."""
    limits = Limits(wall=60.0, memory=128 << 20)
    assert sandbox.run(OTHERS, limits=limits).limit == "memory"
    assert [result.limit for result in sandbox.run_each(OTHERS, [""], limits=limits)] == ["memory"]


def test_memory_is_limited_for_an_unprivileged_user() -> None:
    script = f"""
from palestra.tools.sandbox import Limits, Sandbox
with Sandbox(workers=1, preload=()) as sandbox:
    print(sandbox.run({OTHERS!r}, limits=Limits(wall=60.0, memory=128 << 20)).limit)
    print("PermissionError" in sandbox.run("import mmap; mmap.mmap(-1, 4096)").stderr)
    print("Read-only" in sandbox.run("open('/proc/self/oom_score_adj', 'w')").stderr)
"""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        output = run_script(script, copy_package(Path(folder)), unprivileged=True)
    assert output.split() == ["memory", "True", "True"]


def test_forks_that_share_memory_are_counted_once(sandbox: Sandbox) -> None:
    code = """
import os, time
x = bytearray(os.urandom(1 << 20)) * 24
reading, writing = os.pipe()
for _ in range(8):
    if os.fork() == 0:
        os.read(reading, 1)
        os._exit(0)
time.sleep(0.2)  # several checks of the memory
os.close(writing)
print("fine")
"""
    assert sandbox.run(code, limits=Limits(wall=60.0, memory=64 << 20)).stdout == "fine\n"


BUFFERS = """
import os, socket, time
for _ in range(31):
    if os.fork() == 0:
        pairs = []
        try:
            while True: pairs.append(socket.socketpair())
        except OSError: pass
        for end in [end for pair in pairs for end in pair]:
            end.setblocking(False)
            try:
                while True: end.send(bytes(60_000))
            except OSError: pass
        time.sleep(60)
time.sleep(60)
"""


def test_a_control_group_limits_memory_of_the_kernel(sandbox: Sandbox) -> None:
    """Check that kernel buffers count if a control group can be created; otherwise, only the time limit applies."""
    group = MemoryGroup()
    available = group.handle is not None
    if available:
        assert group.path is not None
        assert group.path.is_dir()
    group.close()
    assert group.path is None
    limits = Limits(wall=20.0 if available else 0.5, memory=32 << 20, disk=1 << 20, output=1 << 20)
    results = [sandbox.run(BUFFERS, limits=limits), *sandbox.run_each(BUFFERS, ["", ""], limits=limits)]
    assert [result.limit for result in results] == ["memory" if available else "time"] * 3
    assert sandbox.run_each("print(input())", ["1"])[0].stdout == "1\n"


def test_groups_are_removed_with_their_sandbox() -> None:
    with Sandbox(workers=1, preload=()) as sandbox:
        sandbox.run("1")
        groups = [template._group for pool in sandbox._templates.values() for template in pool]
        paths = [group.path for group in groups if group is not None and group.path is not None]
        assert all(path.is_dir() for path in paths)
    assert not any(path.exists() for path in paths)
    killed = subprocess.Popen(["true"])
    killed.wait()
    left = [path.with_name(path.name.replace(f"-{os.getpid()}-", f"-{killed.pid}-")) / "1" for path in paths]
    for path in left:
        path.mkdir(parents=True)  # a group that a killed host left behind
    MemoryGroup().close()
    assert not any(path.parent.exists() for path in left)


def test_children_that_nobody_waits_for_count_as_cpu_time(sandbox: Sandbox) -> None:
    code = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.01
        while time.process_time() < end: pass
        os._exit(0)
    time.sleep(0.01)
"""
    assert sandbox.run(code, limits=Limits(wall=20.0, cpu=0.3)).limit == "cpu"
    assert sandbox.run_each(code, [""], limits=Limits(wall=20.0, cpu=0.3))[0].limit == "cpu"
