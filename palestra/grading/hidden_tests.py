"""Read hidden tests in the formats that common datasets use. Supported formats:

- GEM's columns `{"inputs": [...], "outputs": [...]}`, with `fn_name` for function calls (TACO, APPS, CodeContests);
- lists of cases `[{"input": ..., "output": ...}]`, with `fn_name` or `testtype` "functional" for function calls
  (PrimeIntellect, LiveCodeBench);
- assertions: a list of `assert` lines (MBPP), or source code in one string, including HumanEval's `check(candidate)`;
- a JSON string that contains any of these.
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

FORMATS = (
    '{"inputs": [...], "outputs": [...]}, {"inputs", "outputs", "fn_name"}, [{"input", "output"}, ...], '
    '["assert f(1) == 2", ...], {"asserts": [...], "setup": "import math"}'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StdinTest:
    """Run the program with `stdin` as its input and compare its output with `expected`."""

    stdin: str
    expected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTest:
    """Call a function in the program; its return value must equal one of `expected`."""

    function: str
    args: tuple[Any, ...]
    expected: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssertTest:
    """Execute a statement after `setup`; it must not raise an exception."""

    source: str
    setup: str = ""


HiddenTest = StdinTest | CallTest | AssertTest


def read_tests(tests: Any, *, function: str | None = None) -> list[HiddenTest]:
    """Parse `tests`; raise BadValue if the format is unknown. `function` is the name of the function to call."""
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
        hidden_tests: list[HiddenTest] = []
        for case in tests:
            if isinstance(case, HiddenTest):
                hidden_tests.append(case)
            elif isinstance(case, str):
                hidden_tests += _asserts([case], "", function)
            elif isinstance(case, Mapping):
                hidden_tests += _from_case(case, function)
            else:
                raise _unknown(case)
        return _checked(hidden_tests)
    raise _unknown(tests)


def _checked(hidden_tests: list[HiddenTest]) -> list[HiddenTest]:
    if not hidden_tests:
        raise BadValue(f"there are no hidden tests; accepted formats: {FORMATS}")
    return hidden_tests


def _from_mapping(tests: Mapping[str, Any], function: str | None) -> list[HiddenTest]:
    if "inputs" in tests and "outputs" in tests:
        inputs, outputs = tests["inputs"], tests["outputs"]
        name = tests.get("fn_name") or function
        if not isinstance(inputs, Sequence) or not isinstance(outputs, Sequence) or len(inputs) != len(outputs):
            raise BadValue("`inputs` and `outputs` must be lists of the same length")
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
        raise BadValue("a functional test needs the name of the function; set `fn_name` or pass function=...")
    return [StdinTest(stdin=_text(case["input"]), expected=_text(case["output"]))]


def _call(function: str, arguments: Any, output: Any, *, wrapped: bool) -> CallTest:
    """Create a CallTest. Arguments are a list, or text with one JSON value per line; `output` may be JSON text."""
    if not isinstance(function, str) or not function.isidentifier():
        raise BadValue(f"`fn_name` must be the name of a function, got {function!r}")
    if isinstance(arguments, str):
        args = [_json(line) for line in arguments.split("\n") if line.strip()]
        expected = [_json(output) if isinstance(output, str) else output]
    else:
        args = list(arguments) if isinstance(arguments, Sequence) else [arguments]
        expected = [output]
    if wrapped:
        expected.append(output[0])  # TACO wraps each result in a list
    return CallTest(function=function, args=tuple(args), expected=tuple(expected))


def _asserts(sources: Sequence[str], setup: str, function: str | None) -> list[HiddenTest]:
    """Create a test for each top-level assertion; the statements before the assertion are its setup."""
    hidden_tests: list[HiddenTest] = []
    for source in sources:
        try:
            body = ast.parse(source).body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as err:
            raise BadValue(f"hidden tests must be Python source or JSON, got {clip(source)!r}: {err}") from err
        preceding = [setup] if setup else []
        for node in body:
            if isinstance(node, ast.Assert):
                hidden_tests.append(AssertTest(source=ast.unparse(node), setup="\n".join(preceding)))
            elif isinstance(node, ast.FunctionDef) and node.name == "check" and len(node.args.args) == 1:
                hidden_tests += _checks(node, "\n".join(preceding), function)
            elif not _is_call_of_check(node):
                preceding.append(ast.unparse(node))
    return hidden_tests


def _checks(check: ast.FunctionDef, setup: str, function: str | None) -> list[HiddenTest]:
    """Read HumanEval's check function, whose argument `candidate` is the function to test."""
    if not function:
        raise BadValue("check(candidate) needs the name of the function; set `entry_point` or pass function=...")
    renamed = copy.deepcopy(check)
    candidate = check.args.args[0].arg
    for node in ast.walk(renamed):
        if isinstance(node, ast.Name) and node.id == candidate:
            node.id = function
    if all(isinstance(node, ast.Assert) or _has_no_effect(node) for node in renamed.body):
        asserts = [node for node in renamed.body if isinstance(node, ast.Assert)]
        return [AssertTest(source=ast.unparse(node), setup=setup) for node in asserts]
    return [AssertTest(source=f"{ast.unparse(renamed)}\ncheck({function})", setup=setup)]


def _has_no_effect(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _is_call_of_check(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith("check(")


def _text(value: Any) -> str:
    """Return text unchanged, or join a list of lines."""
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
    return BadValue(f"hidden tests must have one of the formats {FORMATS}; got {clip(repr(tests), 80)}")
