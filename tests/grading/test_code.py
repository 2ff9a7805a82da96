"""Test the code grader: hidden test formats, failures, isolation and comparison of results."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.errors import BadValue, InfrastructureError
from palestra.grading import AssertTest, CallTest, Grade, StdinTest, grade_code, read_tests
from palestra.grading.outputs import same_text, same_value
from palestra.tools.sandbox import Limits, Sandbox, SandboxDied

DOUBLE = "print(int(input()) * 2)"
DOUBLES = {"inputs": ["4\n", "5\n", "-1\n"], "outputs": ["8\n", "10\n", "-2\n"]}
ADD = "def add(a, b):\n    return a + b\n"
QUICK = Limits(wall=5.0, cpu=1.0)


# Formats


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        (DOUBLE, DOUBLES),
        (DOUBLE, json.dumps(DOUBLES)),
        (DOUBLE, {"inputs": [["4"], ["5"]], "outputs": [["8"], ["10"]]}),  # text as a list of lines
        (DOUBLE, [{"input": "4", "output": "8"}, {"input": "5", "output": "10", "type": "stdin_stdout"}]),
        (DOUBLE, {"language": "python", "test_cases": [{"type": "stdin_stdout", "input": "4", "output": "8"}]}),
        (ADD, {"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [3, 7]}),
        (ADD, {"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], [7]]}),  # results wrapped in lists
        (ADD, {"fn_name": "add", "inputs": [[[1], [2]]], "outputs": [[1, 2]]}),
        (ADD, [{"input": "1\n2", "output": "3", "testtype": "functional", "metadata": {"func_name": "add"}}]),
        (ADD, ["assert add(1, 2) == 3", "assert add('a', 'b') == 'ab'"]),
        (ADD, {"test_list": ["assert math.isclose(add(0.1, 0.2), 0.3)"], "test_setup_code": "import math"}),
        (ADD, {"test": "def check(candidate):\n    assert candidate(1, 2) == 3\n\ncheck(add)\n", "entry_point": "add"}),
        (ADD, "import math\nassert add(1, 2) == 3\nassert not math.isnan(add(1.0, 2.0))\n"),
        ("class Solution:\n    def add(self, a: List[int], b: int) -> int:\n        return sum(a) + b",
         {"fn_name": "add", "inputs": [[[1, 2], 3]], "outputs": [6]}),
        ("def f(n):\n    return Counter(str(n)), gcd(n, 6)",
         {"fn_name": "f", "inputs": [[11]], "outputs": [[{"1": 2}, 1]]}),
        ("def f(n):\n    yield from range(n)", ["assert list(f(3)) == [0, 1, 2]", "assert sum(f(4)) == 6"]),
        ("class P:\n    def __init__(s, x):\n        s.x = x\n    def __eq__(s, o):\n        return s.x == o.x",
         ["assert P(1) == P(1)", "assert P(2).x == 2", "p = P(3)\nassert p.x == 3"]),
        ("import numpy as np\ndef f():\n    return np.arange(3), np.float64(0.5)", ["assert f() == ([0, 1, 2], 0.5)"]),
    ],
)  # fmt: skip
def test_a_correct_program_passes_in_every_format(program: str, tests: Any) -> None:
    grade = grade_code(program, tests)
    assert grade.correct, grade.why
    assert grade.score == 1.0
    assert "passed all" in grade.why


def test_formats() -> None:
    assert read_tests(DOUBLES)[0] == StdinTest(stdin="4\n", expected="8\n")
    assert read_tests({"fn_name": "f", "inputs": [[1, [2]]], "outputs": [[3]]}) == [
        CallTest(function="f", args=(1, [2]), expected=([3], 3))
    ]
    assert read_tests(["assert f(1)"], function="f") == [AssertTest(source="assert f(1)")]
    mixed = [StdinTest(stdin="", expected="7"), CallTest(function="f", args=(), expected=(7,))]
    assert read_tests(mixed) == mixed
    assert grade_code("def f():\n    return 7\nif __name__ == '__main__':\n    print(f())", mixed).correct


@pytest.mark.parametrize(
    "tests",
    [None, 7, [], {}, "", "not python (", {"inputs": ["1"], "outputs": []}, [{"input": "1"}], [3], {"fn_name": "a b"},
     {"fn_name": "a b", "inputs": [[1]], "outputs": [1]}, [{"input": "1", "output": "1", "testtype": "functional"}],
     "def check(candidate):\n    assert candidate(1)"],
)  # fmt: skip
def test_invalid_tests_are_rejected(tests: Any) -> None:
    with pytest.raises(BadValue):
        grade_code(DOUBLE, tests)


# Failures


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("print(8)", "printed '8?', expected '10?'"),
        ("", "expected '8?'"),
        ("print(", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("import sys\nprint(int(input()) * 2)\nsys.exit(3)", "exit code 3"),
        ("import os\nprint(8)\nos._exit(1)", "exit code 1"),
        ("import ctypes\nctypes.string_at(0)", "signal SIGSEGV"),
        ("raise SystemExit('no')", "no"),
        ("while True: pass", " limit"),
        ("import time\ntime.sleep(99)", "exceeded its time limit"),
        ("print('x' * 9_000_000)", "exceeded its output limit"),
        ("x = bytearray(8 << 30)", "exceeded its memory limit"),
        ("open('/etc/passwd', 'a')", "PermissionError"),
        ("import socket\nsocket.create_connection(('1.1.1.1', 80), 1)", "Error"),
    ],
)
def test_failures_are_explained(program: str, why: str) -> None:
    grade = grade_code(program, DOUBLES, limits=QUICK, stop_early="limit" in why)
    assert not grade.correct
    assert why in grade.why
    assert 0 <= grade.score < 1
    assert "expected" not in grade.hint  # a hint never contains the solution


def test_exceeding_the_memory_limit_fails_one_test_only() -> None:
    """Check that a test whose processes are killed for using too much memory does not affect the other tests."""
    program = """
import os
n = int(input())
if n == 5:
    for _ in range(6):
        if os.fork() == 0:
            x = b"x" * (100 << 20)
            import time
            time.sleep(300)
    import time
    time.sleep(300)
print(2 * n)
"""
    grade = grade_code(program, DOUBLES, limits=Limits(wall=120.0, cpu=20.0, memory=256 << 20), parallel=1)
    assert not grade.correct
    assert grade.score == pytest.approx(2 / 3)
    assert "test 2" in grade.why


def test_score_is_the_share_of_passed_tests() -> None:
    wrong_on_negative = "n = int(input())\nprint(abs(2 * n))"
    grade = grade_code(wrong_on_negative, DOUBLES)
    assert grade.score == pytest.approx(2 / 3)
    assert "passed 2 of 3" in grade.why
    assert "test 3" in grade.why


def test_stop_early() -> None:
    tests = {"inputs": [str(n) for n in range(60)], "outputs": ["no"] * 60}
    grade = grade_code(DOUBLE, tests, stop_early=True)
    assert not grade.correct
    assert "passed 0 of 60 hidden tests (1 executed)" in grade.why
    late = {"inputs": [str(n) for n in range(60)], "outputs": [str(2 * n) for n in range(59)] + ["no"]}
    assert grade_code(DOUBLE, late, stop_early=True).score == pytest.approx(59 / 60, abs=0.1)
    assert grade_code(DOUBLE, late).score == pytest.approx(59 / 60)


def test_max_tests_selects_the_longest() -> None:
    tests = {"inputs": ["4", "40000", "5"], "outputs": ["wrong", "80000", "wrong"]}
    assert grade_code(DOUBLE, tests, max_tests=1).correct
    with pytest.raises(BadValue):
        grade_code(DOUBLE, tests, max_tests=0)


# Isolation


def test_tests_are_isolated_from_each_other() -> None:
    program = """
import os, sys, threading
n = int(input())
open("seen", "a").write("x")
os.makedirs("deep/er", exist_ok=True)
if os.fork() == 0:
    import time
    os.setsid()
    time.sleep(600)
print(len(open("seen").read()), sorted({"deep", "seen"} & set(os.listdir())))
"""
    tests = {"inputs": ["1"] * 6, "outputs": ["1 ['deep', 'seen']"] * 6}
    grade = grade_code(program, tests, parallel=1)
    assert grade.correct, grade.why


SECRET = "the expected output 8675309"

SPIES = {
    "memory": """
def needle():
    return '867' + str(5309)
import gc, sys
found = needle() in repr([o for o in gc.get_objects() if isinstance(o, (str, list, dict, tuple))])
frame = sys._getframe()
while frame:
    found = found or needle() in repr(frame.f_locals) + repr(frame.f_code.co_consts)
    frame = frame.f_back
print("found" if found else "nothing")
""",
    "processes": """
def needle():
    return '867' + str(5309)
import os
found = False
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("cmdline", "environ", "maps"):
        try:
            found = found or needle().encode() in open(f"/proc/{pid}/{name}", "rb").read()
        except OSError:
            pass
    try:
        for handle in os.listdir(f"/proc/{pid}/fd"):
            found = found or needle().encode() in open(f"/proc/{pid}/fd/{handle}", "rb").read(100_000)
    except OSError:
        pass
print("found" if found else "nothing")
""",
    "files": """
def needle():
    return '867' + str(5309)
import os
found = False
for folder, inner, names in os.walk("/tmp"):
    inner[:] = [name for name in inner if not os.path.ismount(os.path.join(folder, name))]  # the interpreter's
    for name in names:
        found = found or needle().encode() in open(os.path.join(folder, name), "rb").read()
print("found" if found else "nothing")
""",
}


@pytest.mark.parametrize("spy", SPIES)
def test_expected_results_are_not_accessible(spy: str) -> None:
    tests = [StdinTest(stdin="1", expected="nothing"), StdinTest(stdin="2", expected=SECRET)]
    grade = grade_code(SPIES[spy], tests, parallel=1)
    assert grade.score == 0.5, grade.why
    assert "printed 'nothing?', expected 'the expected" in grade.why


CHEATS = {
    "equal to all": "class A:\n    def __eq__(s, o): return True\n    def __hash__(s): return 0\n"
    "    def __len__(s): return 2\ndef f(n):\n    return A()",
    "leave": "import os\ndef f(n):\n    os._exit(0)",
    "exit": "def f(n):\n    raise SystemExit(0)",
    "exit at import": "raise SystemExit(0)",
    "caller's constants": "import sys\ndef f(n):\n    frame = sys._getframe(1)\n    while frame:\n"
    "        for c in frame.f_code.co_consts:\n            if isinstance(c, (int, tuple)) and c not in (0, 1, None):\n"
    "                return c\n        frame = frame.f_back",
    "str subclass": "class S(str):\n    def __eq__(s, o): return True\n    def __hash__(s): return 1\n"
    "def f(n):\n    return S('')",
    "patched assertion": "import builtins\nbuiltins.AssertionError = SystemExit\ndef f(n):\n    return 0",
    "patched json": "import json\njson.dumps = lambda *a, **k: '[]'\ndef f(n):\n    return 0",
    "written result": "import os\ndef f(n):\n    for h in range(3, 260):\n        try:\n"
    "            os.write(h, b'[1, 2]')\n        except OSError:\n            pass\n    os._exit(0)",
}


@pytest.mark.parametrize("cheat", CHEATS)
@pytest.mark.parametrize("tests", [["assert f(2) == 8675309"], ["assert f(2) in (8675309, 8675310)"], "call"])
def test_cheats_fail(cheat: str, tests: Any) -> None:
    tests = {"fn_name": "f", "inputs": [[2]], "outputs": [8675309]} if tests == "call" else tests
    assert not grade_code(CHEATS[cheat], tests, limits=QUICK).correct


# Comparison


def test_output_is_compared_by_tokens() -> None:
    assert same_text("1  2\n3 ", "1 2 3\n")
    assert not same_text("1 23", "1 2 3")
    assert not same_text("0.30000000000000004", "0.3")
    assert same_text("0.30000000000000004 yes", "0.3 yes", tolerance=1e-9)
    assert not same_text("0.31", "0.3", tolerance=1e-3)
    assert not same_text("no", "yes", tolerance=1.0)
    assert same_text("9" * 50_000, "9" * 50_000 + "\n")
    assert not same_text("nan", "1", tolerance=1.0)
    third = {"inputs": ["3"], "outputs": ["0.333333"]}
    assert not grade_code("print(1 / int(input()))", third).correct
    assert grade_code("print(1 / int(input()))", third, tolerance=1e-5).correct


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(VALUES, VALUES)
def test_values_are_compared_as_in_python(one: Any, two: Any) -> None:
    assert same_value(one, one)
    assert same_value(one, two) == (one == two)


@pytest.mark.parametrize("parallel", [1, 3])
def test_return_values_are_complete(parallel: int) -> None:
    """Check that all plain data returned by a function is compared."""
    values = [
        None,
        True,
        0,
        -7,
        10**40,
        0.1,
        float("inf"),
        "",
        "é\U0001f600\n",
        [],
        [1, [2, {"a": None}]],
        {"k": [1.5]},
    ]
    tests = {"fn_name": "same", "inputs": [[value] for value in values], "outputs": values}
    grade = grade_code("def same(x):\n    print('noise')\n    return x", tests, parallel=parallel)
    assert grade.correct, grade.why
    strict = ["assert same((1, 2)) == (1, 2)", "assert same({1, 2}) == {2, 1}", "assert same(b'x') == b'x'"]
    assert grade_code("def same(x):\n    return x", strict).correct
    assert not grade_code("def same(x):\n    return list(x)", strict[:1]).correct


# Threads and sandboxes


def test_many_threads() -> None:
    with ThreadPoolExecutor(6) as threads:
        grades = list(threads.map(lambda n: grade_code(DOUBLE if n % 2 else "print(8)", DOUBLES), range(12)))
    assert [grade.correct for grade in grades] == [bool(n % 2) for n in range(12)]
    assert not [t for t in threading.enumerate() if t.name.startswith("palestra-grading")]


class BrokenSandbox(Sandbox):
    """A sandbox that has lost its processes."""

    def run_each(self, *args: Any, **kwargs: Any) -> Any:
        raise SandboxDied("gone")


def test_a_broken_sandbox_raises() -> None:
    with BrokenSandbox() as sandbox, pytest.raises(InfrastructureError, match="gone"):
        grade_code(DOUBLE, DOUBLES, sandbox=sandbox)


def test_the_sandbox_argument() -> None:
    with Sandbox(workers=1) as sandbox:
        grade: Grade = grade_code(DOUBLE, DOUBLES, sandbox=sandbox)
    assert grade.correct
