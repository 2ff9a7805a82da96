"""Tools as part of an environment: a reply that calls one gets its result, any other reply goes to the task."""

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

PARALLEL = 16  # calls of one turn that are carried out


class Tools(Wrapper):
    """An environment in which the agent has tools.

    `tools` are names ("python", "search", "mcp:server.json"), Tool objects or plain typed functions with a docstring.
    "search" searches the environment's own texts where it brings some along as its attribute `corpus`.
    A reply with a call (`palestra.parsing.first_calls` tells the forms) is a turn of its own: its observation is the
    result, `info["use_tool"]` is set, so that agents show it in a message of role `tool`, and the task does not move.
    The first complete call counts; what stands behind it is cut: `info["parsed_action"]` is what counted,
    `info["cut"]` how many characters did not.

    `max_calls` is the budget of an episode; when it is spent, replies go to the task whatever they hold. Each call
    earns `call_reward`, and `success_reward` or `error_reward` on top by how it went (a penalty is below 0). Results
    are cut to `max_chars`. `instructions=False` leaves it to the agent to tell the model of the tools
    (`info["tools"]`), a text replaces ours. `fences=False`: a fenced block is no call, and never is where the task's
    own answers are fenced blocks. `unclosed=True`: a tag's text may end with the reply, for agents that stop at the
    closing tag.
    """

    shared: ClassVar[frozenset[str]] = frozenset({"_call", "_sets", "_tags", "_fences", "_known", "_schemas"})

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
            raise BadValue("tools is a list; max_calls is 0 or more, or None; max_chars is 100 or more")
        corpus = getattr(env, "corpus", None)
        self._sets: tuple[Toolset, ...] = tuple(make_toolset(item, corpus=corpus) for item in tools)
        self.max_calls = max_calls
        self.call_reward = call_reward
        self.success_reward = success_reward
        self.error_reward = error_reward
        self.max_chars = max_chars
        self.inline = False  # a call may take seconds
        self._told = instructions
        self._use_fences = fences and not getattr(env, "fenced_answers", False)
        self._unclosed = unclosed
        self._known: dict[str, Tool] | None = None
        self._open: list[Toolset] = []  # what this episode works with, from its first call on
        self._used = 0
        self._state = "new"
        worth = [call_reward + success_reward, call_reward + error_reward]
        low, high = env.reward_range
        self.reward_range = (min(low, PARALLEL * min(worth), 0.0), max(high, PARALLEL * max(worth), 0.0))

    # Episodes

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        for opened in self._end():
            opened.close()
        self._learn()
        return self._begun(*self.env.reset(seed=seed, options=options))

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        for opened in self._end():
            await opened.aclose()
        if self._known is None:
            await in_thread(self._learn)
        return self._begun(*await self.env.areset(seed=seed, options=options))

    def step(self, action: str) -> Step:
        span = self._read(action)
        if span is None:
            return self._passed(action, self.env.step(action))
        results: list[ToolResult] = []
        for call in span.calls:
            ready = self._settled(call, len(results))
            if ready is None:
                if not self._open:
                    self._open = [one.open(seed=self._seed) for one in self._sets]
                ready = self._tool(call["name"]).run(call["arguments"])
            results.append(ready)
        return self._answered(action, span, results)

    async def astep(self, action: str) -> Step:
        span = self._read(action)
        if span is None:
            return self._passed(action, await self.env.astep(action))
        ready = [self._settled(call, index) for index, call in enumerate(span.calls)]
        if None in ready and not self._open:
            self._open = [await one.aopen(seed=self._seed) for one in self._sets]

        async def result(call: Mapping[str, Any], ready: ToolResult | None) -> ToolResult:
            return ready if ready is not None else await self._tool(call["name"]).arun(call["arguments"])

        from asyncio import gather

        results = await gather(*map(result, span.calls, ready))
        return self._answered(action, span, results)

    def close(self) -> None:
        for opened in self._end():
            opened.close()
        super().close()

    async def aclose(self) -> None:
        for opened in self._end():
            await opened.aclose()
        await self.env.aclose()

    def _end(self) -> list[Toolset]:
        """What has to be closed, now that the episode is over."""
        ours = [opened for opened in self._open if opened not in self._sets]
        self._open = []
        return ours

    def _learn(self) -> None:
        """Once: which tools there are. A server may have to be asked, so this is not done in the constructor."""
        if self._known is not None:
            return
        known: dict[str, Tool] = {}
        for one in (tool for given in self._sets for tool in given.tools):
            if one.name in known:
                raise BadValue(f"two tools are called {one.name!r}; give one of them another name")
            known[one.name] = one
        every = known.values()
        self._tags = {one.tag: (one.name, one.body) for one in every if one.tag and one.body}
        self._fences = {name: (one.name, one.body) for one in every if one.body for name in one.fences}
        self._schemas = [one.schema for one in every]
        self._text = self._told if isinstance(self._told, str) else ""
        if self._told is True:
            self._text = instructions(list(every), fences=self._use_fences, max_calls=self.max_calls)
        self._known = known

    def _begun(self, observation: Observation, info: dict[str, Any]) -> Reset:
        self._used = 0
        self._state = "running"
        self._seed = int(info.get("seed", 0))
        if self._text:
            observation = _joined([observation, f"\n\n{self._text}"])
        return observation, {**info, **self._counts(), "tools": self._schemas, "use_tool": False}

    # Turns

    def _read(self, action: str) -> CallSpan | None:
        """The calls in a reply; None: it is for the task."""
        if self._state == "new" or self._known is None:
            raise ResetNeeded("call reset() before the first step")
        if self._state == "over":
            raise EpisodeOver("the episode is over; call reset() for the next one")
        if self._spent:
            return None
        return first_calls(
            action,
            names=self._known,
            tags=self._tags,
            fences=self._fences if self._use_fences else {},
            unclosed=self._unclosed,
        )

    @property
    def _spent(self) -> bool:
        return self.max_calls is not None and self._used >= self.max_calls

    def _settled(self, call: Mapping[str, Any], index: int) -> ToolResult | None:
        """The result of a call that is not to be carried out, or None."""
        known = self._known or {}
        if "error" in call:
            return _error(f"{call['error']}. {_HOW}", "malformed")
        if call["name"] not in known:
            from difflib import get_close_matches

            near = get_close_matches(call["name"], known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            return _error(f"there is no tool {call['name'][:40]!r}.{hint} There are: {', '.join(known)}.", "unknown")
        if self.max_calls is not None and self._used + index >= self.max_calls:
            return _error("the budget of tool calls is spent; this call was not carried out.", "budget")
        if index >= PARALLEL:
            return _error(f"at most {PARALLEL} calls are carried out in one turn.", "budget")
        return None

    def _tool(self, name: str) -> Tool:
        return next(one for opened in self._open for one in opened.tools if one.name == name)

    def _passed(self, action: str, step: Step) -> Step:
        if step.done:
            self._state = "over"
        observation = step.observation
        if self._spent and not step.done and self._known and self._would_call(action):
            observation = _joined(["No tool calls are left; this reply went to the task.\n\n", observation])
        return step._replace(observation=observation, info={**step.info, **self._counts(), "use_tool": False})

    def _would_call(self, action: str) -> bool:
        fences = self._fences if self._use_fences else {}
        return first_calls(action, names=self._known or (), tags=self._tags, fences=fences) is not None

    def _answered(self, action: str, span: CallSpan, results: Sequence[ToolResult]) -> Step:
        self._used += len(results)
        reward = sum(self.call_reward + (self.success_reward if one.ok else self.error_reward) for one in results)
        shown = [self._clipped(one.text) for one in results]
        if len(results) > 1:
            names = [call.get("name", "error") for call in span.calls]
            shown = [
                _joined([f"[{i}] {name}:\n", text, "\n"])
                for i, (name, text) in enumerate(zip(names, shown, strict=True), 1)
            ]
        if self._spent:
            shown.append("\nNo tool calls are left: answer now.")
        info = {
            **self._counts(),
            "use_tool": True,
            "tool_calls": [{**call, "ok": one.ok, **one.info} for call, one in zip(span.calls, results, strict=True)],
            "tool_form": span.form,
            "parsed_action": action[: span.end],
            "cut": len(action) - span.end,
        }
        return Step(_joined(shown), float(reward), False, False, info)

    def _clipped(self, text: Observation) -> Observation:
        if not isinstance(text, str) or len(text) <= self.max_chars:
            return text
        half = self.max_chars // 2
        return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"

    def _counts(self) -> dict[str, Any]:
        left = None if self.max_calls is None else max(0, self.max_calls - self._used)
        return {"tool_calls_used": self._used, "tool_calls_left": left}


_HOW = 'Write calls as the instructions show, for example <tool_call>{"name": "...", "arguments": {...}}</tool_call>'


def _error(text: str, kind: str) -> ToolResult:
    return ToolResult(text=f"Error: {text}", ok=False, info={"error": kind})


def _joined(pieces: Sequence[Observation]) -> Observation:
    """Texts and pictures one after the other; a plain string where there are no pictures."""
    if all(isinstance(piece, str) for piece in pieces):
        return "".join(piece for piece in pieces if isinstance(piece, str))
    parts: list[Part] = []
    for piece in pieces:
        parts += [{"type": "text", "text": piece}] if isinstance(piece, str) else piece
    return parts
