"""Hidden tests as data sets write them -> a list of tests to run.

Read are GEM's columns (`{"inputs": [...], "outputs": [...]}`, with `fn_name` where a function is called, as in TACO,
APPS and CodeContests), lists of cases (`[{"input": ..., "output": ...}]`, as in PrimeIntellect and LiveCodeBench; with
`fn_name`, or `testtype` "functional", a call), assertions (MBPP's list of `assert` lines, or their source in one
string, HumanEval's `check(candidate)` included), and JSON of any of these.
"""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palestra.errors import BadValue
from palestra.parsing import clip

FORMS = (
    '{"inputs": [...], "outputs": [...]}, {"inputs", "outputs", "fn_name"}, [{"input", "output"}, ...], '
    '["assert f(1) == 2", ...], {"asserts": [...], "setup": "import math"}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StdinTest:
    """The program is run with `stdin`; what it prints is compared with `expected`."""

    stdin: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTest:
    """The program's function is called; what it returns is compared with any of `expected`."""

    function: str
    args: tuple[Any, ...]
    expected: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertTest:
    """One statement, after `setup`, that must not raise."""

    source: str
    setup: str = ""


HiddenTest = StdinTest | CallTest | AssertTest


def read_tests(tests: Any, *, function: str | None = None) -> list[HiddenTest]:
    """Every test in `tests`. BadValue where they are in none of the known forms. `function`: the one to call."""
    if isinstance(tests, str):
        try:
            tests = json.loads(tests)
        except (ValueError, RecursionError):
            return _checked(_asserts([tests], "", function))
        if isinstance(tests, str):
            return _checked(_asserts([tests], "", function))
    if isinstance(tests, Mapping):
        return _checked(_from_mapping(tests, function))
    if isinstance(tests, Sequence):
        found: list[HiddenTest] = []
        for case in tests:
            if isinstance(case, HiddenTest):
                found.append(case)
            elif isinstance(case, str):
                found += _asserts([case], "", function)
            elif isinstance(case, Mapping):
                found += _from_case(case, function)
            else:
                raise _unknown(case)
        return _checked(found)
    raise _unknown(tests)


def _checked(found: list[HiddenTest]) -> list[HiddenTest]:
    if not found:
        raise BadValue(f"there is no hidden test; tests are {FORMS}")
    return found


def _from_mapping(tests: Mapping[str, Any], function: str | None) -> list[HiddenTest]:
    if "inputs" in tests and "outputs" in tests:
        inputs, outputs = tests["inputs"], tests["outputs"]
        name = tests.get("fn_name") or function
        if not isinstance(inputs, Sequence) or not isinstance(outputs, Sequence) or len(inputs) != len(outputs):
            raise BadValue("inputs and outputs are lists of the same length")
        if not name:
            return [StdinTest(stdin=_text(i), expected=_text(o)) for i, o in zip(inputs, outputs, strict=True)]
        wrapped = all(isinstance(output, list) and len(output) == 1 for output in outputs)
        return [_call(name, i, o, wrapped=wrapped) for i, o in zip(inputs, outputs, strict=True)]
    for key in ("test_cases", "tests"):
        if key in tests:
            return read_tests(tests[key], function=tests.get("fn_name") or function)
    for key in ("asserts", "test_list"):
        if key in tests:
            lines = [tests[key]] if isinstance(tests[key], str) else list(tests[key])
            setup = tests.get("setup") or tests.get("test_setup_code") or ""
            return _asserts(lines, setup, tests.get("entry_point") or function)
    if "test" in tests:
        return _asserts([tests["test"]], "", tests.get("entry_point") or function)
    return _from_case(tests, function)


def _from_case(case: Mapping[str, Any], function: str | None) -> list[HiddenTest]:
    if "input" not in case or "output" not in case:
        raise _unknown(case)
    metadata = case.get("metadata")
    name = case.get("fn_name") or (metadata.get("func_name") if isinstance(metadata, Mapping) else None) or function
    kind = str(case.get("testtype") or case.get("type") or "")
    if name and kind not in ("stdin", "stdin_stdout"):
        return [_call(name, case["input"], case["output"], wrapped=False)]
    if "function" in kind:
        raise BadValue("a functional test needs the function's name: fn_name, or function=...")
    return [StdinTest(stdin=_text(case["input"]), expected=_text(case["output"]))]


def _call(function: str, given: Any, output: Any, *, wrapped: bool) -> CallTest:
    """Arguments are a list, or text with a JSON value a line; the result may be JSON text, too."""
    if not isinstance(function, str) or not function.isidentifier():
        raise BadValue(f"fn_name is a function's name, got {function!r}")
    if isinstance(given, str):
        args = [_json(line) for line in given.split("\n") if line.strip()]
        expected = [_json(output) if isinstance(output, str) else output]
    else:
        args = list(given) if isinstance(given, Sequence) else [given]
        expected = [output]
    if wrapped:
        expected.append(output[0])  # TACO puts results into a list of their own
    return CallTest(function=function, args=tuple(args), expected=tuple(expected))


def _asserts(sources: Sequence[str], setup: str, function: str | None) -> list[HiddenTest]:
    """One test for every top-level assertion; what stands before them is their set-up."""
    found: list[HiddenTest] = []
    for source in sources:
        try:
            body = ast.parse(source).body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
            raise BadValue(f"hidden tests are Python, or JSON of another form, got {clip(source)!r}: {err}") from err
        before = [setup] if setup else []
        for node in body:
            if isinstance(node, ast.Assert):
                found.append(AssertTest(source=ast.unparse(node), setup="\n".join(before)))
            elif isinstance(node, ast.FunctionDef) and node.name == "check" and len(node.args.args) == 1:
                found += _checks(node, "\n".join(before), function)
            elif not _is_call_of_check(node):
                before.append(ast.unparse(node))
    return found


def _checks(check: ast.FunctionDef, setup: str, function: str | None) -> list[HiddenTest]:
    """HumanEval's: `candidate` stands for the function that was asked for."""
    if not function:
        raise BadValue("check(candidate) needs the candidate's name: entry_point, or function=...")
    named = copy.deepcopy(check)
    candidate = check.args.args[0].arg
    for node in ast.walk(named):
        if isinstance(node, ast.Name) and node.id == candidate:
            node.id = function
    if all(isinstance(node, ast.Assert) or _is_idle(node) for node in named.body):
        asserts = [node for node in named.body if isinstance(node, ast.Assert)]
        return [AssertTest(source=ast.unparse(node), setup=setup) for node in asserts]
    return [AssertTest(source=f"{ast.unparse(named)}\ncheck({function})", setup=setup)]


def _is_idle(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _is_call_of_check(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("check(")


def _text(value: Any) -> str:
    """Text as it is; a list is its lines."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence):
        return "\n".join(_text(line) for line in value)
    return str(value)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _unknown(tests: Any) -> BadValue:
    return BadValue(f"hidden tests are one of {FORMS}, got {clip(repr(tests), 80)}")
