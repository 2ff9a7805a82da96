"""Test the sandbox: results, files, input, limits, sessions, concurrency and failures of the sandbox itself."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from palestra.errors import BadValue, InfrastructureError, NoSandbox, ToolFailed, UsageError
from palestra.tools.sandbox import IsolationLevel, Limits, Sandbox, SandboxDied, isolation_level, shared_sandbox
from palestra.tools.sandbox.guest.template import MAX_WAITING
from palestra.tools.sandbox.template_process import TemplateProcess
from tests.tools.processes import (
    PATIENCE,
    descendants,
    open_files,
    sandbox_processes,
    wait_for_processes,
    wait_until_gone,
)
from tests.tools.users import copy_package, run_script


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


def test_run_a_program(sandbox: Sandbox) -> None:
    result = sandbox.run("print(6*7)")
    assert (result.stdout, result.stderr, result.status, result.exit_code) == ("42\n", "", "ok", 0)
    assert result.ok
    assert result.duration > 0


def test_a_wrong_program_is_a_result(sandbox: Sandbox) -> None:
    result = sandbox.run("import sys\nprint('before')\nsys.stderr.write('e')\nraise ValueError('no')")
    assert (result.status, result.exit_code, result.stdout) == ("error", 1, "before\n")
    assert result.stderr.endswith("ValueError: no\n")
    assert "template" not in result.stderr
    assert "program.py" not in result.stderr
    assert sandbox.run("def f(:").stderr.splitlines()[-1].startswith("SyntaxError")


def test_exit_handlers_threads_and_pickling_work(sandbox: Sandbox) -> None:
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
    assert sandbox.run(code).stdout == "main ['main.py']\nA\nthread\ngoodbye\n"


def test_input_and_files(sandbox: Sandbox) -> None:
    code = "import data.module\nprint(data.module.x, open('data/raw.bin', 'rb').read(), input(), input())"
    files: dict[str, str | bytes] = {"data/module.py": "x = 5", "data/raw.bin": b"\x00\xff"}
    assert sandbox.run(code, "one\ntwo\n", files).stdout == "5 b'\\x00\\xff' one two\n"
    for name in ("/etc/x", "../x", "a/../../x", "", "."):
        with pytest.raises(BadValue, match="relative paths below the program's directory"):
            sandbox.run("", files={name: "x"})
    big = b"x" * 3_000_000
    assert sandbox.run("import sys; print(len(sys.stdin.buffer.read()))", stdin=big).stdout == "3000000\n"


def test_a_trailing_expression_is_shown_on_request(sandbox: Sandbox) -> None:
    assert sandbox.run("x = 20\nx + 1").stdout == ""
    assert sandbox.run("x = 20\nx + 1", echo=True).stdout == "21\n"
    assert sandbox.run("print(1)\nNone", echo=True).stdout == "1\n"
    assert sandbox.run("'a'\nx = 1", echo=True).stdout == ""
    assert sandbox.run("", echo=True).ok


def test_seeds(sandbox: Sandbox) -> None:
    code = "import random, numpy\nprint(random.random(), numpy.random.rand())"
    assert sandbox.run(code, seed=5).stdout == sandbox.run(code, seed=5).stdout != sandbox.run(code, seed=6).stdout
    assert sandbox.run(code).stdout != sandbox.run(code).stdout
    assert sandbox.run("print(hash('a'))").stdout == sandbox.run("print(hash('a'))").stdout


def test_libraries(sandbox: Sandbox) -> None:
    code = "import numpy as np, sympy\nprint(np.linalg.det(np.eye(3)), sympy.factor('x**2 - 1'))"
    assert sandbox.run(code).stdout == "1.0 (x - 1)*(x + 1)\n"


def test_limits_are_checked() -> None:
    with pytest.raises(BadValue, match="`wall` must be a number above 0, got 0"):
        Limits(wall=0)
    with pytest.raises(BadValue, match="16 MiB"):
        Limits(memory=1000)
    with pytest.raises(BadValue, match="at least 1"):
        Sandbox(workers=0)


def test_sessions_keep_their_variables(sandbox: Sandbox) -> None:
    with sandbox.session(echo=True) as session:
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


def test_a_session_survives_an_endless_cell(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    with sandbox.session(limits=Limits(wall=1.5), echo=True) as session:
        session.run("x = 5")
        stopped = session.run("while True: pass")
        assert (stopped.status, stopped.limit, stopped.ended) == ("limit", "time", False)
        assert session.run("x").stdout == "5\n"
        monkeypatch.setattr("palestra.tools.sandbox.session.INTERRUPT_GRACE", 0.2)
        stopped = session.run("import time\nwhile True:\n    try: time.sleep(9)\n    except BaseException: pass")
        assert (stopped.limit, stopped.ended) == ("time", True)


def test_a_session_that_exits_or_writes_to_its_channel(sandbox: Sandbox) -> None:
    with sandbox.session() as session:
        gone = session.run("import os; print('x', flush=True); os._exit(4)")
        assert (gone.status, gone.exit_code, gone.ended, gone.stdout) == ("error", 4, True, "x\n")
    with sandbox.session() as session:
        result = session.run("import os; os.write(3, b'{\"broken\": 1}' * 100)")
        assert (result.status, result.ended) == ("error", True)
    with sandbox.session(limits=Limits(memory=128 << 20)) as session:
        assert session.run("x = bytearray(10**9)").limit == "memory"
        assert session.run("print('alive')").stdout == "alive\n"
    with sandbox.session(limits=Limits(output=100)) as session:
        assert session.run("print('x' * 1000)").limit == "output"
        assert session.run("print('y')").stdout == "y\n"


def test_async(sandbox: Sandbox) -> None:
    async def main() -> None:
        results = await asyncio.gather(*(sandbox.arun(f"print({n})") for n in range(40)))
        assert [result.stdout for result in results] == [f"{n}\n" for n in range(40)]
        session = await sandbox.asession(echo=True)
        await session.arun("x = 3")
        assert (await session.arun("x")).stdout == "3\n"
        await session.aclose()
        start = time.monotonic()
        task = asyncio.create_task(sandbox.arun("import time; time.sleep(900)", limits=Limits(wall=1000.0)))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - start < 600  # the call did not wait for the program

    asyncio.run(main())
    assert sandbox.run("print(1)").ok


def test_many_threads(sandbox: Sandbox) -> None:
    with ThreadPoolExecutor(32) as pool:
        outputs = list(pool.map(lambda n: sandbox.run(f"print({n})").stdout, range(96)))
    assert outputs == [f"{n}\n" for n in range(96)]


def kill(template: TemplateProcess) -> None:
    """Kill a template process and wait until it has exited; the kernel then kills its programs."""
    assert template._pidfd is not None
    signal.pidfd_send_signal(template._pidfd, signal.SIGKILL)
    assert select.select([template._pidfd], [], [], PATIENCE)[0]


def test_a_dead_template_is_replaced() -> None:
    with Sandbox(workers=1) as sandbox:
        sandbox.run("1")
        for _ in range(2):
            for template in sandbox._templates[False]:
                kill(template)
            assert sandbox.run("print('again')").stdout == "again\n"
        session = sandbox.session()
        for template in sandbox._templates[True]:
            kill(template)
        with pytest.raises(SandboxDied):
            session.run("1")


def test_a_sandbox_that_cannot_start_is_an_infrastructure_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palestra.tools.sandbox.template_process._MAIN", "raise SystemExit('it is broken')  # {code}")
    with Sandbox() as sandbox, pytest.raises(ToolFailed, match="did not start.*it is broken"):
        sandbox.run("1")
    assert issubclass(SandboxDied, InfrastructureError)


def test_everything_ends_with_the_sandbox() -> None:
    gc.collect()
    handles = open_files()
    sandbox = Sandbox()
    session = sandbox.session()
    sandbox.run("1")
    session.run("import subprocess; subprocess.Popen(['sleep', '300'], start_new_session=True)")
    pids = sandbox_processes(sandbox)
    assert len(pids) > 4
    sandbox.close()
    sandbox.close()
    assert wait_until_gone(pids) == []
    session.close()
    with pytest.raises(BadValue, match="closed"):
        sandbox.run("1")
    assert open_files() == handles


def test_a_fork_of_the_host_starts_its_own_templates(sandbox: Sandbox) -> None:
    sandbox.run("1")
    reading, writing = multiprocessing.get_context("fork").Pipe(duplex=False)

    def child() -> None:
        writing.send(sandbox.run("print('forked')").stdout)
        sandbox.close()

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    assert reading.recv() == "forked\n"
    process.join()
    assert sandbox.run("print('here')").stdout == "here\n"


def test_a_host_that_is_killed_leaves_nothing() -> None:
    code = """
import os, sys, time
from palestra.tools.sandbox import Limits, Sandbox
sandbox = Sandbox(workers=1, limits=Limits(wall=300))
sandbox.run("1")
print("up", flush=True)
sandbox.run("import time; time.sleep(300)")
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "up\n"
        time.sleep(0.3)
        pids = descendants(host.pid)
        assert pids
        host.kill()
    assert wait_until_gone(pids) == []


def test_python_in_a_folder_that_was_given_with_parent_folders(tmp_path: Path) -> None:
    """Check that the sandbox works if the interpreter's prefix contains `..`, as in some tools' environments."""
    base = Path(sys.base_prefix)
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(Path(sys.executable).resolve())
    home = base / ".." / base.name / "bin"
    (tmp_path / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    code = """
import sys
from palestra.tools.sandbox import Sandbox
assert ".." in sys.base_prefix, sys.base_prefix
with Sandbox(workers=1) as sandbox:
    print(sandbox.run("print(6 * 7)").stdout)
"""
    folders = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [str(python), "-c", code],
        env={**os.environ, "PYTHONPATH": folders},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "42", done.stderr


def test_a_sandbox_can_be_pickled(sandbox: Sandbox) -> None:
    copy = pickle.loads(pickle.dumps(sandbox))
    assert copy.limits == sandbox.limits
    assert copy.run("print(1)").stdout == "1\n"
    copy.close()


# Machines that cannot isolate programs


def test_without_bubblewrap_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    isolation_level.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    try:
        detected = isolation_level()
        assert (detected.name, detected.why) == ("none", "bubblewrap is not installed")
        assert isolation_level() is detected  # the level is cached
        with pytest.raises(NoSandbox, match="apt-get install bubblewrap.*run_unprotected_on_this_host=True") as caught:
            Sandbox()
        assert isinstance(caught.value, UsageError)
    finally:
        isolation_level.cache_clear()


def test_a_bubblewrap_without_permission(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    isolation_level.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    try:
        detected = isolation_level()
        assert detected.name == "none"
        assert "No permissions to create new namespace" in detected.why
        assert detected.fix
    finally:
        isolation_level.cache_clear()


def test_unprotected_on_request_still_limits_and_cleans_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PALESTRA_TEST_SECRET", "open")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Sandbox(run_unprotected_on_this_host=True, workers=1, limits=Limits(wall=5.0)) as sandbox:
        assert sandbox.level.name == "none"
        result = sandbox.run("import os\nprint(os.getcwd(), os.environ.get('PALESTRA_TEST_SECRET'), os.listdir())")
        folder, secret, files = result.stdout.split()
        assert (secret, files) == ("None", "[]")
        assert not Path(folder).exists()
        assert sandbox.run("while True: pass", limits=Limits(wall=0.5)).limit == "time"
        assert sandbox.run("x = bytearray(10**10)").limit == "memory"
        daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(99)"
        assert sandbox.run(daemon).ok
        sandbox.run("1")
        with sandbox.session(echo=True) as session:
            session.run("x = 2")
            assert session.run("x").stdout == "2\n"
        pids = sandbox_processes(sandbox)
    assert wait_until_gone(pids) == []
    assert list(tmp_path.iterdir()) == []


UNPRIVILEGED = """
import os
from palestra.tools.sandbox import Limits, Sandbox, isolation_level
level = isolation_level()
assert (os.getuid(), level.name, level.confinement) == (65534, "bubblewrap", "user"), level
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
with Sandbox(workers=1) as sandbox:
    print(sandbox.run(forks, limits=Limits(processes=16)).stdout)
    print(sandbox.run(status).stdout, sandbox.run("open('/x', 'w')").status)
    print(sandbox.run("open('x', 'w').write('y'); print(open('x').read())").stdout)
    print(sandbox.run("import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))").stdout)
    visible = "import os; print([p for p in os.listdir('/proc') if p.isdigit()], os.path.exists('/home'))"
    print(sandbox.run(visible).stdout)
    print(sandbox.run("while True: pass", limits=Limits(wall=0.3)).limit)
    with sandbox.session(echo=True) as session:
        session.run("x = 5")
        print(session.run("x").stdout)
"""


def test_a_host_that_is_not_root() -> None:
    """Check that each program gets its own user namespace if the host runs as user nobody."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        uid = 65534 if os.geteuid() == 0 else os.getuid()
        script = UNPRIVILEGED.replace("65534", str(uid))
        output = run_script(script, copy_package(Path(folder)), unprivileged=True)
    assert output.split() == [
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
def test_many_calls_leave_nothing_behind() -> None:
    def resident(pid: int) -> int:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1])

    def state() -> tuple[int, int, int, int]:
        """Return the numbers of processes and open files, and the memory used by the host and by a template."""
        gc.collect()
        count = wait_for_processes(sandbox, most)
        template = max(resident(pid) for pid in sandbox_processes(sandbox) if Path(f"/proc/{pid}/statm").exists())
        return count, open_files(), resident(os.getpid()), template

    async def many(sandbox: Sandbox, count: int) -> None:
        async def some() -> None:
            for number in range(count // 16):
                assert (await sandbox.arun(f"print({number})")).stdout == f"{number}\n"

        await asyncio.gather(*(some() for _ in range(16)))

    most = 2 * (2 + 2 * MAX_WAITING)
    with Sandbox(preload=(), workers=2) as sandbox:
        asyncio.run(many(sandbox, 160))
        _, files, own, template = state()
        asyncio.run(many(sandbox, 480))
        after = state()
    assert after[0] <= most
    assert after[1] <= files
    assert after[2] <= own * 1.015
    assert after[3] <= template * 1.015


def test_the_shared_sandbox_is_one() -> None:
    assert isinstance(isolation_level(), IsolationLevel)
    assert shared_sandbox() is shared_sandbox()
    assert shared_sandbox().run("print(1)").stdout == "1\n"
