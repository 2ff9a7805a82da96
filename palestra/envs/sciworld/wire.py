"""A Java process -> method calls in it: the client's side of Py4J's protocol, over one socket.

Py4J's own client opens sockets for whatever thread calls, frees objects from the garbage collector's thread and logs to
the root logger when a process dies. Here one connection belongs to one caller, objects are freed when told, and every
failure is one exception: `Lost` when the process cannot be spoken to any more, `Thrown` when Java threw.
"""

from __future__ import annotations

import re
import socket
from typing import NamedTuple

Value = str | int | float | bool | None

_ESCAPED = re.compile(r"\\(.)", re.S)
_PLAIN = {"n": "\n", "r": "\r"}


class Ref(NamedTuple):
    """An object that lives in the Java process."""

    id: str


class Lost(Exception):
    """The process is gone, or does not answer."""


class Thrown(Exception):
    """Java code threw; the message is the exception's own."""


class Wire:
    """Not thread-safe: the engine that owns it holds a lock."""

    def __init__(self, port: int, token: str, *, timeout: float) -> None:
        try:
            self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        except OSError as err:
            raise Lost(f"no connection to the Java process: {err}") from err
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # a call is one small packet each way
        self._stream = self._socket.makefile("rb")
        self._send(f"A\n{token}\n")

    def patience(self, seconds: float) -> None:
        """How long a call may take before the process counts as lost."""
        self._socket.settimeout(seconds)

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def fileno(self) -> int:
        return self._socket.fileno()

    def new(self, name: str, *args: Value | Ref) -> Ref:
        """Construct an object of the class `name`."""
        return _ref(self._send(f"i\n{name}\n{_encoded(args)}e\n"))

    def call(self, target: Ref | str, method: str, *args: Value | Ref) -> Value | Ref:
        """Call a method of an object, or a static one where `target` is a class's name."""
        place = target.id if isinstance(target, Ref) else f"z:{target}"
        return self._send(f"c\n{place}\n{method}\n{_encoded(args)}e\n")

    def text(self, target: Ref | str, method: str, *args: Value | Ref) -> str:
        """`call` where Java returns a string."""
        return str(self.call(target, method, *args))

    def ref(self, target: Ref | str, method: str, *args: Value | Ref) -> Ref:
        """`call` where Java returns an object; it stays until it is freed."""
        return _ref(self.call(target, method, *args))

    def free(self, ref: Ref) -> None:
        self._send(f"m\nd\n{ref.id}\ne\n")

    def _send(self, command: str) -> Value | Ref:
        try:
            self._socket.sendall(command.encode("utf-8", "replace"))  # a lone surrogate has no encoding
            answer = self._stream.readline()
        except (OSError, ValueError) as err:  # ValueError: closed by another thread
            raise Lost(f"the Java process does not answer: {err}") from err
        if not answer.endswith(b"\n"):
            raise Lost("the Java process closed the connection")
        return self._decoded(answer.decode("utf-8")[:-1])

    def _decoded(self, answer: str) -> Value | Ref:
        status, kind, rest = answer[1:2], answer[2:3], answer[3:]
        if status != "y":
            if kind == "r":
                error = Ref(rest)
                message = self.text(error, "toString")
                self.free(error)
                raise Thrown(message)
            raise Thrown(_unescaped(rest) or "an error without a message")
        if kind == "s":
            return _unescaped(rest)
        if kind in ("i", "L"):
            return int(rest)
        if kind == "d":
            return float(rest)
        if kind == "b":
            return rest.lower() == "true"
        return Ref(rest) if kind in tuple("rlthag") else None  # an object, list, array, set, map or iterator


def _encoded(args: tuple[Value | Ref, ...]) -> str:
    return "".join(f"{_argument(value)}\n" for value in args)


def _argument(value: Value | Ref) -> str:
    if value is None:
        return "n"
    if isinstance(value, Ref):
        return f"r{value.id}"
    if isinstance(value, bool):
        return f"b{str(value).lower()}"
    if isinstance(value, int):
        return f"i{value}" if -(2**31) <= value < 2**31 else f"L{value}"
    if isinstance(value, float):
        return f"d{value!r}"
    return "s" + value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: _PLAIN.get(match[1], match[1]), text) if "\\" in text else text


def _ref(value: Value | Ref) -> Ref:
    if not isinstance(value, Ref):
        raise Thrown(f"an object was expected, and Java returned {value!r}")
    return value
