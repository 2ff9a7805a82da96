"""Add tools to an environment: execute the tool calls in a reply, and pass replies without calls to the task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from palestra.core import Env, Reset, Wrapper
from palestra.errors import BadValue, EpisodeOver, ResetNeeded
from palestra.parsing import CallSpan, first_calls
from palestra.tools import Tool, ToolResult, Toolset, make_toolset
from palestra.tools.base import in_thread
from palestra.tools.instructions import instructions
from palestra.types import Observation, Part, Step

MAX_PARALLEL = 16  # maximum number of calls that are executed in one turn


class Tools(Wrapper):
    """Let the agent call tools while it works on its task.

    A reply with a tool call (see `palestra.parsing.first_calls` for the formats) takes a separate turn: the observation
    is the result of the call, the state of the task does not change, and `info["use_tool"]` is set, so that agents put
    the result in a message with role `tool`. The first complete call is executed; in formats with several calls per
    turn, so are the calls that directly follow it. `info["parsed_action"]` is the reply up to the end of these calls,
    and `info["cut"]` is the number of characters after them.

    Args:
        tools: names ("python", "search", "mcp:server.json"), Tool objects, or typed functions with a docstring.
            "search" and "browser" use the environment's `corpus` attribute if it has one.
        max_calls: maximum number of calls per episode; after that, every reply is passed to the task.
        call_reward: reward for each call; negative for a penalty.
        success_reward: additional reward for each successful call.
        error_reward: additional reward for each failed call.
        max_chars: maximum number of characters in a result.
        instructions: whether the prompt describes the tools, or a text that replaces the description. With False, the
            agent has to describe the tools to the model (`info["tools"]`).
        fences: whether a fenced code block calls a tool; ignored if the task itself expects fenced code blocks.
        unclosed: accept a call without a closing tag, for agents that stop generating at the closing tag.
    """

    shared: ClassVar[frozenset[str]] = frozenset({"_call", "_sets", "_tags", "_fences", "_by_name", "_schemas"})

    def __init__(
        self,
        env: Env,
        tools: Iterable[str | Toolset | Callable[..., Any]],
        *,
        max_calls: int | None = None,
        call_reward: float = 0.0,
        success_reward: float = 0.0,
        error_reward: float = 0.0,
        max_chars: int = 8_000,
        instructions: bool | str = True,
        fences: bool = True,
        unclosed: bool = False,
    ) -> None:
        super().__init__(env)
        if isinstance(tools, str) or (max_calls is not None and max_calls < 0) or max_chars < 100:
            raise BadValue("`tools` must be a list, `max_calls` at least 0 or None, and `max_chars` at least 100")
        corpus = getattr(env, "corpus", None)
        self._sets: tuple[Toolset, ...] = tuple(make_toolset(item, corpus=corpus) for item in tools)
        self.max_calls = max_calls
        self.call_reward = call_reward
        self.success_reward = success_reward
        self.error_reward = error_reward
        self.max_chars = max_chars
        self.inline = False  # a tool call may take seconds
        self._instructions = instructions
        self._use_fences = fences and not getattr(env, "fenced_answers", False)
        self._unclosed = unclosed
        self._by_name: dict[str, Tool] | None = None
        self._open: list[Toolset] = []  # this episode's toolsets, opened at its first call
        self._used = 0
        self._state = "new"
        rewards = [call_reward + success_reward, call_reward + error_reward]
        low, high = env.reward_range
        self.reward_range = (min(low, MAX_PARALLEL * min(rewards), 0.0), max(high, MAX_PARALLEL * max(rewards), 0.0))

    # Episodes

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        for opened in self._take_open():
            opened.close()
        self._load_tools()
        return self._start(*self.env.reset(seed=seed, options=options))

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        for opened in self._take_open():
            await opened.aclose()
        if self._by_name is None:
            await in_thread(self._load_tools)
        return self._start(*await self.env.areset(seed=seed, options=options))

    def step(self, action: str) -> Step:
        span = self._read(action)
        if span is None:
            return self._task_step(action, self.env.step(action))
        results: list[ToolResult] = []
        for call in span.calls:
            ready = self._check_call(call, len(results))
            if ready is None:
                if not self._open:
                    self._open = [one.open(seed=self._seed) for one in self._sets]
                ready = self._tool(call["name"]).run(call["arguments"])
            results.append(ready)
        return self._tool_step(action, span, results)

    async def astep(self, action: str) -> Step:
        span = self._read(action)
        if span is None:
            return self._task_step(action, await self.env.astep(action))
        ready = [self._check_call(call, index) for index, call in enumerate(span.calls)]
        if None in ready and not self._open:
            self._open = [await one.aopen(seed=self._seed) for one in self._sets]

        async def result(call: Mapping[str, Any], ready: ToolResult | None) -> ToolResult:
            return ready if ready is not None else await self._tool(call["name"]).arun(call["arguments"])

        from asyncio import gather

        results = await gather(*map(result, span.calls, ready))
        return self._tool_step(action, span, results)

    def close(self) -> None:
        for opened in self._take_open():
            opened.close()
        super().close()

    async def aclose(self) -> None:
        for opened in self._take_open():
            await opened.aclose()
        await self.env.aclose()

    def _take_open(self) -> list[Toolset]:
        """Return the episode's open toolsets, which the caller must close, and mark them as closed."""
        toolsets = [opened for opened in self._open if opened not in self._sets]
        self._open = []
        return toolsets

    def _load_tools(self) -> None:
        """Load the tools on first use. The constructor does not load them, because this may contact a server."""
        if self._by_name is not None:
            return
        by_name: dict[str, Tool] = {}
        for tool in (tool for toolset in self._sets for tool in toolset.tools):
            if tool.name in by_name:
                raise BadValue(f"two tools have the name {tool.name!r}; rename one of them")
            by_name[tool.name] = tool
        every = by_name.values()
        self._tags = {one.tag: (one.name, one.body) for one in every if one.tag and one.body}
        self._fences = {name: (one.name, one.body) for one in every if one.body for name in one.fences}
        self._schemas = [one.schema for one in every]
        self._text = self._instructions if isinstance(self._instructions, str) else ""
        if self._instructions is True:
            self._text = instructions(list(every), fences=self._use_fences, max_calls=self.max_calls)
        self._by_name = by_name

    def _start(self, observation: Observation, info: dict[str, Any]) -> Reset:
        self._used = 0
        self._state = "running"
        self._seed = int(info.get("seed", 0))
        if self._text:
            observation = _join([observation, f"\n\n{self._text}"])
        about = {"tools": self._schemas, "tools_text": self._text, "use_tool": False}
        return observation, {**info, **self._counts(), **about}

    # Turns

    def expert_action(self) -> str | None:
        """Return a call of the Python tool if the task's expert can write a program, and otherwise the expert's action.

        After the first call, the expert answers.
        """
        callable_by_tag = self._by_name is not None and "python" in self._tags
        code = self.env.expert_code() if callable_by_tag and not self._used and not self._spent else None
        return self.env.expert_action() if code is None else f"<python>{code}</python>"

    def can_read(self, action: str) -> bool:
        return self._read(action) is not None or self.env.can_read(action)

    def _read(self, action: str) -> CallSpan | None:
        """Return the calls in a reply, or None if the reply is passed to the task."""
        if self._state == "new" or self._by_name is None:
            raise ResetNeeded("call reset() before the first step")
        if self._state == "over":
            raise EpisodeOver("the episode is over; call reset() to start the next one")
        if self._spent:
            return None
        return first_calls(
            action,
            names=self._by_name,
            tags=self._tags,
            fences=self._fences if self._use_fences else {},
            unclosed=self._unclosed,
        )

    @property
    def _spent(self) -> bool:
        return self.max_calls is not None and self._used >= self.max_calls

    def _check_call(self, call: Mapping[str, Any], index: int) -> ToolResult | None:
        """Return an error result if the call must not be executed, else None."""
        tools = self._by_name or {}
        if "error" in call:
            return _error(f"{call['error']}. {_HOW}", "malformed")
        if call["name"] not in tools:
            from difflib import get_close_matches

            close = get_close_matches(call["name"], tools, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            return _error(f"no tool {call['name'][:40]!r}.{hint} The tools are {', '.join(tools)}.", "unknown")
        if self.max_calls is not None and self._used + index >= self.max_calls:
            return _error("no tool calls are left in this episode; this call was not executed.", "budget")
        if index >= MAX_PARALLEL:
            return _error(f"at most {MAX_PARALLEL} calls are executed per turn.", "budget")
        return None

    def _tool(self, name: str) -> Tool:
        return next(one for opened in self._open for one in opened.tools if one.name == name)

    def _task_step(self, action: str, step: Step) -> Step:
        if step.done:
            self._state = "over"
        observation = step.observation
        if self._spent and not step.done and self._by_name and self._would_call(action):
            observation = _join(["No tool calls are left; this reply was passed to the task.\n\n", observation])
        return step._replace(observation=observation, info={**step.info, **self._counts(), "use_tool": False})

    def _would_call(self, action: str) -> bool:
        fences = self._fences if self._use_fences else {}
        return first_calls(action, names=self._by_name or (), tags=self._tags, fences=fences) is not None

    def _tool_step(self, action: str, span: CallSpan, results: Sequence[ToolResult]) -> Step:
        self._used += len(results)
        reward = sum(self.call_reward + (self.success_reward if one.ok else self.error_reward) for one in results)
        texts = [self._shorten(one.text) for one in results]
        if len(results) > 1:
            names = [call.get("name", "error") for call in span.calls]
            texts = [
                _join([f"[{i}] {name}:\n", text, "\n"])
                for i, (name, text) in enumerate(zip(names, texts, strict=True), 1)
            ]
        if self._spent:
            texts.append("\nNo tool calls are left. Give your answer now.")
        info = {
            **self._counts(),
            "use_tool": True,
            "tool_calls": [{**call, "ok": one.ok, **one.info} for call, one in zip(span.calls, results, strict=True)],
            "tool_form": span.form,
            "parsed_action": action[: span.end],
            "cut": len(action) - span.end,
        }
        return Step(_join(texts), float(reward), False, False, info)

    def _shorten(self, text: Observation) -> Observation:
        if not isinstance(text, str) or len(text) <= self.max_chars:
            return text
        half = self.max_chars // 2
        return f"{text[:half]}\n[... {len(text) - 2 * half} characters omitted ...]\n{text[-half:]}"

    def _counts(self) -> dict[str, Any]:
        left = None if self.max_calls is None else max(0, self.max_calls - self._used)
        return {"tool_calls_used": self._used, "tool_calls_left": left}


_HOW = 'Write calls as the instructions show, for example <tool_call>{"name": "...", "arguments": {...}}</tool_call>'


def _error(text: str, kind: str) -> ToolResult:
    return ToolResult(text=f"Error: {text}", ok=False, info={"error": kind})


def _join(pieces: Sequence[Observation]) -> Observation:
    """Concatenate texts and images; the result is a plain string if there are no images."""
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(piece for piece in pieces if isinstance(piece, str))
    parts: list[Part] = []
    for piece in pieces:
        parts += [{"type": "text", "text": piece}] if isinstance(piece, str) else piece
    return parts
