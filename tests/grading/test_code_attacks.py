"""Test submissions that attack the code grader, and correct submissions that a careless defense would reject."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from palestra.grading import StdinTest, grade_code
from palestra.grading.outputs import decode_output, is_opaque, same_text, same_value, to_source
from palestra.tools.sandbox import Limits, Sandbox
from tests.tools.test_kills import VICTIM, with_signals
from tests.tools.users import copy_package, run_script

QUICK = Limits(wall=10.0, cpu=2.0)

# Forged results


FORGER = """
import json, os, sys
def f(n):
    frame, key = sys._getframe(), None
    while frame:
        test = frame.f_locals.get("test")
        key = test["key"] if isinstance(test, dict) and "key" in test else key
        frame = frame.f_back
    for handle in range(3, 256):
        try: os.write(handle, PAYLOAD.replace("KEY", json.dumps(key)).encode())
        except OSError: pass
    os._exit(0)
"""
PAYLOADS = [
    '{"err": 7}\n',
    "[KEY]",
    "[KEY, 7]",
    "[KEY, []]",
    "[KEY, [1, 2, 3]]",
    '[KEY, {"complex": [1' + "0" * 400 + ", 0]}]",
    '[KEY, {"dict": [[1]]}]',
    '[KEY, {"dict": "ab"}]',
    '[KEY, {"set": [[1]]}]',
    '[KEY, {"other": 5}]',
    "[KEY, " + "[" * 5_000 + "]" * 5_000 + "]",
    "[KEY, [" + "9" * 100_000 + "]]",
    '{"exit": "x", "limit": [], "out": 5, "err": {}}\n' * 100,
    "\xff\x00",
]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_forged_result_fails_the_test(payload: str) -> None:
    program = f"PAYLOAD = {payload!r}\n{FORGER}"
    tests = ["assert f(1) == 2", "assert f(1) in (2, 3)", "assert f(1) == f(2) + 1"]
    grade = grade_code(program, tests, limits=QUICK, parallel=1)
    assert (grade.correct, grade.score) == (False, 0.0)


PROC = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    for kind in ("fd", "map_files", "task"):
        try: names = os.listdir(f"/proc/{pid}/{kind}")
        except OSError: continue
        for name in names:
            if pid != str(os.getpid()):
                print("visible", pid, kind, name)
            try:
                with open(f"/proc/{pid}/{kind}/{name}", "w") as file: file.write('{"err": 7}\\n' * 50)
            except OSError: pass
    try:
        with open(f"/proc/{pid}/mem", "r+b") as file: print("memory of", pid)
    except OSError: pass
"""


@pytest.mark.parametrize("unprivileged", [False, True])
def test_no_other_process_is_reachable(unprivileged: bool) -> None:
    """Check that a submission cannot find or write to the process that reports the results of a batch."""
    script = f"""
from palestra.grading import grade_code
tests = {{"inputs": ["1", "2", "3"], "outputs": ["1", "2", "no"]}}
print(grade_code({PROC!r} + "print(input())", tests, parallel=1).why)
print(grade_code({PROC!r} + "import sys; sys.stdout.truncate(0); print(input())", tests, parallel=1).score < 1)
"""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        output = run_script(script, copy_package(Path(folder)), unprivileged=unprivileged)
    why, truncated = output.splitlines()
    assert "visible" not in why
    assert "memory of" not in why
    assert why.startswith("passed 0 of 3 hidden tests; test 1: printed '{")  # the program wrote to its own output
    assert truncated == "True"


def same_hash(count: int) -> list[int]:
    return [n * (2**61 - 1) for n in range(1, count + 1)]


@pytest.mark.parametrize("tag", ["set", "dict", "frozenset"])
def test_comparison_takes_linear_time(tag: str) -> None:
    """Check that integers with the same hash, which make a set quadratic, take about as long as other integers."""

    def seconds(items: list[int]) -> float:
        start = process_time()
        content: Any = [[item, item] for item in items] if tag == "dict" else items
        value = decode_output(json.dumps({tag: content}))
        expected: Any = dict.fromkeys(range(5_000), 0) if tag == "dict" else set(range(5_000))
        assert not same_value(value, expected, strict=True)
        assert not same_value(value, expected)
        assert not same_value([value], [expected])
        assert not same_value({"frozen": value}, {"frozen": 1}, strict=True)
        assert not is_opaque(value)
        assert to_source(value)
        return process_time() - start

    usual = max(seconds(list(range(1, 5_001))) for _ in range(3))
    assert seconds(same_hash(5_000)) < 20 * usual


def test_equal_sets_and_dictionaries_are_recognized() -> None:
    values: list[Any] = [
        {1, (2, "a")},
        {frozenset([1, 2])},
        set(),
        {(1, 2): [3.5], "k": {"a": None}},
        {1: 2},
        {"1": {3}},
    ]
    for value in values:
        program = f"def f():\n    return {value!r}"
        assert grade_code(program, [f"assert f() == {value!r}"]).correct, value
        assert not grade_code(program, [f"assert f() == {type(value)([(7, 8)])!r}"]).correct
    assert grade_code("def f():\n    return {1, 2}", ["assert f() - {1} == {2}"]).correct


# Infinite and undefined numbers


@pytest.mark.parametrize(
    ("value", "test"),
    [
        ("float('inf')", "assert f() == float('inf')"),
        ("-float('inf')", "assert f() < -1e308"),
        ("float('nan')", "assert f() != f()"),
        ("float('nan')", "assert str(f()) == 'nan'"),
        ("float('nan')", "import math\nassert math.isnan(f())"),
        ("[float('inf'), float('nan'), {1: -float('inf')}]", "assert f()[0] > 0 and f()[2][1] < 0 and f()[1] != 0"),
        ("complex(float('inf'), 1)", "assert f().imag == 1 and f().real > 0"),
        ("'an object of class C'", "assert f().startswith('an object of class')"),
    ],
)
def test_values_that_have_no_literal(value: str, test: str) -> None:
    grade = grade_code(f"def f():\n    return {value}", test)
    assert grade.correct, grade.why


def test_infinity_is_near_nothing_else() -> None:
    assert same_text("inf nan 1", "Infinity NaN 1.0", tolerance=1e-6)
    assert not same_text("5", "inf", tolerance=0.1)
    assert not same_value(5.0, float("inf"), tolerance=0.1)
    assert same_value(float("inf"), float("inf"), tolerance=0.1)


# State shared between tests


def test_tests_share_no_state() -> None:
    program = """
import os
found = sorted(os.listdir("/tmp")) + sorted(os.listdir("/dev/shm"))
print("clean" if not set(found) & {"hidden"} else found, os.stat("/tmp").st_mode & 0o777 != 0, os.umask(0))
os.makedirs("hidden/deep")
open("hidden/deep/n", "w").write("1")
os.chmod("hidden/deep", 0)
os.chmod("hidden", 0)
os.chmod("/tmp", 0)
os.utime("/tmp", (5, 5))
if os.fork() == 0:
    import time
    time.sleep(600)
"""
    expected = grade_code(program, [StdinTest(stdin="", expected="")], parallel=1).why
    assert "printed 'clean True" in expected
    first = f"clean True {expected.split('clean True ')[1][:2].strip('?')}"
    tests = [StdinTest(stdin=str(n), expected=first) for n in range(4)]
    grade = grade_code(program, tests, parallel=1)
    assert grade.correct, grade.why


def test_the_compiled_program_of_later_tests_cannot_be_changed() -> None:
    program = """
import marshal, os
evil = marshal.dumps(compile("print('changed')", "main.py", "exec"))
for handle in range(3, 1024):
    try: os.pwrite(handle, evil, 0)
    except OSError: pass
print("ran", input())
"""
    tests = [StdinTest(stdin=str(n), expected=f"ran {n}") for n in range(4)]
    grade = grade_code(program, tests, parallel=1)
    assert grade.correct, grade.why


def test_a_program_longer_than_the_limit_on_files_passes() -> None:
    tests = [StdinTest(stdin=str(n), expected=str(n)) for n in range(3)]
    program = "print(input())\n" + "\n".join(f"x = 'unused {n}'" for n in range(1000))
    grade = grade_code(program, tests, limits=Limits(wall=10.0, cpu=2.0, disk=4096, output=1000), parallel=1)
    assert grade.correct, grade.why


# Objects with their own comparison


EQUAL_TO_ALL = """
class A:
    def __eq__(s, o): return True
    def __ne__(s, o): return True
    def __hash__(s): return 0
    def __lt__(s, o): return True
    def __sub__(s, o): return 0
    def __rsub__(s, o): return 0
    def __abs__(s): return 0
    def __len__(s): return 3
    def __iter__(s): return iter([])
    def __getitem__(s, k): return s
    def __call__(s, *a): return s
def f(*a): return A()
"""
NEED_A_WHOLE_PROGRAM = [
    {"test": "def check(candidate):\n    for n in range(3):\n        assert candidate(n) == n + 1", "entry_point": "f"},
    ["assert f(1) == f(2)", "assert f(1) != f(3)"],
    ["assert close(f(1), 2)"],
    "def close(a, b):\n    return abs(a - b) < 1e-6\nassert close(f(1), 2)",
    "total = 0\nfor n in range(3):\n    total += f(n)\nassert total == 6",
]


@pytest.mark.parametrize("tests", NEED_A_WHOLE_PROGRAM)
@pytest.mark.parametrize("program", [EQUAL_TO_ALL, EQUAL_TO_ALL.replace("def f(*a): return A()", "f = A()")])
def test_objects_equal_to_everything_fail(program: str, tests: Any) -> None:
    assert not grade_code(program, tests, limits=QUICK).correct


@pytest.mark.parametrize(
    "cheat",
    [
        "import builtins\nbuiltins.abs = lambda x: 0\nbuiltins.range = lambda n: []\ndef f(n):\n    return -1",
        "import sys\ndef f(n):\n    sys._getframe(1).f_globals['check'] = lambda c: None\n    return -1",
        "import os\ndef f(n):\n    os._exit(0)",
        "raise SystemExit(0)",
        "def f(n):\n    raise AssertionError",
        "import os\ndef f(n):\n    os.closerange(3, 256)\n    return -1",
        "while True: pass",
    ],
)
def test_a_submission_cannot_change_the_test(cheat: str) -> None:
    grade = grade_code(cheat, NEED_A_WHOLE_PROGRAM[0], limits=Limits(wall=1.0, cpu=1.0))
    assert (grade.correct, grade.score) == (False, 0.0)


RAISES = """
def check(candidate):
    try:
        candidate(-1)
    except ValueError as err:
        assert str(err) == "negative"
    else:
        assert False
    for n in range(3):
        assert list(candidate(n)) == list(range(n))
"""
BOX = """
class Box:
    def __init__(self, n):
        self.n = n
    def __eq__(self, other):
        return self.n % 7 == other.n % 7
"""


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def f(n):\n    return n + 1", NEED_A_WHOLE_PROGRAM[0]),
        ("def f(n):\n    return n + 1", NEED_A_WHOLE_PROGRAM[3]),
        ("def f(n):\n    return n + 1", NEED_A_WHOLE_PROGRAM[4]),
        ("def f(n):\n    return (n % 2, {n % 2})", ["assert f(1) == f(3)", "assert f(1) != f(2)"]),
        ("def f(x):\n    x.sort()\n    x[0] = {'a': (1, 2)}", "x = [3, 1]\nf(x)\nassert x == [{'a': (1, 2)}, 3]"),
        ("def f(n):\n    if n < 0:\n        raise ValueError('negative')\n    return iter(range(n))", RAISES),
        (
            "def f(g, n):\n    return g(n)",
            "def check(c):\n    for n in (1, 2):\n        assert c(lambda x: 2 * x, n) == 2 * n",
        ),
        ("count = 0\ndef f():\n    global count\n    count += 1\n    return count", "f()\nx = f()\nassert x == 2"),
        (BOX, ["assert Box(1) == Box(8)", "assert not Box(1) == Box(2)", "b = Box(1)\nassert b == Box(15)"]),
        (BOX + "def f(box):\n    return Box(box.n + 1)", ["assert f(Box(1)) == Box(9)"]),
    ],
)
def test_correct_programs_pass_tests_that_are_programs(program: str, tests: Any) -> None:
    grade = grade_code(program, tests, limits=QUICK, function="f")
    assert grade.correct, grade.why


# Kills from outside


@pytest.mark.parametrize("kind", ["stdin", "call", "remote"])
def test_a_kill_from_outside_is_not_a_wrong_answer(kind: str) -> None:
    waits = VICTIM.replace('print("released")', "")
    program, tests = {
        "stdin": (f"{waits}\nprint(5)", [StdinTest(stdin="", expected="5")]),
        "call": (f"def f():\n    exec({waits!r})\n    return 5", {"fn_name": "f", "inputs": [[]], "outputs": [5]}),
        "remote": (f"def f():\n    exec({waits!r})\n    return 5", "x = f()\nassert x == 5"),
    }[kind]
    with Sandbox(workers=1) as sandbox:
        run: Callable[[], object] = lambda: grade_code(program, tests, sandbox=sandbox).correct  # noqa: E731
        assert with_signals(sandbox, run, [signal.SIGKILL, signal.SIGUSR1]) is True
