"""Compare function calls with accepted calls by the rules of the Berkeley Function Calling Leaderboard (BFCL).

Calls are written as Python (`[f(x=1), g(y="a")]`) or as JSON tool calls (`{"name": "f", "arguments": {"x": 1}}`). A
call matches if it names the function, has all required arguments and no unknown ones, and each value has the type in
the function's description and is one of the accepted values. String comparison ignores case, spaces and the characters
`,./-_*^`. An argument may be omitted if "" is one of its accepted values. Calls may be in any order.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from typing import Any

from palestra.grading.base import Grade
from palestra.parsing import tool_calls

Call = tuple[str, dict[str, Any]]  # name and arguments

_FENCE = re.compile(r"```[\w-]*\n?(.*?)```", re.S)
_IGNORED = re.compile(r"[ \,\.\/\-\_\*\^]")
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "float": (float, int),
    "number": (float, int),
    "boolean": (bool,),
    "array": (list,),
    "tuple": (list,),
    "dict": (dict,),
    "object": (dict,),
}


def read_calls(reply: str) -> list[Call] | None:
    """Return the calls in a reply, or None if it contains no readable call."""
    blocks = _FENCE.findall(reply)
    for text in (*reversed(blocks), reply, *reversed(reply.strip().splitlines()[-1:])):
        calls = _python_calls(text.strip())
        if calls:
            return calls
    parsed = [(str(call["name"]), dict(call["arguments"])) for call in tool_calls(reply)]
    return parsed or None


def _python_calls(text: str) -> list[Call] | None:
    try:
        nodes: list[Any] = [node.value for node in ast.parse(text).body if isinstance(node, ast.Expr)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if len(nodes) == 1 and isinstance(nodes[0], ast.List | ast.Tuple):
        nodes = list(nodes[0].elts)
    calls = []
    for node in nodes:
        if not isinstance(node, ast.Call) or node.args or any(keyword.arg is None for keyword in node.keywords):
            return None  # positional arguments cannot be matched with names
        try:
            arguments = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            return None
        calls.append((ast.unparse(node.func), arguments))
    return calls


def grade_calls(
    calls: Sequence[Call], accepted: Sequence[Mapping[str, Mapping[str, Sequence[Any]]]], functions: Sequence[Any]
) -> Grade:
    """Grade calls against BFCL's `ground_truth`, a list of `{name: {argument: accepted values}}`."""
    if len(calls) != len(accepted):
        return _wrong(f"{len(calls)} calls instead of {len(accepted)}")
    descriptions = {function["name"]: function for function in functions}
    left = list(calls)
    for answer in accepted:
        [(name, arguments)] = answer.items()
        reasons = [_why_not(call, name, arguments, descriptions.get(name, {})) for call in left]
        if None not in reasons:
            return _wrong("; ".join(str(reason) for reason in dict.fromkeys(reasons)))
        del left[reasons.index(None)]
    return Grade(correct=True, score=1.0, why=f"{len(calls)} calls match")


def _wrong(why: str) -> Grade:
    return Grade(correct=False, score=0.0, why=why)


def _why_not(
    call: Call, name: str, accepted: Mapping[str, Sequence[Any]], description: Mapping[str, Any]
) -> str | None:
    """Return why a call does not match, or None if it does."""
    called, arguments = call
    if called.replace(".", "_") != name.replace(".", "_"):
        return f"{called} is not {name}"
    parameters = description.get("parameters", {})
    properties = parameters.get("properties", {})
    for required in parameters.get("required", ()):
        if required not in arguments:
            return f"{name} needs the argument {required}"
    for argument, value in arguments.items():
        if argument not in properties or argument not in accepted:
            return f"{name} has no argument {argument}"
        value = _without_tuples(value)
        if not _has_type(value, properties[argument], accepted[argument]):
            return f"{argument} has the wrong type {type(value).__name__}"
        if not any(_equal(value, one) for one in accepted[argument]):
            return f"{argument} must not be {value!r}"
    for argument, values in accepted.items():
        if argument not in arguments and "" not in values:
            return f"{name} needs the argument {argument}"
    return None


def _has_type(value: Any, parameter: Mapping[str, Any], accepted: Sequence[Any]) -> bool:
    wanted = _TYPES.get(str(parameter.get("type", "any")))
    if wanted is None or any(type(value) is type(one) and one != "" for one in accepted):
        return True  # accept the type of an accepted value that differs from the declared one, such as a variable name
    return type(value) in wanted  # `isinstance` would accept a boolean as an integer


def _equal(value: Any, accepted: Any) -> bool:
    """Compare a value with an accepted one; fields of an accepted dictionary are lists of accepted values."""
    if isinstance(value, str) and isinstance(accepted, str):
        return _standard(value) == _standard(accepted)
    if isinstance(value, list) and isinstance(accepted, list | tuple):
        return len(value) == len(accepted) and all(map(_equal, value, accepted))
    if isinstance(value, dict) and isinstance(accepted, Mapping):
        known = all(
            key in accepted and any(_equal(one, other) for other in _options(accepted[key]))
            for key, one in value.items()
        )
        return known and all(key in value or "" in _options(values) for key, values in accepted.items())
    if isinstance(value, bool) or isinstance(accepted, bool):
        return value is accepted
    return bool(value == accepted)


def _options(values: Any) -> Sequence[Any]:
    return values if isinstance(values, list) else [values]


def _standard(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')


def _without_tuples(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_without_tuples(one) for one in value]
    if isinstance(value, dict):
        return {key: _without_tuples(one) for key, one in value.items()}
    return value
