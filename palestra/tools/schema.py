"""Derive JSON schemas from type hints and docstrings, and validate the arguments of tool calls against them."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from palestra.errors import BadValue

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
    list: {"type": "array"},
    tuple: {"type": "array"},
    dict: {"type": "object"},
}
_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
_PARAMETER = re.compile(r"^\s*(?::param\s+)?[`*]{0,2}(\w+)[`*]{0,2}(?:\s*\([^)]*\))?\s*:\s+(.+)$")
_BOOLEANS = {"true": True, "false": False}


def function_schema(function: Callable[..., Any], docstring: str = "") -> dict[str, Any]:
    """Return the JSON schema for the arguments, from type hints, defaults and `name: text` lines in the docstring."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as err:
        raise BadValue(f"the type hints of {_name(function)} cannot be read: {err}") from err
    descriptions = _descriptions(f"{inspect.cleandoc(docstring)}\n{inspect.getdoc(function) or ''}")
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise BadValue(f"a tool must have named arguments only; {_name(function)} has {parameter}")
        if name not in hints:
            raise BadValue(f"{_name(function)}: argument {name} needs a type hint, which is shown to the model")
        properties[name] = _hint_schema(hints[name], f"{_name(function)}: {name}")
        if name in descriptions:
            properties[name].setdefault("description", descriptions[name])
        if parameter.default is parameter.empty:
            required.append(name)
        elif isinstance(parameter.default, str | int | float | bool):
            properties[name]["default"] = parameter.default
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def summary(docstring: str | None) -> str:
    """Return the part of a docstring that precedes the parameter descriptions."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    selected: list[str] = []
    for line in lines:
        if re.fullmatch(r"\s*(Args|Arguments|Parameters|Returns|Raises|Yields)\s*:?\s*", line) or (
            _PARAMETER.match(line) and (selected[-1:] == [""] or not selected)
        ):
            break
        selected.append(line)
    return "\n".join(selected).strip()


def _descriptions(docstring: str) -> dict[str, str]:
    return {match[1]: match[2].strip() for line in docstring.splitlines() if (match := _PARAMETER.match(line))}


def _hint_schema(hint: Any, where: str) -> dict[str, Any]:
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        inner = _hint_schema(args[0], where)
        texts = [extra for extra in args[1:] if isinstance(extra, str)]
        return {**inner, "description": " ".join(texts)} if texts else inner
    if origin is Literal:
        return {"enum": list(args)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_hint_schema(arg, where) for arg in args]}
    if origin in (list, tuple, set, frozenset) or getattr(origin, "__name__", "") in ("Sequence", "Iterable"):
        items = [arg for arg in args if arg is not Ellipsis]
        return {"type": "array", "items": _hint_schema(items[0], where)} if items else {"type": "array"}
    if origin is dict or getattr(origin, "__name__", "") == "Mapping":
        return {"type": "object", "additionalProperties": _hint_schema(args[1], where)}
    raise BadValue(f"{where} has type {hint!r}; the arguments of a tool must be JSON values")


def check_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """Convert the arguments to the types in the schema; return them and an error message for the model, or None.

    Numbers and booleans written as strings are converted; no other conversion is attempted.
    """
    properties: Mapping[str, Any] = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in arguments]
    if missing:
        return {}, f"missing {_listed(missing)}. {_signature(schema)}"
    unknown = [name for name in arguments if name not in properties]
    if unknown and schema.get("additionalProperties", True) is False:
        return {}, f"unknown {_listed(unknown)}. {_signature(schema)}"
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        values[name], error = _convert(value, properties.get(name, {}), name)
        if error is not None:
            return {}, f"{error}. {_signature(schema)}"
    return values, None


def _convert(value: Any, schema: Mapping[str, Any], name: str) -> tuple[Any, str | None]:
    if "anyOf" in schema:
        results = [_convert(value, option, name) for option in schema["anyOf"]]
        exact = [result for result in results if result[1] is None and type(result[0]) is type(value)]
        valid = exact or [result for result in results if result[1] is None]
        return (
            valid[0] if valid else (value, f"{name} must be {' or '.join(_kind(option) for option in schema['anyOf'])}")
        )
    if "enum" in schema:
        return (value, None) if value in schema["enum"] else (value, f"{name} must be one of {schema['enum']}")
    kind = schema.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        return value, None
    if kind in ("integer", "number", "boolean") and isinstance(value, str):
        value = _parse(value, kind)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind in ("integer", "number")):
        return value, f"{name} must be {_kind(schema)}"
    if kind == "array" and "items" in schema:
        items: Any = value
        converted = [_convert(item, schema["items"], f"{name}[{index}]") for index, item in enumerate(items)]
        return [item for item, _ in converted], next((error for _, error in converted if error is not None), None)
    return value, None


def _parse(text: str, kind: str) -> Any:
    try:
        return (
            _BOOLEANS.get(text.lower(), text) if kind == "boolean" else int(text) if kind == "integer" else float(text)
        )
    except ValueError:
        return text


def _kind(schema: Mapping[str, Any]) -> str:
    kind = str(schema.get("type", "another value"))
    return {"integer": "an integer", "array": "a list", "object": "an object", "null": "null"}.get(kind, f"a {kind}")


def _signature(schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    names = [name if name in required else f"{name} (optional)" for name in schema.get("properties", {})]
    return f"It takes: {', '.join(names)}." if names else "It takes no arguments."


def _listed(names: list[str]) -> str:
    return f"argument{'s' if len(names) > 1 else ''} {', '.join(repr(name) for name in names)}"


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", repr(function))
