"""Programs for the sandbox: call a submission's functions, or run a test that calls them from another process.

Values leave the process as JSON, with tags for types that JSON lacks. An object of any other class is replaced by the
name of its class, so that a submission cannot return an object with its own `__eq__`. The expected results of tests are
never in the same process as the submission, except for tests that use the submission's classes.
"""

from __future__ import annotations

import builtins
import json
import os
import socket
import struct
import sys
from types import ModuleType
from typing import Any

RESULT = 200  # descriptor for the result; programs do not use numbers this high
LINK = 4  # descriptor of the socket between a test and the submission
MAX_MESSAGE = 1 << 26  # bytes
NOT_PLAIN = 77  # exit code of a test whose arguments cannot be sent to another process
_LENGTH = struct.Struct("<I")


class NotPlain(Exception):
    """A value that is not plain data."""


def call_submission(source: str, names: dict[str, list[str]]) -> None:
    """Run the submission, call its functions as described by the JSON in standard input, and write the values."""
    test = json.loads(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))
    _discard_output()
    space = _load(source, names)
    _finish([test["key"], _values(space, test)])


def serve_submission(source: str, names: dict[str, list[str]]) -> None:
    """Run the submission, and call its functions when the test at the other end of the link requests it."""
    link = socket.socket(fileno=os.dup(LINK))
    os.close(LINK)
    _discard_output()
    space: dict[str, Any] = {}
    failure: BaseException | None = None
    try:
        space = _load(source, names)
    except BaseException as err:  # noqa: BLE001  # reported when the test calls a function
        failure = err
    while (request := _receive(link)) is not None:
        try:
            if failure is not None:
                raise failure
            args = [_decoded(value) for value in request["args"]]
            kwargs = {name: _decoded(value) for name, value in request["kwargs"].items()}
            value = encoded(_function(space, request["function"])(*args, **kwargs))
            reply = {"value": value, "args": [encoded(arg) for arg in args]}
        except BaseException as err:  # noqa: BLE001  # the test decides what an exception means
            reply = {"error": [type(err).__name__, str(err)[:1000]]}
        _send(link, reply)


def run_remote_test() -> None:
    """Run the test from standard input; it calls the submission's functions over the link."""
    test = json.loads(sys.stdin.buffer.read().decode("utf-8", "surrogatepass"))
    link = socket.socket(fileno=LINK)
    _discard_output()
    space = _main_module().__dict__
    for name in test["functions"]:
        space[name] = RemoteFunction(link, name)
    sys.set_int_max_str_digits(0)
    exec(compile(test["program"], "test", "exec", dont_inherit=True), space)  # noqa: S102
    _finish([test["key"], None])


class RemoteFunction:
    """A submission's function, which runs in another process. Arguments and results are plain data."""

    def __init__(self, link: socket.socket, name: str) -> None:
        self._link = link
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            plain = [encoded(arg, strict=True) for arg in args]
            named = {name: encoded(arg, strict=True) for name, arg in kwargs.items()}
        except NotPlain:
            os._exit(NOT_PLAIN)
        _send(self._link, {"function": self.__name__, "args": plain, "kwargs": named})
        reply = _receive(self._link)
        if reply is None:
            raise EOFError("the program ended during the test")
        if "error" in reply:
            kind, message = reply["error"]
            error = getattr(builtins, str(kind), None)
            if isinstance(error, type) and issubclass(error, Exception):
                raise error(message)
            raise RuntimeError(f"{kind}: {message}")
        for arg, before, after in zip(args, plain, reply["args"], strict=True):
            if before != after:
                _change(arg, _decoded(after))
        return _decoded(reply["value"])


def _change(arg: Any, value: Any) -> None:
    """Repeat a change that the submission made to an argument."""
    if type(arg) is list and type(value) is list:
        arg[:] = value
    elif type(arg) is type(value) and type(arg) in (dict, set):
        arg.clear()
        arg.update(value)


class Opaque:
    """An object of another class. It is equal only to itself."""


def _discard_output() -> None:
    """Reserve standard output for the result, and discard the program's own output."""
    os.dup2(1, RESULT, inheritable=False)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def _finish(result: Any) -> None:
    data = memoryview(json.dumps(result).encode())
    while data:
        data = data[os.write(RESULT, data) :]
    os._exit(0)


def _send(link: socket.socket, message: Any) -> None:
    data = json.dumps(message).encode()
    link.sendall(_LENGTH.pack(len(data)) + data)


def _receive(link: socket.socket) -> Any:
    """Return the next message, or None if the other process has ended."""
    header = _receive_exactly(link, _LENGTH.size)
    if len(header) < _LENGTH.size:
        return None
    size = _LENGTH.unpack(header)[0]
    if size > MAX_MESSAGE:
        raise ValueError(f"a message of {size} bytes exceeds the limit of {MAX_MESSAGE} bytes")
    data = _receive_exactly(link, size)
    return json.loads(data) if len(data) == size else None


def _receive_exactly(link: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = link.recv(min(size - len(parts), 1 << 20))
        if not part:
            break
        parts += part
    return bytes(parts)


def _main_module() -> ModuleType:
    module = ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins
    sys.modules["__main__"] = module
    return module


def _load(source: str, names: dict[str, list[str]]) -> dict[str, Any]:
    """Execute the submission, with names that solutions often use without importing them, as most online judges do."""
    space = _main_module().__dict__
    sys.set_int_max_str_digits(0)
    for module, wanted in names.items():
        if any(name in source for name in wanted):
            loaded = __import__(module)
            space.setdefault(module, loaded)
            for name in wanted:
                if hasattr(loaded, name):
                    space.setdefault(name, getattr(loaded, name))
    exec(compile(source, "main.py", "exec", dont_inherit=True), space)  # noqa: S102  # the purpose of the sandbox
    return space


def _function(space: dict[str, Any], name: str) -> Any:
    function = space.get(name)
    if function is None and "Solution" in space:
        function = getattr(space["Solution"](), name, None)
    if function is None:
        raise NameError(f"the program has no function {name!r}")
    return function


def _values(space: dict[str, Any], test: dict[str, Any]) -> Any:
    if "function" in test:
        return encoded(_function(space, test["function"])(*test["args"]))
    exec(compile(test["setup"], "setup", "exec", dont_inherit=True), space)  # noqa: S102
    for statement in test["run"]:
        exec(compile(statement, "test", "exec", dont_inherit=True), space)  # noqa: S102
    return [encoded(eval(compile(value, "test", "eval", dont_inherit=True), space)) for value in test["values"]]  # noqa: S307


def encoded(value: Any, depth: int = 0, *, strict: bool = False) -> Any:
    """Convert a value to JSON data, with tags; `strict` raises NotPlain for values that the conversion would change."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if depth > 150:
        if strict:
            raise NotPlain
        return {"other": "nesting too deep"}
    if kind is list:
        return [encoded(item, depth + 1, strict=strict) for item in value]
    if kind in (tuple, set, frozenset):
        return {kind.__name__: [encoded(item, depth + 1, strict=strict) for item in value]}
    if kind is dict:
        return {"dict": [[encoded(part, depth + 1, strict=strict) for part in pair] for pair in value.items()]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if strict:
        raise NotPlain
    for scalar in (int, float, str):
        if isinstance(value, scalar):
            return scalar(value)
    for base in (list, tuple, set, frozenset, dict):
        if isinstance(value, base):
            return encoded(base(value), depth + 1)
    if kind.__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        return encoded(value.tolist(), depth + 1)
    if hasattr(value, "__next__") or (kind.__module__, kind.__name__) in _ITERABLE:
        return [encoded(item, depth + 1) for item in value]
    return {"other": kind.__name__}


_ITERABLE = (
    ("builtins", "range"),
    ("builtins", "dict_keys"),
    ("builtins", "dict_values"),
    ("builtins", "dict_items"),
    ("collections", "deque"),
)


def _decoded(value: Any) -> Any:
    """Convert tagged JSON data back to the value."""
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "dict":
        return {_decoded(key): _decoded(item) for key, item in content}
    if tag in ("tuple", "set", "frozenset"):
        return {"tuple": tuple, "set": set, "frozenset": frozenset}[tag](_decoded(item) for item in content)
    if tag == "bytes":
        return bytes.fromhex(content)
    return complex(*content) if tag == "complex" else Opaque()
