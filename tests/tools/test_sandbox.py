"""The sandbox as a tool for everyone: results, files, input, limits, sessions, concurrency, failures told apart."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import palestra
from palestra.errors import BadValue, InfrastructureError, NoSandbox, ToolFailed, UsageError
from palestra.tools.sandbox import Level, Limits, Sandbox, SandboxDied, level, shared_sandbox
from palestra.tools.sandbox.inside.zygote import MANY
from tests.tools.processes import below, open_files, settled


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox() as box:
        yield box


def test_the_first_lines_of_the_manual(box: Sandbox) -> None:
    result = box.run("print(6*7)")
    assert (result.stdout, result.stderr, result.status, result.exit_code) == ("42\n", "", "ok", 0)
    assert result.ok
    assert result.duration > 0


def test_a_wrong_program_is_a_result(box: Sandbox) -> None:
    result = box.run("import sys\nprint('before')\nsys.stderr.write('e')\nraise ValueError('no')")
    assert (result.status, result.exit_code, result.stdout) == ("error", 1, "before\n")
    assert result.stderr.endswith("ValueError: no\n")
    assert "zygote" not in result.stderr
    assert "runner" not in result.stderr
    assert box.run("def f(:").stderr.splitlines()[-1].startswith("SyntaxError")


def test_it_is_a_real_program(box: Sandbox) -> None:
    code = """
import atexit, sys, threading, time
def later():
    time.sleep(0.05)
    print("thread")
atexit.register(print, "goodbye")
threading.Thread(target=later).start()
if __name__ == "__main__": print("main", sys.argv)
class A: pass
import pickle
print(type(pickle.loads(pickle.dumps(A()))).__name__)
"""
    assert box.run(code).stdout == "main ['main.py']\nA\nthread\ngoodbye\n"


def test_input_and_files(box: Sandbox) -> None:
    code = "import data.module\nprint(data.module.x, open('data/raw.bin', 'rb').read(), input(), input())"
    files: dict[str, str | bytes] = {"data/module.py": "x = 5", "data/raw.bin": b"\x00\xff"}
    assert box.run(code, "one\ntwo\n", files).stdout == "5 b'\\x00\\xff' one two\n"
    for name in ("/etc/x", "../x", "a/../../x", "", "."):
        with pytest.raises(BadValue, match="below the program's directory"):
            box.run("", files={name: "x"})
    big = b"x" * 3_000_000
    assert box.run("import sys; print(len(sys.stdin.buffer.read()))", stdin=big).stdout == "3000000\n"


def test_a_trailing_expression_is_shown_on_request(box: Sandbox) -> None:
    assert box.run("x = 20\nx + 1").stdout == ""
    assert box.run("x = 20\nx + 1", echo=True).stdout == "21\n"
    assert box.run("print(1)\nNone", echo=True).stdout == "1\n"
    assert box.run("'a'\nx = 1", echo=True).stdout == ""
    assert box.run("", echo=True).ok


def test_chance(box: Sandbox) -> None:
    code = "import random, numpy\nprint(random.random(), numpy.random.rand())"
    assert box.run(code, seed=5).stdout == box.run(code, seed=5).stdout != box.run(code, seed=6).stdout
    assert box.run(code).stdout != box.run(code).stdout
    assert box.run("print(hash('a'))").stdout == box.run("print(hash('a'))").stdout


def test_libraries(box: Sandbox) -> None:
    code = "import numpy as np, sympy\nprint(np.linalg.det(np.eye(3)), sympy.factor('x**2 - 1'))"
    assert box.run(code).stdout == "1.0 (x - 1)*(x + 1)\n"


def test_limits_are_checked() -> None:
    with pytest.raises(BadValue, match="a limit is a number above 0, got wall=0"):
        Limits(wall=0)
    with pytest.raises(BadValue, match="16 MiB"):
        Limits(memory=1000)
    with pytest.raises(BadValue, match="at least 1"):
        Sandbox(workers=0)


def test_sessions_keep_their_variables(box: Sandbox) -> None:
    with box.session(echo=True) as session:
        assert session.run("x = 1").ok
        assert session.run("x + 1").stdout == "2\n"
        failed = session.run("def f():\n    return x / 0\nf()")
        assert (failed.status, failed.ended) == ("error", False)
        assert "ZeroDivisionError" in failed.stderr
        assert session.run("x").stdout == "1\n"
        assert session.run("_").stdout == "1\n"
        assert session.run("open('f', 'w').write('z'); open('f').read()").stdout == "'z'\n"
        assert session.run("import sys; sys.exit(3)").exit_code == 3
    with pytest.raises(BadValue, match="has ended"):
        session.run("x")


def test_a_session_survives_an_endless_cell(box: Sandbox) -> None:
    with box.session(limits=Limits(wall=2.0), echo=True) as session:
        session.run("x = 5")
        stopped = session.run("while True: pass")
        assert (stopped.status, stopped.limit, stopped.ended) == ("limit", "time", False)
        assert session.run("x").stdout == "5\n"
        stopped = session.run("import time\nwhile True:\n    try: time.sleep(9)\n    except BaseException: pass")
        assert (stopped.limit, stopped.ended) == ("time", True)


def test_a_session_that_ends_itself_or_lies(box: Sandbox) -> None:
    with box.session() as session:
        gone = session.run("import os; print('x', flush=True); os._exit(4)")
        assert (gone.status, gone.exit_code, gone.ended, gone.stdout) == ("error", 4, True, "x\n")
    with box.session() as session:
        result = session.run("import os; os.write(3, b'{\"broken\": 1}' * 100)")
        assert (result.status, result.ended) == ("error", True)
    with box.session(limits=Limits(memory=128 << 20)) as session:
        assert session.run("x = bytearray(10**9)").limit == "memory"
        assert session.run("print('alive')").stdout == "alive\n"
    with box.session(limits=Limits(output=100)) as session:
        assert session.run("print('x' * 1000)").limit == "output"
        assert session.run("print('y')").stdout == "y\n"


def test_async(box: Sandbox) -> None:
    async def main() -> None:
        results = await asyncio.gather(*(box.arun(f"print({n})") for n in range(40)))
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(40)]
        session = await box.asession(echo=True)
        await session.arun("x = 3")
        assert (await session.arun("x")).stdout == "3\n"
        await session.aclose()
        began = time.monotonic()
        task = asyncio.create_task(box.arun("import time; time.sleep(60)"))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - began < 10

    asyncio.run(main())
    assert box.run("print(1)").ok


def test_many_threads(box: Sandbox) -> None:
    with ThreadPoolExecutor(32) as pool:
        said = list(pool.map(lambda n: box.run(f"print({n})").stdout, range(96)))
    assert said == [f"{n}\n" for n in range(96)]


def test_a_dead_template_is_replaced() -> None:
    with Sandbox(workers=1) as box:
        box.run("1")
        for _ in range(2):
            for worker in box._pools[False]:
                assert worker._inner is not None
                signal.pidfd_send_signal(worker._inner, signal.SIGKILL)
            assert box.run("print('again')").stdout == "again\n"
        session = box.session()
        for worker in box._pools[True]:
            assert worker._inner is not None
            signal.pidfd_send_signal(worker._inner, signal.SIGKILL)
        with pytest.raises(SandboxDied):
            session.run("1")


def test_a_sandbox_that_cannot_start_is_an_infrastructure_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palestra.tools.sandbox.worker._MAIN", "raise SystemExit('it is broken')  # {code}")
    with Sandbox() as box, pytest.raises(ToolFailed, match="did not start.*it is broken"):
        box.run("1")
    assert issubclass(SandboxDied, InfrastructureError)


def test_everything_ends_with_the_sandbox() -> None:
    gc.collect()
    others = len(below(os.getpid()))
    handles = open_files()
    box = Sandbox()
    session = box.session()
    box.run("1")
    session.run("import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True)")
    assert len(below(os.getpid())) > others
    box.close()
    box.close()
    assert settled(others) <= others
    session.close()
    with pytest.raises(BadValue, match="closed"):
        box.run("1")
    assert open_files() == handles


def test_a_fork_of_the_host_has_templates_of_its_own(box: Sandbox) -> None:
    box.run("1")
    reading, writing = multiprocessing.get_context("fork").Pipe(duplex=False)

    def child() -> None:
        writing.send(box.run("print('forked')").stdout)
        box.close()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert reading.recv() == "forked\n"
    process.join()
    assert box.run("print('here')").stdout == "here\n"


def test_a_host_that_is_killed_leaves_nothing() -> None:
    code = """
import os, sys, time
from palestra.tools.sandbox import Limits, Sandbox
box = Sandbox(workers=1, limits=Limits(wall=300))
box.run("1")
print("up", flush=True)
box.run("import time; time.sleep(300)")
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "up\n"
        time.sleep(0.3)
        pids = below(host.pid)
        assert pids
        host.kill()
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)
    assert [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists()] == []


def test_a_sandbox_can_be_pickled(box: Sandbox) -> None:
    twin = pickle.loads(pickle.dumps(box))
    assert twin.limits == box.limits
    assert twin.run("print(1)").stdout == "1\n"
    twin.close()


# Where nothing can isolate


def test_without_bubblewrap_it_refuses_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    level.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    try:
        found = level()
        assert (found.name, found.why) == ("none", "bubblewrap is not installed")
        assert level() is found  # found out once
        with pytest.raises(NoSandbox, match="apt-get install bubblewrap.*run_unprotected_on_this_host=True") as caught:
            Sandbox()
        assert isinstance(caught.value, UsageError)
    finally:
        level.cache_clear()


def test_a_bubblewrap_that_may_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    level.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    try:
        found = level()
        assert found.name == "none"
        assert "No permissions to create new namespace" in found.why
        assert found.fix
    finally:
        level.cache_clear()


def test_unprotected_on_request_still_limits_and_cleans_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PALESTRA_TEST_SECRET", "open")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    others = len(below(os.getpid()))
    with Sandbox(run_unprotected_on_this_host=True, workers=1, limits=Limits(wall=3.0)) as box:
        assert box.level.name == "none"
        result = box.run("import os\nprint(os.getcwd(), os.environ.get('PALESTRA_TEST_SECRET'), os.listdir())")
        folder, secret, files = result.stdout.split()
        assert (secret, files) == ("None", "[]")
        assert not Path(folder).exists()
        assert box.run("while True: pass").limit == "time"
        assert box.run("x = bytearray(10**10)").limit == "memory"
        daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(99)"
        assert box.run(daemon).ok
        box.run("1")
        with box.session(echo=True) as session:
            session.run("x = 2")
            assert session.run("x").stdout == "2\n"
    assert settled(others) <= others
    assert list(tmp_path.iterdir()) == []


NOBODY = """
import os
from palestra.tools.sandbox import Limits, Sandbox, level
assert (os.getuid(), level().name, level().inside) == (65534, "bubblewrap", "user"), level()
forks = '''
import os, time
count = 1
try:
    while True:
        if os.fork() == 0: time.sleep(60)
        count += 1
except BlockingIOError: print(count)
'''
status = "print([l.split()[1] for l in open('/proc/self/status') if l.startswith(('CapEff', 'NoNew', 'Seccomp:'))])"
with Sandbox(workers=1) as box:
    print(box.run(forks, limits=Limits(processes=16)).stdout)
    print(box.run(status).stdout, box.run("open('/x', 'w')").status)
    print(box.run("open('x', 'w').write('y'); print(open('x').read())").stdout)
    print(box.run("import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))").stdout)
    print(box.run("import os; print([p for p in os.listdir('/proc') if p.isdigit()], os.path.exists('/home'))").stdout)
    print(box.run("while True: pass", limits=Limits(wall=0.3)).limit)
    with box.session(echo=True) as session:
        session.run("x = 5")
        print(session.run("x").stdout)
"""


def test_a_host_that_is_not_root() -> None:
    """The other way to confine: a user namespace a program. Run by nobody, with an interpreter anybody may read."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(Path(palestra.__file__).parent, f"{folder}/palestra", ignore=shutil.ignore_patterns("data"))
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        anybody = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
        done = subprocess.run(
            [
                "/usr/bin/python3" if anybody else sys.executable,
                "-c",
                NOBODY.replace("65534", str(65534 if anybody else os.getuid())),
            ],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": folder},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            **anybody,  # type: ignore[call-overload]
        )
    assert done.stderr == ""
    assert done.stdout.split() == [
        "16",
        "['0000000000000000',",
        "'1',",
        "'2']",
        "error",
        "y",
        "-1",
        "['1']",
        "False",
        "time",
        "5",
    ]


@pytest.mark.slow
def test_ten_thousand_calls_leave_nothing_behind() -> None:
    def resident(pid: int) -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])

    def state() -> tuple[int, int, int, int]:
        """Processes (when those that wait have settled), open files, our memory, a template's."""
        gc.collect()
        count = settled(others + 2 * (2 + 2 * MANY))
        template = max(resident(pid) for pid in below(os.getpid()) if Path(f"/proc/{pid}/statm").exists())
        return count, open_files(), resident(os.getpid()), template

    async def many(box: Sandbox, count: int) -> None:
        async def some() -> None:
            for number in range(count // 16):
                assert (await box.arun(f"print({number})")).stdout == f"{number}\n"

        await asyncio.gather(*(some() for _ in range(16)))

    others = len(below(os.getpid()))
    with Sandbox(preload=()) as box:
        asyncio.run(many(box, 800))
        _, files, own, template = state()
        asyncio.run(many(box, 10_000))
        after = state()
    assert after[0] <= others + 2 * (2 + 2 * MANY)
    assert after[1] <= files
    assert after[2] <= own * 1.05
    assert after[3] <= template * 1.05


def test_the_shared_sandbox_is_one() -> None:
    assert isinstance(level(), Level)
    assert shared_sandbox() is shared_sandbox()
    assert shared_sandbox().run("print(1)").stdout == "1\n"
