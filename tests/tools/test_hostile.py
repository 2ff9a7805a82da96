"""Test hostile programs that try to escape the sandbox, persist in it, exhaust resources or fake results."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from palestra.tools.sandbox import Limits, Result, Sandbox
from palestra.tools.sandbox.guest.paths import HOME, covered_prefixes
from palestra.tools.sandbox.guest.template import MAX_WAITING
from tests.tools.processes import open_files, wait_for_processes

TIGHT = Limits(wall=120.0, cpu=20.0, memory=256 << 20, processes=16, output=64 << 10, disk=8 << 20)
PROCESSES = 2 * (2 + 2 * MAX_WAITING)  # two templates, each with a bwrap process and waiting processes
SECRET = "palestra-hostile-secret-4711"


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    os.environ["PALESTRA_TEST_SECRET"] = SECRET
    tempfile.tempdir = str(tmp_path_factory.mktemp("empty"))
    with Sandbox(limits=TIGHT, workers=1) as sandbox:
        yield sandbox
    tempfile.tempdir = None
    del os.environ["PALESTRA_TEST_SECRET"]


# Initial content of a program's directory. It is empty, unless the interpreter's packages are located in it.
EMPTY = sorted({Path(path).relative_to(HOME).parts[0] for path, _ in covered_prefixes()})


def attacked(sandbox: Sandbox, code: str, **kwargs: object) -> Result:
    """Run `code`, and check that it leaves no processes or files behind and that the sandbox still works."""
    assert sandbox.run("print(6*7)").stdout == "42\n"
    handles = open_files()
    result = sandbox.run(code, **kwargs)  # type: ignore[arg-type]
    after = sandbox.run("import os; print(6*7, sorted(os.listdir()))")
    assert (after.stdout, after.stderr, after.status) == (f"42 {EMPTY}\n", "", "ok")
    assert wait_for_processes(sandbox, PROCESSES) <= PROCESSES
    assert list(Path(tempfile.gettempdir()).iterdir()) == []
    assert open_files() == handles
    return result


def test_an_infinite_loop(sandbox: Sandbox) -> None:
    result = attacked(sandbox, "print('started', flush=True)\nwhile True: pass", limits=Limits(wall=2.0))
    assert (result.status, result.limit, result.stdout) == ("limit", "time", "started\n")


def test_a_loop_that_catches_everything(sandbox: Sandbox) -> None:
    code = """
import signal
for number in range(1, 32):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True:
    try:
        while True: pass
    except BaseException: pass
"""
    assert attacked(sandbox, code, limits=Limits(wall=0.5)).limit == "time"


def test_processor_time_of_all_processes(sandbox: Sandbox) -> None:
    code = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"
    result = attacked(sandbox, code, limits=Limits(wall=300.0, cpu=0.5))
    assert (result.status, result.limit) == ("limit", "cpu")


def test_a_sleeper(sandbox: Sandbox) -> None:
    assert attacked(sandbox, "import time; time.sleep(60)", limits=Limits(wall=0.3)).limit == "time"


def test_a_fork_bomb(sandbox: Sandbox) -> None:
    result = attacked(sandbox, "import os\nwhile True: os.fork()", limits=Limits(wall=1.5, processes=16))
    assert result.status == "limit"
    assert result.limit in ("processes", "time", "cpu", "memory")


def test_a_fork_bomb_is_held_to_its_number(sandbox: Sandbox) -> None:
    code = """
import os, time
count = 1
try:
    while True:
        if os.fork() == 0: time.sleep(60)
        count += 1
except BlockingIOError:
    print(count)
"""
    assert attacked(sandbox, code, limits=Limits(wall=120.0, processes=16)).stdout == "16\n"


def test_threads_count_too(sandbox: Sandbox) -> None:
    code = "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(60,)).start()"
    result = attacked(sandbox, code, limits=Limits(wall=0.5, processes=16))
    assert (result.status, result.limit) == ("limit", "time")  # before it exits, the program waits for its threads
    code = code.replace("args=(60,)", "args=(60,), daemon=True")
    assert attacked(sandbox, code, limits=Limits(wall=120.0, processes=16)).limit == "processes"


def test_a_memory_bomb(sandbox: Sandbox) -> None:
    result = attacked(sandbox, "x = []\nwhile True: x.append(bytearray(10_000_000))")
    assert (result.status, result.limit) == ("limit", "memory")
    assert "MemoryError" in result.stderr


def test_one_huge_allocation_can_be_caught(sandbox: Sandbox) -> None:
    result = attacked(sandbox, "try: bytearray(10**12)\nexcept MemoryError: print('caught')")
    assert (result.status, result.stdout) == ("ok", "caught\n")


def test_a_memory_bomb_of_many_processes(sandbox: Sandbox) -> None:
    code = """
import os, time
for _ in range(12):
    if os.fork() == 0:
        x = bytearray(os.urandom(1 << 20)) * 60
        time.sleep(600)
time.sleep(600)
"""
    assert attacked(sandbox, code, limits=Limits(wall=120.0, cpu=60.0, memory=256 << 20)).limit == "memory"


def test_memory_that_no_limit_counts_is_refused(sandbox: Sandbox) -> None:
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
try: os.memfd_create("x"); print("memfd")
except OSError as err: print(err.errno)
print(libc.shmget(0, 1 << 30, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 1, 0o1600))
"""
    assert attacked(sandbox, code).stdout == "1\n-1 -1 -1\n"


def test_a_gigabyte_of_output(sandbox: Sandbox) -> None:
    code = "import sys\nfor _ in range(1 << 10): sys.stdout.write('x' * (1 << 20))"
    result = attacked(sandbox, code, limits=Limits(wall=120.0, output=100_000))
    assert (result.status, result.limit, result.cut) == ("limit", "output", True)
    assert result.stdout == "x" * 100_000


def test_a_gigabyte_of_errors_from_below_python(sandbox: Sandbox) -> None:
    code = "import os\nblock = b'y' * (1 << 20)\nfor _ in range(1 << 10): os.write(2, block)"
    result = attacked(sandbox, code, limits=Limits(wall=120.0, output=1000))
    assert (result.limit, len(result.stderr)) == ("output", 1000)


def test_deep_recursion(sandbox: Sandbox) -> None:
    result = attacked(sandbox, "def f(): return f()\nf()")
    assert result.status == "error"
    assert result.stderr.endswith("RecursionError: maximum recursion depth exceeded\n")
    code = "import sys\nsys.setrecursionlimit(10**9)\ndef f(n): return [f(n + 1)]\nf(0)"
    assert attacked(sandbox, code, limits=replace(TIGHT, memory=64 << 20)).status in (
        "error",
        "limit",
    )  # with less memory, the limit is reached sooner
    code = "x = []\nfor _ in range(10**5): x = [x]\nprint(repr(x)[:1])"  # recursion in C
    assert attacked(sandbox, code).status == "error"
    assert attacked(sandbox, "(" * 10_000).status == "error"


@pytest.mark.parametrize(
    "path",
    ["/etc/shadow", "/root/.bashrc", "/home", "/var/log", "/sys/kernel", "/etc/hostname", "/dev/mem", "/proc/kcore"],
)
def test_reading_the_hosts_files(sandbox: Sandbox, path: str) -> None:
    code = f"import os\nprint(os.listdir({path!r}) if os.path.isdir({path!r}) else open({path!r}, 'rb').read(1))"
    result = attacked(sandbox, code)
    assert (result.status, result.stdout) == ("error", "")


def test_the_project_is_not_visible(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    code = f"""
import os
for path in {[str(tmp_path), str(Path(__file__).parent), str(Path.cwd() / "tests"), str(Path.home() / ".ssh")]!r}:
    print(os.path.exists(path))
try:
    import palestra
    print(getattr(palestra, "__version__", None))
except ImportError: print("no palestra")
"""
    assert attacked(sandbox, code).stdout.split("\n")[:4] == ["False"] * 4


def test_reading_the_hosts_environment(sandbox: Sandbox) -> None:
    code = """
import glob, os
seen = repr(dict(os.environ))
for path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline") + glob.glob("/proc/*/task/*/environ"):
    try: seen += repr(open(path, "rb").read())
    except OSError as err: seen += repr(err)
print(seen)
"""
    result = attacked(sandbox, code)
    assert result.status == "ok"
    assert SECRET not in result.stdout
    assert "VIRTUAL_ENV" not in result.stdout


def test_no_call_sees_another(sandbox: Sandbox) -> None:
    leave = "import os, sys\nopen('left', 'w').write('x'); open('/dev/shm/left2', 'w'); sys.left = os.left = 1"
    assert attacked(sandbox, leave).ok
    look = "import os, sys\nprint(os.listdir('/dev/shm'), hasattr(sys, 'left'), len(os.listdir('/proc/self/fd')))"
    # The five descriptors are the standard streams, the channel and the directory being listed.
    assert attacked(sandbox, look).stdout == f"{EMPTY} False 5\n"
    hidden = "a secret of this call: " + "5f3a9"
    with sandbox.session() as other:
        other.run(f"x = {hidden!r}")
        code = "import gc\nprint(any('5f3' + 'a9' in repr(o) for o in gc.get_objects() if type(o) in (list, dict)))"
        assert attacked(sandbox, code).stdout == "False\n"


@pytest.mark.parametrize("path", ["/x", "/usr/x", "/etc/x", "/run/x", "/dev/x", "/proc/sys/kernel/hostname", "/root/x"])
def test_writing_outside(sandbox: Sandbox, path: str) -> None:
    result = attacked(sandbox, f"open({path!r}, 'w').write('x')")
    assert result.status == "error"
    assert any(name in result.stderr for name in ("PermissionError", "Read-only file system", "FileNotFoundError"))


def test_writing_to_files_shared_with_the_host(sandbox: Sandbox) -> None:
    code = """
import os, sys, json
for path in {json.__file__, sys.executable, "/run/palestra/palestra/tools/sandbox/guest/template.py"}:
    for act in (lambda p: open(p, "a"), lambda p: os.chmod(p, 0o777), os.unlink, lambda p: os.rename(p, "/tmp/x")):
        try: act(path); print("done", path)
        except OSError: pass
"""
    assert attacked(sandbox, code).stdout == ""


def test_the_local_network(sandbox: Sandbox) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        code = f"import socket\ns = socket.socket()\ns.settimeout(1)\ns.connect({server.getsockname()!r})"
        assert "Network is unreachable" in attacked(sandbox, code).stderr
    result = attacked(sandbox, "import socket\nsocket.socket(socket.AF_INET6).connect(('::1', 80))")
    assert "OSError" in result.stderr


def test_the_internet(sandbox: Sandbox) -> None:
    code = """
import socket, urllib.request
for target in ("1.1.1.1", "192.168.0.1", "10.0.0.1", "169.254.169.254"):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try: socket.socket(socket.AF_INET, kind).connect((target, 53)); print("connected", target)
        except OSError: pass
try: print(urllib.request.urlopen("http://example.com", timeout=1))
except OSError as err: pass
for family in (16, 17, 38, 40):
    try: socket.socket(family, socket.SOCK_RAW if family == 17 else socket.SOCK_STREAM); print("family", family)
    except OSError: pass
print("end")
"""
    assert attacked(sandbox, code).stdout == "end\n"


def test_the_hosts_abstract_sockets(sandbox: Sandbox) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0palestra-hostile")
        server.listen()
        code = "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('\\0palestra-hostile')"
        assert "ConnectionRefusedError" in attacked(sandbox, code).stderr


def test_two_programs_at_once_do_not_meet(sandbox: Sandbox) -> None:
    bind = "import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind('\\0meet')\ns.listen()"
    code = """
import os, socket
print(sorted(p for p in os.listdir('/proc') if p.isdigit()))
try: socket.socket(socket.AF_UNIX).connect('\\0meet'); print('met')
except OSError: print('alone')
"""
    with sandbox.session() as other:
        assert other.run(bind).ok
        assert sandbox.run(code).stdout == "['1']\nalone\n"
        assert other.run("s.close()").ok


def test_links_lead_nowhere(sandbox: Sandbox) -> None:
    code = """
import os
os.symlink("/etc/shadow", "link")
os.symlink("/proc/1/root/../../etc/shadow", "link2")
os.symlink("../" * 30 + "etc/shadow", "link3")
for path in ("link", "link2", "link3", "/proc/1/root/etc/shadow", "/proc/1/cwd/../etc/shadow", "/proc/self/root/home"):
    try: print(open(path).read(1))
    except OSError: pass
try: os.link(os.__file__, "hard"); print("linked")
except OSError: pass
"""
    assert attacked(sandbox, code).stdout == ""


def test_tricks_with_proc(sandbox: Sandbox) -> None:
    code = """
import os
assert [p for p in os.listdir("/proc") if p.isdigit()] == ["1"]
for path, text in (("/proc/1/mem", "x"), ("/proc/sysrq-trigger", "b"), ("/proc/sys/kernel/core_pattern", "|/tmp/x"),
                   ("/proc/self/uid_map", "0 0 1"), ("/proc/self/oom_score_adj", "0"),
                   ("/proc/sys/vm/drop_caches", "1")):
    try:
        with open(path, "w") as file: file.write(text)
        print("wrote", path)
    except OSError: pass
for path in ("/proc/kmsg", "/proc/kcore"):
    try: open(path, "rb").read(1); print("read", path)
    except OSError: pass
"""
    result = attacked(sandbox, code)
    assert result.status == "ok", result.stderr
    assert result.stdout == ""


def test_no_way_to_other_privileges(sandbox: Sandbox) -> None:
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
print(status["NoNewPrivs"].strip(), status["Seccomp"].strip(), int(status["CapEff"], 16), int(status["CapPrm"], 16))
for flag in (0x10000000, 0x20000, 0x40000000, 0x20000000):
    print(libc.unshare(flag), end=" ")
print(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None), libc.umount2(b"/proc", 2), libc.chroot(b"/tmp"), libc.ptrace(0))
for act, *args in ((os.setuid, 0), (os.setgid, 0), (os.setgroups, [0]), (os.chown, "/tmp", 0, 0),
                   (os.mknod, "disk", 0o60666, os.makedev(254, 0))):
    try: act(*args); print("done", act)
    except OSError: pass
print(os.getuid() != 0)
"""
    assert attacked(sandbox, code).stdout == "1 2 0 0\n-1 -1 -1 -1 -1 -1 -1 -1\nTrue\n"


def test_signals_to_the_parent(sandbox: Sandbox) -> None:
    code = """
import os, signal
print(os.getppid(), os.getpid())
for target in (os.getppid(), 2, 3, -1, 4194303):
    if target not in (0,):
        try: os.kill(target, signal.SIGKILL)
        except OSError: pass
try: os.killpg(0, signal.SIGTERM)
except OSError: pass
print("here")
"""
    assert attacked(sandbox, code).stdout == "0 1\nhere\n"


def test_daemons_left_behind(sandbox: Sandbox) -> None:
    code = """
import os, subprocess, sys, time
subprocess.Popen(["sleep", "300"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3): os.close(fd)
        time.sleep(300)
    os._exit(0)
print("gone")
"""
    result = attacked(sandbox, code)
    assert (result.status, result.stdout) == ("ok", "gone\n")
    assert result.duration < 200  # the result did not wait for the daemons


def test_filling_the_disk(sandbox: Sandbox) -> None:
    result = attacked(sandbox, "f = open('big', 'wb')\nwhile True: f.write(b'x' * (1 << 20))")
    assert (result.status, result.limit) == ("limit", "disk")
    result = attacked(sandbox, "for n in range(100_000): open(f'f{n}', 'w').close()")
    assert (result.status, result.limit) == ("limit", "disk")
    many = "n = 0\nwhile True:\n    open(f'f{n}', 'wb').write(b'x' * (1 << 20)); n += 1"
    assert attacked(sandbox, many).limit == "disk"
    assert attacked(sandbox, "open('/dev/shm/big', 'wb').write(b'x' * (64 << 20))").limit == "disk"


def test_too_many_open_files(sandbox: Sandbox) -> None:
    result = attacked(sandbox, "x = [open('/dev/null') for _ in range(10_000)]")
    assert result.status == "error"
    assert "Too many open files" in result.stderr


def test_exiting_without_cleanup(sandbox: Sandbox) -> None:
    result = attacked(sandbox, "import os\nprint('buffered')\nos.write(1, b'raw')\nos._exit(3)")
    assert (result.status, result.exit_code, result.stdout) == ("error", 3, "raw")
    assert attacked(sandbox, "import os; os._exit(0)").status == "ok"
    assert attacked(sandbox, "import sys; sys.exit('words')").stderr == "words\n"


def test_a_crash_below_python(sandbox: Sandbox) -> None:
    result = attacked(sandbox, "import ctypes\nprint('before', flush=True)\nctypes.string_at(0)")
    assert (result.status, result.signal, result.exit_code, result.stdout) == ("error", "SIGSEGV", None, "before\n")
    aborted = attacked(sandbox, "import os; os.abort()")
    assert (aborted.status, aborted.exit_code) == ("error", None)
    assert aborted.signal is not None  # process 1 ignores SIGABRT; the C library determines the signal that kills it


def test_a_program_cannot_fake_a_broken_sandbox(sandbox: Sandbox) -> None:
    code = """
import os
for fd in range(3, 64):
    for text in (b"1 OSError: broken", b'{"broken": "x"}', b'{"exit": 0, "limit": "", "signal": null}'):
        try: os.write(fd, text)
        except OSError: pass
os._exit(1)
"""
    result = attacked(sandbox, code)
    assert (result.status, result.exit_code, result.limit) == ("error", 1, None)


def test_the_hosts_standard_input(sandbox: Sandbox) -> None:
    code = "import sys\nprint(repr(sys.stdin.read()), repr(open('/dev/stdin').read()))"
    assert attacked(sandbox, code).stdout == "'' ''\n"
    assert attacked(sandbox, "print(input() + input())", stdin="a\nb\n").stdout == "ab\n"


def test_output_that_is_not_text(sandbox: Sandbox) -> None:
    result = attacked(sandbox, "import os\nos.write(1, bytes(range(256)))\nos.write(2, b'\\xff\\xfe')")
    assert (result.status, result.stderr) == ("ok", "\ufffd\ufffd")
    assert result.stdout.startswith("\0\x01")
    assert "\ufffd" in result.stdout


@pytest.mark.parametrize("code", ["print(1)\0print(2)", "\0", "print('\ud800')", "\ud800", "\ufeffprint(1)"])
def test_strange_characters_in_the_code(sandbox: Sandbox, code: str) -> None:
    result = attacked(sandbox, code)
    assert result.status in ("ok", "error")
    assert result.limit is None


def test_harmless_code_that_mentions_dangerous_things(sandbox: Sandbox) -> None:
    code = """
import ctypes, multiprocessing, os, resource, socket, subprocess, threading
print("socket", "os.system", "subprocess", "os._exit", "sys.exit", "os.fork")
a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1))
print(subprocess.run(["echo", "hello"], capture_output=True, text=True).stdout)
t = threading.Thread(target=print, args=("thread",)); t.start(); t.join()
with multiprocessing.get_context("fork").Pool(2) as pool: print(pool.map(abs, [-1, -2]))
import asyncio
print(asyncio.run(asyncio.sleep(0, "async")))
"""
    result = attacked(sandbox, code)
    assert (result.status, result.stderr) == ("ok", "")
    assert result.stdout.splitlines()[1:] == ["b'x'", "hello", "", "thread", "[1, 2]", "async"]
