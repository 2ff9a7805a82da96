"""The Python tool: what the model reads, and what lives on between calls."""

from __future__ import annotations

import asyncio
import copy
import pickle

import pytest

from palestra.errors import BadValue
from palestra.tools import ToolResult, toolset
from palestra.tools.python import PythonTool
from palestra.tools.sandbox import Limits


def said(tool: PythonTool, code: str) -> str:
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
def test_what_the_model_reads(code: str, text: str) -> None:
    assert said(PythonTool(), code) == text


def test_tracebacks_show_the_programs_own_lines() -> None:
    code = "import json\ndef load(text):\n    return json.loads(text)\nload('{')"
    text = said(PythonTool(), code)
    assert "line 3, in load\n    return json.loads(text)" in text
    assert "decoder.py" not in text
    assert text.splitlines()[-1].startswith("json.decoder.JSONDecodeError: Expecting property name")
    deep = said(PythonTool(), "def f(n):\n    return f(n + 1)\nf(0)")
    assert len(deep.splitlines()) < 25
    assert deep.endswith("RecursionError: maximum recursion depth exceeded")
    chained = said(PythonTool(), "try:\n    1/0\nexcept ZeroDivisionError as err:\n    raise ValueError('x') from err")
    assert "direct cause" in chained
    assert said(PythonTool(), "x = = 1").splitlines()[-1] == "SyntaxError: invalid syntax"


def test_limits_are_named() -> None:
    short = PythonTool(limits=Limits(wall=0.3))
    assert said(short, "while True: pass") == "The program was stopped: it ran longer than 0.3 seconds."
    tool = PythonTool(limits=Limits(memory=64 << 20, output=100))
    assert said(tool, "x = bytearray(10**9)").endswith("it needed more than 64 MB of memory.")
    assert said(tool, "print('x' * 1000)").endswith("it printed more than 100 bytes; the rest is not shown.")
    result = short.run({"code": "while True: pass"})
    assert (result.ok, result.info["status"], result.info["limit"]) == (False, "limit", "time")


def test_every_call_starts_anew_unless_asked_otherwise() -> None:
    fresh, kept = PythonTool().open(seed=1), PythonTool(stateful=True).open(seed=1)
    for tool in (fresh, kept):
        tool.run({"code": "x = 5"})
    assert "NameError" in str(fresh.run({"code": "x"}).text)
    assert kept.run({"code": "x"}).text == "5"
    assert asyncio.run(kept.arun({"code": "x + 1"})).text == "6"
    gone = str(kept.run({"code": "import os; os._exit(1)"}).text)
    assert gone.endswith("The interpreter was started anew: all variables are gone.")
    assert "NameError" in str(kept.run({"code": "x"}).text)
    kept.close()
    kept.close()


def test_copies_of_a_stateful_episode_go_their_own_ways() -> None:
    one = PythonTool("stateful").open(seed=1)
    one.run({"code": "import random\nx = [random.random()]"})
    for two in (copy.deepcopy(one), pickle.loads(pickle.dumps(one)), one.fork()):
        assert two.run({"code": "x"}).text == one.run({"code": "x"}).text
        two.run({"code": "x.append(1)"})
        assert one.run({"code": "len(x)"}).text == "1"
        two.close()
    one.close()


def test_chance_follows_the_episode() -> None:
    code = {"code": "import random; random.random()"}

    def episode(seed: int) -> list[ToolResult]:
        tool = PythonTool().open(seed=seed)
        return [tool.run(code), tool.run(code)]

    one, again, other = ([result.text for result in results] for results in (episode(1), episode(1), episode(2)))
    assert one == again != other
    assert one[0] != one[1]


def test_by_name() -> None:
    plain, stateful = toolset("python"), toolset("python:stateful")
    assert isinstance(plain, PythonTool)
    assert isinstance(stateful, PythonTool)
    assert (plain.stateful, stateful.stateful) == (False, True)
    assert "numpy" in plain.description
    with pytest.raises(BadValue, match="'python' or 'python:stateful'"):
        toolset("python:sticky")
    assert plain.run({"kode": "1"}).text == "Error: python: missing argument 'code'. It takes: code."
