"""Chat-model agent: turns observations into exact prompt ids and replies into actions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from palestra.agents.base import Agent, AgentSession
from palestra.agents.context import Context, FullHistory, LatestObservation, Summary, resolve_context
from palestra.agents.conversation import Conversation, MessageConversation, Prompt, TokenConversation
from palestra.agents.images import has_images, to_openai
from palestra.agents.reflection import Reflection
from palestra.agents.render import Renderer
from palestra.agents.styles import ParsedReply, Style, ToolFormat, ToolStyle, as_schemas, as_style, tools_text
from palestra.core import Env
from palestra.engines.base import Completion, Engine, Sampling
from palestra.errors import BadValue, ContextFull
from palestra.parsing import after_thinking, as_tool_call, tool_calls, written_calls
from palestra.seeding import child_seed
from palestra.types import Action, Call, Message, Observation, text_of

_MIN_REPLY = 16  # tokens; if less room is left in the context, no reply is requested


class ChatAgent(Agent):
    """Agent that acts with a chat model.

    Prompts use the model's chat template. Each prompt consists of the previous prompt's ids, the sampled ids and the
    ids of the new message. If that is impossible, a new token sample starts, and `Call.split` contains the reason.

    Args:
        style: "plain", "react" or "tools", or a Style.
        context: policy for long conversations (see `palestra.agents.context`); None keeps all turns.
        reflect: when to reflect before acting; None means never.
        tools: JSON schemas for the "tools" style (default: `info["tools"]` from the first observation).
        template_options: variables for the chat template, such as `enable_thinking`.
        keep_thinking: whether to extend the previous prompt even if the template would remove earlier thoughts.
        max_context: maximum context length in tokens (default: the engine's).

    The other arguments are sampling parameters and the `system` prompt.
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
        tempered_logprobs: bool = False,
        system: str | None = None,
        style: str | Style = "plain",
        context: Context | str | None = None,
        reflect: Reflection | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        template_options: Mapping[str, Any] | None = None,
        keep_thinking: bool = False,
        max_context: int | None = None,
    ) -> None:
        self.engine = engine
        self.style = as_style(style)
        if tools and not self.style.takes_tools:
            raise BadValue('tools require style="tools"; use ChatAgent(engine, style="tools", tools=...)')
        self.sampling = Sampling(
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            min_p=min_p,
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            stop_ids=tuple(stop_ids),
            tempered_logprobs=tempered_logprobs,
        )
        if not (context is None or context == "full" or isinstance(context, Context)):
            policies = "FullHistory(), LatestObservation(), LastTurns(n), TokenBudget(n) or Summary(...)"
            raise BadValue(f"context must be {policies}, got {context!r}")
        if reflect is not None and not isinstance(reflect, Reflection):
            raise BadValue(f"reflect must be a Reflection(...) or None, got {reflect!r}")
        self.reflect = reflect
        self.system = system
        self.keep_thinking = keep_thinking
        self.tools = as_schemas(tools)
        self.window: int | None = None
        self.context: Context = FullHistory()
        self._requested = context, max_context
        self._options = dict(template_options or {})
        self._renderers: dict[str, Renderer] = {}
        self._with_end: tuple[Sampling, int, Sampling] | None = None  # cached result of `sampling_for`
        self._ready = False
        if engine.tokenizer is not None:  # report invalid options now, not in the first episode
            self._resolve()

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings; everything else depends on the engine."""
        derived = {"window", "context", "_renderers", "_with_end", "_ready"}
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _renderers={}, _with_end=None, _ready=False)
        self._resolve()

    async def ready(self) -> None:
        """Detect the engine's capabilities. Only the first call has an effect."""
        if not self._ready:
            await self.engine.ready()
            self._resolve()
            self._ready = True

    def _resolve(self) -> None:
        context, max_context = self._requested
        engine = self.engine
        self.window = min((size for size in (engine.max_context, max_context) if size is not None), default=None)
        count = None
        if engine.tokenizer is not None:
            codec = self.renderer(self.tools).codec

            def count(text: str) -> int:
                return len(codec.encode(text))

        self.context = resolve_context(context, window=self.window, reply=self.sampling.max_tokens, count=count)

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        del env  # the model reads only observations
        return _ChatSession(self, seed)

    def renderer(self, tools: Sequence[Mapping[str, Any]]) -> Renderer:
        """Return the renderer for these tools, created once per set of tools."""
        key = json.dumps(list(tools), sort_keys=True) if tools else ""
        if key not in self._renderers:
            if self.engine.tokenizer is None:
                raise BadValue("this engine takes chat messages and has no template")
            self._renderers[key] = Renderer(self.engine.tokenizer, tools=tools, options=self._options)
        return self._renderers[key]

    def sampling_for(self, renderer: Renderer) -> Sampling:
        """Return the sampling parameters, with the template's end-of-turn token as a stop token."""
        end = renderer.codec.special.get(renderer.end)
        if end is None or end in self.sampling.stop_ids:
            return self.sampling
        if self._with_end is None or self._with_end[:2] != (self.sampling, end):
            stopped = replace(self.sampling, stop_ids=(*self.sampling.stop_ids, end))
            self._with_end = self.sampling, end, stopped
        return self._with_end[2]


@dataclass(slots=True)  # not frozen, because frozen dataclasses are slow to create
class _Turn:
    messages: list[Message]  # a reply and the observation that follows it
    tokens: int


class _ChatSession(AgentSession):
    def __init__(self, chat: ChatAgent, seed: int | None) -> None:
        self._chat = chat
        self._seed = seed
        self._sampled = 0
        self._actions = 0
        self._task: list[Message] = []  # messages that every context policy keeps
        self._summary: Message | None = None  # the task's last message, with the summary appended if there is one
        self._turns: list[_Turn] = []
        self._sampling = chat.sampling
        self._schemas: list[dict[str, Any]] = []
        self._tools_text = ""  # the environment's description of its tools, which the schemas replace
        self._conversation: Conversation | None = None
        self._closed = False

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        calls: list[Call] = []
        conversation = self._conversation
        if conversation is None:
            await self._chat.ready()
            conversation = self._open_conversation(info)
            prompt = self._first_prompt(conversation, observation)
        elif isinstance(self._chat.context, LatestObservation):
            prompt = self._first_prompt(conversation, observation)
        else:
            message = self._observation_message(conversation, observation, info)
            reflect = self._chat.reflect
            if reflect is not None and reflect.due(self._actions, info) and self._has_room(conversation, reflect):
                prompt = await self._fit_context(conversation, _with_text(message, reflect.instruction), calls)
                await self._sample(conversation, prompt, "reflect", calls, reflect.max_tokens)
                prompt = conversation.next(conversation.message("user", reflect.resume))
                last = self._turns[-1]
                tokens = last.tokens + len(prompt.ids) - conversation.tokens
                self._turns[-1] = _Turn([*last.messages, *prompt.messages], tokens)
            else:
                prompt = await self._fit_context(conversation, message, calls)
        parsed = await self._sample(conversation, prompt, "act", calls)
        self._actions += 1
        return Action(text=parsed.action, calls=tuple(calls), tool_calls=parsed.tool_calls)

    def next_prompt(self, observation: Observation, info: dict[str, Any]) -> list[int]:
        if self._conversation is None:
            return []
        if isinstance(self._chat.context, LatestObservation):
            ids = self._first_prompt(self._conversation, observation).ids
        else:
            ids = self._conversation.next(self._observation_message(self._conversation, observation, info)).ids
        # Cut a prompt that exceeds the context, leaving room for the token at which a critic evaluates it.
        return ids if self._chat.window is None else ids[: self._chat.window - 1]

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._chat.engine.forget(self)

    # Messages

    def _open_conversation(self, info: dict[str, Any]) -> Conversation:
        chat = self._chat
        if chat.style.takes_tools:
            self._schemas = chat.tools or as_schemas(info.get("tools", ()))
            self._tools_text = str(info.get("tools_text", "")) if self._schemas else ""
        if chat.engine.tokenizer is None:
            self._conversation = MessageConversation()
            return self._conversation
        renderer = chat.renderer(self._schemas if _tool_format(chat.style) == "auto" else ())
        self._sampling = chat.sampling_for(renderer)
        self._conversation = TokenConversation(renderer, keep_thinking=chat.keep_thinking)
        return self._conversation

    def _first_prompt(self, conversation: Conversation, observation: Observation) -> Prompt:
        observation = self._check_observation(observation)
        if self._tools_text and isinstance(observation, str):
            observation = observation.replace(f"\n\n{self._tools_text}", "", 1)
        self._task = []
        texts = [text for text in (self._chat.system, self._chat.style.instruction) if text]
        if self._schemas and not (conversation.takes_tools and _tool_format(self._chat.style) == "auto"):
            texts.append(tools_text(self._schemas, _tool_format(self._chat.style)))
        if texts and conversation.takes_system:
            self._task.append(conversation.message("system", "\n\n".join(texts)))
        elif texts:
            observation = "\n\n".join([*texts, text_of(observation)])
        self._task.append(conversation.message("user", observation))
        return conversation.open(self._task, split="context")

    def _observation_message(
        self, conversation: Conversation, observation: Observation, info: dict[str, Any]
    ) -> Message:
        observation = self._check_observation(observation)
        if info.get("use_tool") or info.get("role") == "tool":
            return conversation.tool_result(observation)
        return conversation.message("user", observation)

    def _check_observation(self, observation: Observation) -> Observation:
        if isinstance(observation, str):
            return observation
        if not has_images(observation):
            return text_of(observation)
        if self._chat.engine.tokenizer is not None:
            raise BadValue(
                f"{type(self._chat.engine).__name__} takes token ids, which cannot represent images; use OpenAIEngine "
                "without a tokenizer and with a vision model, or a text environment"
            )
        return list(observation)

    # Context policy

    async def _fit_context(self, conversation: Conversation, message: Message, calls: list[Call]) -> Prompt:
        """Return the prompt that ends with `message`, truncated by the context policy if necessary."""
        prompt = conversation.next(message)
        policy = self._chat.context
        if isinstance(policy, FullHistory):  # keeps all turns
            self._turns.append(_Turn(prompt.messages, max(0, len(prompt.ids) - conversation.tokens)))
            return prompt
        turns = [*self._turns, _Turn(prompt.messages, max(0, len(prompt.ids) - conversation.tokens))]
        keep = policy.keep([turn.tokens for turn in turns], len(prompt.ids))
        if keep < len(turns) and isinstance(policy, Summary):
            await self._summarize(conversation, policy, message, calls)
            turns = turns[-keep:]
            prompt = conversation.open(self._visible_messages(turns), split="context")
        while keep < len(turns):  # try again if the re-tokenized text is longer than the sampled ids
            turns = turns[-keep:]
            prompt = conversation.open(self._visible_messages(turns), split="context")
            keep = policy.keep([turn.tokens for turn in turns], len(prompt.ids))
        self._turns = turns
        return prompt

    def _visible_messages(self, turns: list[_Turn]) -> list[Message]:
        task = self._task if self._summary is None else [*self._task[:-1], self._summary]
        return [*task, *(message for turn in turns for message in turn.messages)]

    async def _summarize(
        self, conversation: Conversation, policy: Summary, message: Message, calls: list[Call]
    ) -> None:
        """Sample a summary of the conversation so far and append it to the task."""
        prompt = conversation.next(_with_text(message, policy.instruction))
        added, turns, window = prompt.messages, self._turns, self._chat.window
        while window is not None and len(prompt.ids) + policy.max_tokens > window and turns:
            turns = turns[1:]  # summarize only the turns that fit
            prompt = conversation.open([*self._visible_messages(turns), *added], split="context")
        if window is not None and len(prompt.ids) + _MIN_REPLY > window:
            return  # the task and the last turn leave no room for a summary
        summary = await self._sample(conversation, prompt, "summary", calls, policy.max_tokens)
        note = conversation.message("user", f"Summary of what has happened so far:\n{after_thinking(summary.action)}")
        self._summary = _with_text(self._task[-1], str(note["content"]))

    def _has_room(self, conversation: Conversation, reflect: Reflection) -> bool:
        window = self._chat.window
        return window is None or conversation.tokens + 2 * self._sampling.max_tokens + reflect.max_tokens < window

    # Sampling

    async def _sample(
        self, conversation: Conversation, prompt: Prompt, kind: str, calls: list[Call], max_tokens: int | None = None
    ) -> ParsedReply:
        """Send `prompt`, record the call, and parse the reply."""
        engine = self._chat.engine
        sampling = self._sampling_for(len(prompt.ids), max_tokens)
        conversation.send(prompt)
        if isinstance(conversation, MessageConversation):
            shown: list[Message] | None = conversation.messages
            tools = self._schemas if _tool_format(self._chat.style) == "auto" else ()
            completion = await engine.chat(to_openai(conversation.messages), sampling, tools=tools)
        else:
            shown = None
            completion = await engine.generate(prompt.ids, sampling, conversation=self)
        parsed = self._parse(conversation, completion) if kind == "act" else ParsedReply(action=completion.text)
        split = conversation.record(completion, parsed.tool_calls)
        calls.append(
            Call(
                prompt_ids=conversation.prompt_ids,
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
        return parsed

    def _parse(self, conversation: Conversation, completion: Completion) -> ParsedReply:
        style, text = self._chat.style, completion.text
        if style.takes_tools and isinstance(conversation, TokenConversation) and not completion.tool_calls:
            # Mistral models write tool calls after a special token, which the engine may have omitted from the text.
            special = conversation.codec.special_ids
            ids = completion.ids[:-1] if completion.ids and completion.ids[-1] in special else completion.ids
            if not special.isdisjoint(ids):
                text = conversation.codec.decode(ids)
        parsed = style.read(text, completion.tool_calls)
        if parsed.action is text and text is not completion.text:
            parsed = replace(parsed, action=completion.text)
        if not (parsed.tool_calls or completion.tool_calls):
            return parsed
        calls = [{"name": call["name"], "arguments": call["arguments"]} for call in parsed.tool_calls]
        malformed = [call for call in completion.tool_calls if as_tool_call(dict(call)) is None]
        if malformed or (calls and tool_calls(parsed.action) != calls):
            # The environment reads text, so add the tool calls that the server removed from it.
            written = written_calls([*calls, *(dict(call.get("function") or call) for call in malformed)])
            parsed = replace(parsed, action=f"{parsed.action}\n{written}".lstrip("\n"))
        return parsed

    def _sampling_for(self, used: int, max_tokens: int | None) -> Sampling:
        """Return the sampling parameters for the next reply, with its own seed and a length that fits the context."""
        sampling, window = self._sampling, self._chat.window
        limit = sampling.max_tokens if max_tokens is None else max_tokens
        if window is not None and used + limit > window:
            if window - used < min(limit, _MIN_REPLY):
                raise ContextFull(
                    f"a prompt of {used} tokens leaves no room for a reply in the context of {window} tokens. Shorten "
                    "the episode, or drop early turns: --context token_budget, or ChatAgent(..., context=TokenBudget())"
                )
            limit = window - used
        if self._seed is None:
            return sampling if limit == sampling.max_tokens else replace(sampling, max_tokens=limit)
        seed = child_seed(self._seed, self._sampled)
        self._sampled += 1
        return sampling.of_request(max_tokens=limit, seed=seed)


def _tool_format(style: Style) -> ToolFormat:
    return style.format if isinstance(style, ToolStyle) else "auto"


def _with_text(message: Message, text: str) -> Message:
    """Return the message with `text` appended as a paragraph."""
    content = message["content"]
    more: Any = (
        f"{content}\n\n{text}" if isinstance(content, str) else [*content, {"type": "text", "text": f"\n\n{text}"}]
    )
    return {**message, "content": more}
