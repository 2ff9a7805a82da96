"""Tool, the contract every tool keeps: arguments in, a result the model reads out; and tools from plain functions."""

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
from palestra.tools.schema import fitted, schema_of, summary_of
from palestra.types import Observation

__all__ = ["BadCall", "FunctionTool", "Tool", "ToolResult", "Toolset", "tool"]

if TYPE_CHECKING:
    import asyncio  # elsewhere when used: wrappers are imported by many who call no tool
    from concurrent.futures import Future

T = TypeVar("T")


class BadCall(Exception):
    """Raised by a tool for a call the model got wrong; the model reads the message. Not an infrastructure problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What came of one call."""

    text: Observation  # what the model reads
    ok: bool = True  # False: the call was wrong, or the program in it; the model may do better
    info: Mapping[str, Any] = field(default_factory=dict)  # for records: a status, seconds; JSON-able


def _takes_anything(function: Callable[..., Any]) -> bool:
    """`**arguments`: the schema is not in the hints but set on the instance."""
    return bool(function.__code__.co_flags & inspect.CO_VARKEYWORDS)


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name)).removesuffix(
        "_tool"
    )


class Toolset:
    """What `tools=[...]` holds: one tool, or several that share a server or a session.

    Every episode calls `open` once and works with what it returns until `close`. What keeps no state between calls
    returns itself, which is the default. A set with a state per episode returns a fresh set; its `close` ends that
    episode only, and its `fork` is an independent copy in mid-episode.
    """

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools themselves. Known before `open`, so that a model can be told of them."""
        return ()

    def open(self, *, seed: int) -> Toolset:  # noqa: ARG002  # those with chance or state need it
        """The set for one episode; `seed` is the episode's, for tools in which chance plays a part."""
        return self

    async def aopen(self, *, seed: int) -> Toolset:
        """`open`, without blocking the event loop."""
        if type(self).open is Toolset.open:
            return self
        return await in_thread(self.open, seed=seed)

    def close(self) -> None:
        """End what `open` began. May be called twice."""

    async def aclose(self) -> None:
        """`close`, without blocking the event loop."""
        if type(self).close is not Toolset.close:
            await in_thread(self.close)

    def fork(self) -> Toolset:
        """An independent copy in mid-episode; what keeps no state is its own copy."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Toolset:
        memo[id(self)] = twin = self.fork()
        return twin


class Tool(Toolset):
    """One tool: a subclass writes `call`, with typed, named arguments.

    ```
    class Dice(Tool):
        '''Roll a die.'''

        def call(self, sides: int = 6) -> str:
            return str(random.randint(1, sides))
    ```

    Name, description and the JSON schema of the arguments come from the class, its docstring and the hints of `call`,
    unless set. `call` may be `async def` (it runs on one event loop shared by all tools, so that connections can be
    kept); a tool that is better off on the caller's own loop writes `acall` beside it.

    What `call` returns is what the model reads: text, or anything JSON can hold, or a ToolResult. What it raises:
    BadCall and ordinary exceptions become an error that the model reads; InfrastructureError, ConnectionError,
    TimeoutError and MemoryError mean that the tool itself broke (ToolFailed: the episode is retried).
    """

    name: str = ""
    description: str = ""
    parameters: Mapping[str, Any] = {}
    tag: str | None = None  # `<tag>...</tag>` calls it, too; the text between is the argument `body`
    body: str | None = None
    fences: tuple[str, ...] = ()  # a fenced block in one of these languages calls it, too
    example: Mapping[str, Any] | None = None  # arguments shown in the instructions

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = cls.__dict__
        if "call" in own:
            if "name" not in own and not any(base.__dict__.get("name") for base in cls.__mro__[1:]):
                cls.name = _snake(cls.__name__)
            if "description" not in own:
                cls.description = summary_of(cls.__doc__ or own["call"].__doc__)
            if "parameters" not in own and not _takes_anything(own["call"]):
                cls.parameters = schema_of(own["call"], cls.__doc__ or "")

    if TYPE_CHECKING:  # each tool takes arguments of its own
        call: Callable[..., Any]
        acall: Callable[..., Coroutine[Any, Any, Any]]
    else:

        def call(self, **arguments: Any) -> Any:  # noqa: ARG002
            """Do what the tool does."""
            raise BadValue(f"{type(self).__name__} has no `call`: a tool's class writes one")

        async def acall(self, **arguments: Any) -> Any:
            """`call` for async callers."""
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
        """As OpenAI's API and chat templates take it."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}

    def run(self, arguments: Mapping[str, Any]) -> ToolResult:
        """`call` with a model's arguments, checked; whatever it returns or raises as a ToolResult or ToolFailed."""
        values, wrong = fitted(arguments, self.parameters)
        if wrong is not None:
            return ToolResult(text=f"Error: {self.name}: {wrong}", ok=False, info={"error": "arguments"})
        try:
            said = self.call(**values)
            return as_result(on_tool_loop(said).result() if inspect.isawaitable(said) else said)
        except Exception as err:  # noqa: BLE001  # sorted into the model's mistake and ours
            return self._failed(err)

    async def arun(self, arguments: Mapping[str, Any]) -> ToolResult:
        """`run`, without blocking the event loop."""
        values, wrong = fitted(arguments, self.parameters)
        if wrong is not None:
            return ToolResult(text=f"Error: {self.name}: {wrong}", ok=False, info={"error": "arguments"})
        try:
            return as_result(await self.acall(**values))
        except Exception as err:  # noqa: BLE001
            return self._failed(err)

    def _failed(self, err: Exception) -> ToolResult:
        if isinstance(err, InfrastructureError):
            raise err
        if isinstance(err, ConnectionError | TimeoutError | MemoryError):
            raise ToolFailed(f"{self.name}: {type(err).__name__}: {err}") from err
        said = str(err) if isinstance(err, BadCall) else f"{type(err).__name__}: {err}"
        return ToolResult(text=f"Error: {said}", ok=False, info={"error": type(err).__name__})


class FunctionTool(Tool):
    """A plain typed function with a docstring as a tool."""

    def __init__(self, function: Callable[..., Any], *, name: str | None = None) -> None:
        self.function = function
        self.name = str(name or getattr(function, "__name__", ""))
        if not self.name.isidentifier():
            raise BadValue(f"{function!r} has no name a model could call; give one with tool(function, name=...)")
        self.description = summary_of(function.__doc__)
        if not self.description:
            raise BadValue(f"give {self.name} a docstring: it is what the model is told of it")
        self.parameters = schema_of(function)

    def call(self, **arguments: Any) -> Any:
        return self.function(**arguments)

    async def acall(self, **arguments: Any) -> Any:
        if inspect.iscoroutinefunction(self.function):
            return await _on_loop(self.function(**arguments))
        return await in_thread(self.function, **arguments)


def tool(function: Callable[..., Any], *, name: str | None = None) -> FunctionTool:
    """`function` as a tool; works as a decorator, too."""
    return FunctionTool(function, name=name)


def as_result(said: Any) -> ToolResult:
    """What a tool returned, as a ToolResult."""
    if isinstance(said, ToolResult):
        return said
    if isinstance(said, str):
        return ToolResult(text=said)
    if isinstance(said, list) and said and all(isinstance(part, dict) and part.get("type") in _PARTS for part in said):
        return ToolResult(text=copy.copy(said))
    return ToolResult(text=json.dumps(said, ensure_ascii=False, default=repr))


_PARTS = ("text", "image")
_loop: asyncio.AbstractEventLoop | None = None  # the thread's
_lock = threading.Lock()


def on_tool_loop(work: Awaitable[T]) -> Future[T]:
    """Start `work` on the one event loop that async tools share: a thread of its own, so that sync callers can wait."""
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
    """`function`, without blocking the event loop."""
    from asyncio import to_thread

    return await to_thread(function, *args, **kwargs)


async def _on_loop(work: Awaitable[T]) -> T:
    from asyncio import wrap_future

    return await wrap_future(on_tool_loop(work))


def _forget_loop() -> None:
    """A forked child has the object, but not the thread that ran it."""
    global _loop, _lock
    _loop, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_loop)
