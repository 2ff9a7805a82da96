"""A chat model as an agent: observations become messages, messages become exact prompt ids, replies become actions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from palestra.agents.base import Agent, AgentSession
from palestra.agents.context import Context, FullHistory, Summary, settled
from palestra.agents.pictures import has_pictures, to_openai
from palestra.agents.reflection import Reflection
from palestra.agents.render import Renderer
from palestra.agents.styles import Reading, Style, as_schemas, as_style, told
from palestra.agents.thread import AnyThread, Prompt, Thread, Transcript
from palestra.core import Env
from palestra.engines.base import Completion, Engine, Sampling
from palestra.errors import BadValue, ContextFull
from palestra.parsing import after_thinking, as_tool_call, tool_calls, written_calls
from palestra.seeding import child_seed
from palestra.types import Action, Call, Message, Observation, text_of

_LEAST = 16  # tokens a reply is worth asking for


class ChatAgent(Agent):
    """Plays with a chat model.

    Prompts come from the model's own template and are exact: each one is the one before, the sampled ids and the new
    message's ids. Where it cannot be (`Call.split`), a new token sample begins.

    `style`: "plain", "react" or "tools". `context`: what stays of a long conversation (see `palestra.agents.context`).
    `reflect`: when to look back first. `tools`: JSON schemas for style "tools"; by default those in the first
    `info["tools"]`. `template_options`: variables of the template, such as `enable_thinking`. `max_context`: a smaller
    window than the engine's.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        temperature: float = 1.0,
        max_tokens: int = 512,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        stop: str | Sequence[str] = (),
        stop_ids: Sequence[int] = (),
        system: str | None = None,
        style: str | Style = "plain",
        context: Context | str | None = None,
        reflect: Reflection | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        template_options: Mapping[str, Any] | None = None,
        max_context: int | None = None,
    ) -> None:
        self.engine = engine
        self.style = as_style(style)
        if tools and not self.style.takes_tools:
            raise BadValue('tools are called in style "tools": Chat(engine, style="tools", tools=...)')
        self.sampling = Sampling(
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            stop_ids=tuple(stop_ids),
        )
        if not (context is None or context == "everything" or isinstance(context, Context)):
            raise BadValue(f"context is Everything(), LastTurns(n), TokenBudget(n) or Summary(...), got {context!r}")
        if reflect is not None and not isinstance(reflect, Reflection):
            raise BadValue(f"reflect is a Reflect(...) or None, got {reflect!r}")
        self.reflect = reflect
        self.system = system
        self.tools = as_schemas(tools)
        self.window: int | None = None
        self.context: Context = FullHistory()
        self._asked_for = context, max_context
        self._options = dict(template_options or {})
        self._renderers: dict[str, Renderer] = {}
        self._ready = False
        if engine.tokenizer is not None:  # known from the start: mistakes are refused here, not in the first episode
            self._settle()

    async def ready(self) -> None:
        """Let the engine find out what it can do, once."""
        if not self._ready:
            await self.engine.ready()
            self._settle()
            self._ready = True

    def _settle(self) -> None:
        context, max_context = self._asked_for
        engine = self.engine
        self.window = min((size for size in (engine.max_context, max_context) if size is not None), default=None)
        count = None
        if engine.tokenizer is not None:
            codec = self.renderer(self.tools).codec

            def count(text: str) -> int:
                return len(codec.encode(text))

        self.context = settled(context, window=self.window, reply=self.sampling.max_tokens, count=count)

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        del env  # all a model may know is in the observations
        return _ChatSession(self, seed)

    def renderer(self, tools: Sequence[Mapping[str, Any]]) -> Renderer:
        """The engine's template with these tools; made once for each set of them."""
        key = json.dumps(list(tools), sort_keys=True)
        if key not in self._renderers:
            if self.engine.tokenizer is None:
                raise BadValue("this engine takes messages; it has no template")
            self._renderers[key] = Renderer(self.engine.tokenizer, tools=tools, options=self._options)
        return self._renderers[key]


@dataclass(frozen=True, slots=True)
class _Turn:
    messages: list[Message]  # from a reply to what the next reply answers
    tokens: int


class _ChatSession(AgentSession):
    def __init__(self, chat: ChatAgent, seed: int | None) -> None:
        self._chat = chat
        self._seed = seed
        self._asked = 0
        self._acted = 0
        self._task: list[Message] = []  # stays, whatever is cut
        self._summary: Message | None = None  # the task's last message with a summary behind it, where there is one
        self._turns: list[_Turn] = []
        self._sampling = chat.sampling
        self._schemas: list[dict[str, Any]] = []
        self._thread: AnyThread | None = None
        self._closed = False

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        calls: list[Call] = []
        thread = self._thread
        if thread is None:
            await self._chat.ready()
            thread = self._begin(info)
            prompt = self._first(thread, observation)
        else:
            message = self._observed(thread, observation, info)
            reflect = self._chat.reflect
            if reflect is not None and reflect.due(self._acted, info) and self._has_room(thread, reflect):
                prompt = await self._fitted(thread, _with_text(message, reflect.instruction), calls)
                await self._ask(thread, prompt, "reflect", calls, reflect.max_tokens)
                prompt = thread.next(thread.message("user", reflect.resume))
                last = self._turns[-1]
                tokens = last.tokens + len(prompt.ids) - thread.tokens
                self._turns[-1] = _Turn([*last.messages, *prompt.messages], tokens)
            else:
                prompt = await self._fitted(thread, message, calls)
        reading = await self._ask(thread, prompt, "act", calls)
        self._acted += 1
        return Action(text=reading.action, calls=tuple(calls), tool_calls=reading.tool_calls)

    def next_prompt(self, observation: Observation, info: dict[str, Any]) -> list[int]:
        if self._thread is None:
            return []
        ids = self._thread.next(self._observed(self._thread, observation, info)).ids
        return ids if self._chat.window is None or len(ids) <= self._chat.window else []

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._chat.engine.forget(self)

    # Messages

    def _begin(self, info: dict[str, Any]) -> AnyThread:
        chat = self._chat
        if chat.style.takes_tools:
            self._schemas = chat.tools or as_schemas(info.get("tools", ()))
        if chat.engine.tokenizer is None:
            self._thread = Transcript()
            return self._thread
        renderer = chat.renderer(self._schemas)
        end = renderer.codec.special.get(renderer.end)
        if end is not None and end not in self._sampling.stop_ids:  # a turn ends where the template ends it
            self._sampling = replace(self._sampling, stop_ids=(*self._sampling.stop_ids, end))
        self._thread = Thread(renderer)
        return self._thread

    def _first(self, thread: AnyThread, observation: Observation) -> Prompt:
        observation = self._checked(observation)
        texts = [text for text in (self._chat.system, self._chat.style.instruction) if text]
        if self._schemas and not thread.takes_tools:
            texts.append(told(self._schemas))
        if texts and thread.takes_system:
            self._task.append(thread.message("system", "\n\n".join(texts)))
        elif texts:
            observation = "\n\n".join([*texts, text_of(observation)])
        self._task.append(thread.message("user", observation))
        return thread.open(self._task)

    def _observed(self, thread: AnyThread, observation: Observation, info: dict[str, Any]) -> Message:
        observation = self._checked(observation)
        if info.get("use_tool") or info.get("role") == "tool":
            return thread.answer(observation)
        return thread.message("user", observation)

    def _checked(self, observation: Observation) -> Observation:
        if isinstance(observation, str):
            return observation
        if not has_pictures(observation):
            return text_of(observation)
        if self._chat.engine.tokenizer is not None:
            raise BadValue(
                f"{type(self._chat.engine).__name__} takes token ids, which carry no pictures; use an engine that "
                "takes messages (palestra.engines.openai with a vision model), or an environment in words"
            )
        return list(observation)

    # What the model still sees

    async def _fitted(self, thread: AnyThread, message: Message, calls: list[Call]) -> Prompt:
        """The prompt after `message`, cut as the context policy says."""
        prompt = thread.next(message)
        policy = self._chat.context
        turns = [*self._turns, _Turn(prompt.messages, max(0, len(prompt.ids) - thread.tokens))]
        kept = policy.keep([turn.tokens for turn in turns], len(prompt.ids))
        if kept < len(turns) and isinstance(policy, Summary):
            await self._summarise(thread, policy, message, calls)
            turns = turns[-kept:]
            prompt = thread.open(self._seen(turns), split="context")
        while kept < len(turns):  # more than once where words take more tokens than the model had needed for them
            turns = turns[-kept:]
            prompt = thread.open(self._seen(turns), split="context")
            kept = policy.keep([turn.tokens for turn in turns], len(prompt.ids))
        self._turns = turns
        return prompt

    def _seen(self, turns: list[_Turn]) -> list[Message]:
        task = self._task if self._summary is None else [*self._task[:-1], self._summary]
        return [*task, *(message for turn in turns for message in turn.messages)]

    async def _summarise(self, thread: AnyThread, policy: Summary, message: Message, calls: list[Call]) -> None:
        """Ask for a summary where the conversation stands, and put it behind the task."""
        prompt = thread.next(_with_text(message, policy.instruction))
        added, turns, window = prompt.messages, self._turns, self._chat.window
        while window is not None and len(prompt.ids) + policy.max_tokens > window and turns:
            turns = turns[1:]  # what does not fit cannot be summarised; the rest can
            prompt = thread.open([*self._seen(turns), *added], split="context")
        if window is not None and len(prompt.ids) + _LEAST > window:
            return  # the task and the last turn alone fill the window
        said = await self._ask(thread, prompt, "summary", calls, policy.max_tokens)
        note = thread.message("user", f"Summary of what has happened so far:\n{after_thinking(said.action)}")
        self._summary = _with_text(self._task[-1], str(note["content"]))

    def _has_room(self, thread: AnyThread, reflect: Reflection) -> bool:
        window = self._chat.window
        return window is None or thread.tokens + 2 * self._sampling.max_tokens + reflect.max_tokens < window

    # The engine

    async def _ask(
        self, thread: AnyThread, prompt: Prompt, kind: str, calls: list[Call], max_tokens: int | None = None
    ) -> Reading:
        """Send `prompt`, note the call, read the reply."""
        engine = self._chat.engine
        sampling = self._sampling_for(len(prompt.ids), max_tokens)
        thread.send(prompt)
        if isinstance(thread, Transcript):
            shown: list[Message] | None = thread.messages
            completion = await engine.chat(to_openai(thread.messages), sampling, tools=self._schemas)
        else:
            shown = None
            completion = await engine.generate(prompt.ids, sampling, conversation=self)
        reading = self._reading(thread, completion) if kind == "act" else Reading(action=completion.text)
        split = thread.record(completion, reading.tool_calls)
        calls.append(
            Call(
                prompt_ids=thread.prompt_ids,
                ids=completion.ids,
                logprobs=completion.logprobs,
                finish=completion.finish,
                version=completion.version,
                kind=kind,
                split=split,
                prompt=shown,
                usage=completion.usage,
            )
        )
        return reading

    def _reading(self, thread: AnyThread, completion: Completion) -> Reading:
        style, text = self._chat.style, completion.text
        if style.takes_tools and isinstance(thread, Thread) and not completion.tool_calls:
            # Mistral writes its calls behind a special token, which an engine may have left out of the text.
            special = thread.codec.special_ids
            ids = completion.ids[:-1] if completion.ids and completion.ids[-1] in special else completion.ids
            if not special.isdisjoint(ids):
                text = thread.codec.decode(ids)
        reading = style.read(text, completion.tool_calls)
        if reading.action is text:
            reading = replace(reading, action=completion.text)
        calls = [{"name": call["name"], "arguments": call["arguments"]} for call in reading.tool_calls]
        unread = [call for call in completion.tool_calls if as_tool_call(dict(call)) is None]
        if unread or (calls and tool_calls(reading.action) != calls):
            # The environment reads text, so calls that a server took out of it are written into it again.
            said = written_calls([*calls, *(dict(call.get("function") or call) for call in unread)])
            reading = replace(reading, action=f"{reading.action}\n{said}".lstrip("\n"))
        return reading

    def _sampling_for(self, used: int, max_tokens: int | None) -> Sampling:
        """How to sample the next reply: a seed of its own, and no longer than the window allows."""
        sampling, window = self._sampling, self._chat.window
        limit = sampling.max_tokens if max_tokens is None else max_tokens
        if window is not None and used + limit > window:
            if window - used < min(limit, _LEAST):
                raise ContextFull(
                    f"a prompt of {used} tokens fills the model's window of {window}. Shorten the episode, or let the "
                    "agent forget: Chat(..., context=TokenBudget())"
                )
            limit = window - used
        if self._seed is None:
            return sampling if limit == sampling.max_tokens else replace(sampling, max_tokens=limit)
        seed = child_seed(self._seed, self._asked)
        self._asked += 1
        return replace(sampling, max_tokens=limit, seed=seed)


def _with_text(message: Message, text: str) -> Message:
    """The message with a paragraph more."""
    content = message["content"]
    more: Any = (
        f"{content}\n\n{text}" if isinstance(content, str) else [*content, {"type": "text", "text": f"\n\n{text}"}]
    )
    return {**message, "content": more}
