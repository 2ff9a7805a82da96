"""Base classes for tools, and `tool`, which converts a plain function to a tool."""

from __future__ import annotations

import copy
import inspect
import json
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar

from palestra.errors import BadValue, InfrastructureError, ToolFailed
from palestra.tools.schema import check_arguments, function_schema, summary
from palestra.types import Observation

__all__ = ["BadCall", "FunctionTool", "Tool", "ToolResult", "Toolset", "tool"]

if TYPE_CHECKING:
    import asyncio  # used only in type hints here; functions import the module when a tool is first called
    from concurrent.futures import Future

T = TypeVar("T")


class BadCall(Exception):
    """Raised by a tool for an invalid call. The message is returned to the model, and the episode continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """Result of one tool call."""

    text: Observation  # returned to the model
    ok: bool = True  # False if the call was invalid or the program it executed failed
    info: Mapping[str, Any] = field(default_factory=dict)  # JSON-serializable details, such as status and seconds


def _has_var_keywords(function: Callable[..., Any]) -> bool:
    """Return whether `function` accepts `**kwargs`; its schema then cannot be derived from its signature."""
    return bool(function.__code__.co_flags & inspect.CO_VARKEYWORDS)


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name)).removesuffix(
        "_tool"
    )


class Toolset:
    """An element of `tools=[...]`: one tool, or several that share a server or a session.

    Every episode calls `open` once and uses the returned toolset until `close`. By default, `open` returns the toolset
    itself, which is suitable for stateless tools. A stateful toolset returns a new toolset for each episode, so that
    `close` affects only that episode and `fork` copies the current state.
    """

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools in this set. They are available before `open`, because the prompt describes them."""
        return ()

    def open(self, *, seed: int) -> Toolset:  # noqa: ARG002  # for subclasses with randomness or state
        """Return the toolset for one episode; `seed` is the episode's seed."""
        return self

    async def aopen(self, *, seed: int) -> Toolset:
        """Like `open`, but without blocking the event loop."""
        if type(self).open is Toolset.open:
            return self
        return await in_thread(self.open, seed=seed)

    def close(self) -> None:
        """Release the episode's resources. Idempotent."""

    async def aclose(self) -> None:
        """Like `close`, but without blocking the event loop."""
        if type(self).close is not Toolset.close:
            await in_thread(self.close)

    def fork(self) -> Toolset:
        """Return an independent copy with the current state; a stateless toolset returns itself."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Toolset:
        memo[id(self)] = copied = self.fork()
        return copied


class Tool(Toolset):
    """A single tool. A subclass defines `call` with typed, named arguments.

    ```
    class Dice(Tool):
        '''Roll a die.'''

        def call(self, sides: int = 6) -> str:
            return str(random.randint(1, sides))
    ```

    The tool's name, its description and the JSON schema of its arguments are taken from the class name, the docstring
    and the type hints of `call`, unless they are set explicitly. An `async def call` runs on one event loop shared by
    all tools, so that connections can be reused. A tool that should run on the caller's loop also defines `acall`.

    `call` returns the result for the model: text, a JSON-serializable value or a ToolResult. BadCall and ordinary
    exceptions become an error message for the model. InfrastructureError, ConnectionError, TimeoutError and MemoryError
    indicate that the tool itself failed: `run` raises InfrastructureError (usually its subclass ToolFailed), and the
    episode is retried.
    """

    name: str = ""
    description: str = ""
    parameters: Mapping[str, Any] = {}
    tag: str | None = None  # `<tag>...</tag>` also calls the tool
    body: str | None = None  # argument that receives the text between the tags or in the fenced block
    fences: tuple[str, ...] = ()  # a fenced code block in one of these languages also calls the tool
    example: Mapping[str, Any] | None = None  # example arguments in the instructions

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__
        if "call" in own:
            if "name" not in own and not any(base.__dict__.get("name") for base in cls.__mro__[1:]):
                cls.name = _snake(cls.__name__)
            if "description" not in own:
                cls.description = summary(cls.__doc__ or own["call"].__doc__)
            if "parameters" not in own and not _has_var_keywords(own["call"]):
                cls.parameters = function_schema(own["call"], cls.__doc__ or "")

    if TYPE_CHECKING:  # each tool has its own signature
        call: Callable[..., Any]
        acall: Callable[..., Coroutine[Any, Any, Any]]
    else:

        def call(self, **arguments: Any) -> Any:  # noqa: ARG002
            """Execute the tool."""
            raise BadValue(f"{type(self).__name__} must define `call`")

        async def acall(self, **arguments: Any) -> Any:
            """Execute the tool for async callers."""
            if inspect.iscoroutinefunction(self.call):
                return await _on_loop(self.call(**arguments))
            return await in_thread(self.call, **arguments)

    @property
    def tools(self) -> Sequence[Tool]:
        return (self,)

    def open(self, *, seed: int) -> Tool:  # noqa: ARG002
        return self

    async def aopen(self, *, seed: int) -> Tool:
        return self if type(self).open is Tool.open else await in_thread(self.open, seed=seed)

    def fork(self) -> Self:
        return self

    @property
    def schema(self) -> dict[str, Any]:
        """Description of the tool in the format that OpenAI's API and chat templates use."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}

    def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Validate the arguments sent by the model and call the tool; raise ToolFailed if the tool itself fails."""
        values, error = check_arguments(arguments, self.parameters)
        if error is not None:
            return ToolResult(text=f"Error: {self.name}: {error}", ok=False, info={"error": "arguments"})
        try:
            value = self.call(**values)
            return as_result(on_tool_loop(value).result() if inspect.isawaitable(value) else value)
        except Exception as err:  # noqa: BLE001  # caused by the model's arguments or by a failure in the tool
            return self._error_result(err)

    async def arun(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Like `run`, but without blocking the event loop."""
        values, error = check_arguments(arguments, self.parameters)
        if error is not None:
            return ToolResult(text=f"Error: {self.name}: {error}", ok=False, info={"error": "arguments"})
        try:
            return as_result(await self.acall(**values))
        except Exception as err:  # noqa: BLE001
            return self._error_result(err)

    def _error_result(self, err: Exception) -> ToolResult:
        if isinstance(err, InfrastructureError):
            raise err
        if isinstance(err, ConnectionError | TimeoutError | MemoryError):
            raise ToolFailed(f"{self.name}: {type(err).__name__}: {err}") from err
        message = str(err) if isinstance(err, BadCall) else f"{type(err).__name__}: {err}"
        return ToolResult(text=f"Error: {message}", ok=False, info={"error": type(err).__name__})


class FunctionTool(Tool):
    """A tool that calls a function with type hints and a docstring."""

    def __init__(self, function: Callable[..., Any], *, name: str | None = None) -> None:
        self.function = function
        self.name = str(name or getattr(function, "__name__", ""))
        if not self.name.isidentifier():
            raise BadValue(f"{function!r} has no valid tool name; pass one with tool(function, name=...)")
        self.description = summary(function.__doc__)
        if not self.description:
            raise BadValue(f"{self.name} needs a docstring, which describes the tool to the model")
        self.parameters = function_schema(function)

    def call(self, **arguments: Any) -> Any:
        return self.function(**arguments)

    async def acall(self, **arguments: Any) -> Any:
        if inspect.iscoroutinefunction(self.function):
            return await _on_loop(self.function(**arguments))
        return await in_thread(self.function, **arguments)


def tool(function: Callable[..., Any], *, name: str | None = None) -> FunctionTool:
    """Convert a function to a tool; can be used as a decorator."""
    return FunctionTool(function, name=name)


def as_result(value: Any) -> ToolResult:
    """Convert a tool's return value to a ToolResult."""
    if isinstance(value, ToolResult):
        return value
    if isinstance(value, str):
        return ToolResult(text=value)
    if (
        isinstance(value, list)
        and value
        and all(isinstance(part, dict) and part.get("type") in _PARTS for part in value)
    ):
        return ToolResult(text=copy.copy(value))
    return ToolResult(text=json.dumps(value, ensure_ascii=False, default=repr))


_PARTS = ("text", "image")
_loop: asyncio.AbstractEventLoop | None = None  # event loop in the thread that runs async tools
_lock = threading.Lock()


def on_tool_loop(work: Awaitable[T]) -> Future[T]:
    """Start `work` on the event loop that async tools share; it has its own thread, so that sync callers can wait."""
    import asyncio

    global _loop
    with _lock:
        if _loop is None or _loop.is_closed():
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="palestra-tools", daemon=True).start()

    async def awaited() -> T:
        return await work

    return asyncio.run_coroutine_threadsafe(awaited(), _loop)


async def in_thread(function: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    """Call `function` in a daemon thread, without blocking the event loop."""
    from palestra.threads import run_in_thread

    return await run_in_thread(function, *args, **kwargs)


async def _on_loop(work: Awaitable[T]) -> T:
    from asyncio import wrap_future

    return await wrap_future(on_tool_loop(work))


def _reset_loop() -> None:
    """Drop the event loop in a forked child, because threads do not survive a fork."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_reset_loop)
