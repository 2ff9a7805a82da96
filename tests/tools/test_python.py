"""Test the output that the Python tool returns to the model, and its state between calls."""

from __future__ import annotations

import asyncio
import copy
import pickle

import pytest

from palestra.errors import BadValue
from palestra.tools import ToolResult, make_toolset
from palestra.tools.python import PythonTool
from palestra.tools.sandbox import Limits


def output(tool: PythonTool, code: str) -> str:
    result = tool.run({"code": code})
    assert asyncio.run(tool.arun({"code": code})).text == result.text or tool.stateful
    return str(result.text)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("print(6*7)", "42"),
        ("6*7", "42"),
        ("x = 6\nprint(x)\nx * 7", "6\n42"),
        ("x = 6", "(The program printed nothing.)"),
        ("import numpy as np\nnp.arange(3)", "array([0, 1, 2])"),
        ("import sympy as sp\nx = sp.symbols('x')\nsp.solve(x**2 - 4)", "[-2, 2]"),
        ("raise SystemExit(3)", "The program ended with exit code 3."),
        ("import ctypes\nctypes.string_at(0)", "The program crashed (SIGSEGV)."),
    ],
)
def test_output_for_the_model(code: str, text: str) -> None:
    assert output(PythonTool(), code) == text


def test_tracebacks_show_the_programs_own_lines() -> None:
    code = "import json\ndef load(text):\n    return json.loads(text)\nload('{')"
    text = output(PythonTool(), code)
    assert "line 3, in load\n    return json.loads(text)" in text
    assert "decoder.py" not in text
    assert text.splitlines()[-1].startswith("json.decoder.JSONDecodeError: Expecting property name")
    deep = output(PythonTool(), "def f(n):\n    return f(n + 1)\nf(0)")
    assert len(deep.splitlines()) < 25
    assert deep.endswith("RecursionError: maximum recursion depth exceeded")
    chained = output(
        PythonTool(), "try:\n    1/0\nexcept ZeroDivisionError as err:\n    raise ValueError('x') from err"
    )
    assert "direct cause" in chained
    assert output(PythonTool(), "x = = 1").splitlines()[-1] == "SyntaxError: invalid syntax"


def test_limits_are_reported() -> None:
    short = PythonTool(limits=Limits(wall=1.0))
    assert output(short, "while True: pass") == "The program was stopped: it ran longer than 1 seconds."
    tool = PythonTool(limits=Limits(memory=64 << 20, output=100))
    assert output(tool, "x = bytearray(10**9)").endswith("it needed more than 64 MB of memory.")
    assert output(tool, "print('x' * 1000)").endswith("it printed more than 100 bytes; the rest is not shown.")
    result = short.run({"code": "while True: pass"})
    assert (result.ok, result.info["status"], result.info["limit"]) == (False, "limit", "time")


def test_state_between_calls() -> None:
    fresh, stateful = PythonTool().open(seed=1), PythonTool(stateful=True).open(seed=1)
    for tool in (fresh, stateful):
        tool.run({"code": "x = 5"})
    assert "NameError" in str(fresh.run({"code": "x"}).text)
    assert stateful.run({"code": "x"}).text == "5"
    assert asyncio.run(stateful.arun({"code": "x + 1"})).text == "6"
    gone = str(stateful.run({"code": "import os; os._exit(1)"}).text)
    assert gone.endswith("The interpreter was restarted: all variables are lost.")
    assert "NameError" in str(stateful.run({"code": "x"}).text)
    stateful.close()
    stateful.close()


def test_copies_of_a_stateful_episode_are_independent() -> None:
    one = PythonTool("stateful").open(seed=1)
    one.run({"code": "import random\nx = [random.random()]"})
    for two in (copy.deepcopy(one), pickle.loads(pickle.dumps(one)), one.fork()):
        assert two.run({"code": "x"}).text == one.run({"code": "x"}).text
        two.run({"code": "x.append(1)"})
        assert one.run({"code": "len(x)"}).text == "1"
        two.close()
    one.close()


def test_random_numbers_follow_the_seed_of_the_episode() -> None:
    code = {"code": "import random; random.random()"}

    def episode(seed: int) -> list[ToolResult]:
        tool = PythonTool().open(seed=seed)
        return [tool.run(code), tool.run(code)]

    one, again, other = ([result.text for result in results] for results in (episode(1), episode(1), episode(2)))
    assert one == again != other
    assert one[0] != one[1]


def test_by_name() -> None:
    plain, stateful = make_toolset("python"), make_toolset("python:stateful")
    assert isinstance(plain, PythonTool)
    assert isinstance(stateful, PythonTool)
    assert (plain.stateful, stateful.stateful) == (False, True)
    assert "numpy" in plain.description
    with pytest.raises(BadValue, match="'fresh' or 'stateful'"):
        make_toolset("python:sticky")
    assert plain.run({"kode": "1"}).text == "Error: python: missing argument 'code'. It takes: code."
