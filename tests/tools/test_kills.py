"""Test programs that kill other programs, the template or themselves, and programs that another process kills."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from palestra.errors import InfrastructureError
from palestra.tools.python import PythonTool
from palestra.tools.sandbox import ProgramKilled, Sandbox
from tests.tools.processes import PATIENCE, sandbox_processes
from tests.tools.users import copy_package, run_script

VICTIM = """
import ctypes, signal
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
ctypes.CDLL(None).prctl(15, b"victim")  # PR_SET_NAME: the test finds the process by this name
signal.sigwait({signal.SIGUSR1})
print("released")
"""


@pytest.fixture(scope="module")
def package() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield copy_package(Path(folder))


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(workers=1) as sandbox:
        yield sandbox


def with_signals(sandbox: Sandbox, run: Callable[[], object], signals: list[signal.Signals]) -> object:
    """Call `run`, and send each signal to another process named "victim". Return the result of `run` or its error."""
    answer: list[object] = []

    def work() -> None:
        try:
            answer.append(run())
        except InfrastructureError as err:
            answer.append(err)

    thread = threading.Thread(target=work)
    thread.start()
    seen: set[int] = set()
    for number in signals:
        end = monotonic() + PATIENCE
        while not (victims := _victims(sandbox) - seen):
            assert monotonic() < end
            sleep(0.005)
        seen |= victims
        for pid in victims:
            os.kill(pid, number)
    thread.join(PATIENCE)
    return answer[0]


def _victims(sandbox: Sandbox) -> set[int]:
    found = set()
    for pid in sandbox_processes(sandbox):
        try:
            if Path(f"/proc/{pid}/comm").read_text() == "victim\n":
                found.add(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def test_a_program_killed_from_outside_is_run_again(sandbox: Sandbox) -> None:
    result = with_signals(sandbox, lambda: sandbox.run(VICTIM).stdout, [signal.SIGKILL, signal.SIGUSR1])
    assert result == "released\n"


def test_a_batch_continues_with_the_input_that_was_killed(sandbox: Sandbox) -> None:
    code = f"n = input()\nif n == '2':\n    exec({VICTIM!r})\nprint(n)"

    def run() -> list[str]:
        return [result.stdout for result in sandbox.run_each(code, ["1", "2", "3"])]

    result = with_signals(sandbox, run, [signal.SIGKILL, signal.SIGUSR1])
    assert result == ["1\n", "released\n2\n", "3\n"]


def test_a_program_that_is_always_killed_is_an_infrastructure_error(sandbox: Sandbox) -> None:
    assert sandbox.run("print(1)").stdout == "1\n"  # starts a template if no earlier test did
    templates = [id(template) for template in sandbox._templates[False]]
    error = with_signals(sandbox, lambda: sandbox.run(VICTIM), [signal.SIGKILL] * 3)
    assert isinstance(error, ProgramKilled)
    assert isinstance(error, InfrastructureError)
    assert [id(template) for template in sandbox._templates[False]] == templates  # other programs are not affected


def test_a_session_killed_from_outside_is_an_infrastructure_error(sandbox: Sandbox) -> None:
    with sandbox.session() as session:
        error = with_signals(sandbox, lambda: session.run(VICTIM), [signal.SIGKILL])
    assert isinstance(error, ProgramKilled)


def test_a_stateful_tool_restores_its_variables_after_a_kill(sandbox: Sandbox) -> None:
    tool = PythonTool(stateful=True, sandbox=sandbox).open(seed=1)
    assert tool.call("x = 5").ok
    assert isinstance(with_signals(sandbox, lambda: tool.call(VICTIM), [signal.SIGKILL]), ProgramKilled)
    assert tool.call("x").text == "5"
    tool.close()


ATTACKS = """
import os
from palestra.tools.sandbox import Limits, Sandbox
acts = ["os.kill(0, 9)", "os.kill(0, 2)", "os.kill(0, 15)", "os.kill(-1, 9)", "os.killpg(0, 9)", "os.killpg(1, 9)",
        "os.kill(1, 9)", "os.kill(os.getppid(), 9)"]
every = "import os\\n" + "".join(f"try: {act}\\nexcept BaseException: pass\\n" for act in acts) + "print('alive')"
child = "import os\\nif os.fork() == 0:\\n" + "".join(
    f"    try: {act}\\n    except BaseException: pass\\n" for act in acts)
with Sandbox(workers=1, preload=()) as sandbox, sandbox.session() as neighbour:
    neighbour.run("x = 7")
    sandbox.run("1")
    templates = [template for pool in sandbox._templates.values() for template in pool]
    print(sandbox.run(every).stdout, sandbox.run(child + "    os._exit(0)\\nos.wait()\\nprint('parent')").stdout)
    print([result.stdout for result in sandbox.run_each(every, ["", ""])])
    print(neighbour.run(every).stdout, neighbour.run("print(x)").stdout)
    print([template for pool in sandbox._templates.values() for template in pool] == templates)
"""


@pytest.mark.parametrize("unprivileged", [False, True])
def test_signals_reach_only_the_program_itself(package: Path, unprivileged: bool) -> None:
    output = run_script(ATTACKS, package, unprivileged=unprivileged)
    assert output.split() == ["alive", "parent", "['alive\\n',", "'alive\\n']", "alive", "7", "True"]


# A program is process 1 in its namespace, so the kernel ignores the first two signals; the filter refuses the others.
SUICIDES = """
import ctypes, os, platform, resource, signal, struct
libc = ctypes.CDLL(None, use_errno=True)
arm = platform.machine() == "aarch64"
forged = ctypes.create_string_buffer(struct.pack("<iii", 9, 0, 0x80), 128)  # si_code SI_KERNEL: sent by the kernel
me = os.pidfd_open(os.getpid())
os.kill(os.getpid(), 9)
signal.pidfd_send_signal(me, 9)
print(libc.syscall(138 if arm else 129, os.getpid(), 9, forged), libc.syscall(240 if arm else 297, 1, 1, 9, forged),
      libc.syscall(424, me, 9, forged, 0))
one_second = ctypes.create_string_buffer(struct.pack("<QQ", 1, 1))
print(libc.syscall(261 if arm else 302, 0, 0, one_second, None), libc.syscall(164 if arm else 160, 0, one_second),
      libc.syscall(261 if arm else 302, 1, 4, one_second, None))
resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))  # other limits may be lowered
print("alive")
"""


@pytest.mark.parametrize("unprivileged", [False, True])
def test_a_program_cannot_pretend_to_be_killed_from_outside(package: Path, unprivileged: bool) -> None:
    script = f"""
from palestra.tools.sandbox import Sandbox
with Sandbox(workers=1, preload=()) as sandbox:
    print(sandbox.run({SUICIDES!r}).stdout)
    print(sandbox.run_each({SUICIDES!r}, [""])[0].stdout)
"""
    expected = ["-1"] * 6 + ["alive"]
    assert run_script(script, package, unprivileged=unprivileged).split() == expected * 2


def test_without_namespaces_a_program_that_kills_itself_fails() -> None:
    with Sandbox(run_unprotected_on_this_host=True, workers=1, preload=()) as sandbox:
        with sandbox.session() as neighbour:
            neighbour.run("x = 7")
            for code in ("import os; os.kill(os.getpid(), 9)", "import os; os.kill(0, 9)"):
                results = [sandbox.run(code), *sandbox.run_each(code, [""])]
                assert [(result.status, result.signal) for result in results] == [("error", "SIGKILL")] * 2
            assert neighbour.run("print(x)").stdout == "7\n"
        folder = "import os; os.makedirs('a/b'); open('a/b/c', 'w').close(); os.chmod('a', 0)"
        assert [result.status for result in sandbox.run_each(folder, ["", ""])] == ["ok", "ok"]
