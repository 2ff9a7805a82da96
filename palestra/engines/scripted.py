"""Replies from a function or a list instead of a model: for tests, for experts, for examples without weights."""

from __future__ import annotations

import asyncio
import inspect
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

from palestra.engines.base import Completion, Engine, Finish, Sampling, Tokenizer
from palestra.errors import BadValue, EngineFailed
from palestra.types import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a script says where a plain string is not enough."""

    text: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()


Said: TypeAlias = str | Reply
Script: TypeAlias = str | Sequence[Said] | Callable[[Any], Any]  # a function returns Said, or an awaitable of it


class ScriptedEngine(Engine):
    """An engine whose replies are known beforehand.

    `reply` is a string (said every time), a list (said in order, once), or a function, sync or async, of the prompt.
    With a `tokenizer` the engine takes and gives ids, the function sees the decoded prompt, and every log-probability
    is 0: a script is certain. Without one it takes chat messages, which the function sees as they are; there a reply
    has no tokens, so `max_tokens` and `stop_ids` say nothing.

    A mapping holds one script a conversation. With `per_conversation` a list starts anew in each conversation, and a
    function is called with the conversation's key and returns its script. With `blind` no function is shown a prompt
    (it gets None), which saves decoding long ones.

    `delay` is how long a reply takes: seconds, or a function that returns them. With `fail_every=n` each n-th request
    raises EngineFailed, as a server that breaks would.
    """

    def __init__(
        self,
        reply: Script | Mapping[Any, Script],
        *,
        tokenizer: Tokenizer | None = None,
        per_conversation: bool = False,
        blind: bool = False,
        delay: float | Callable[[], float] | None = None,
        fail_every: int | None = None,
        max_context: int | None = None,
    ) -> None:
        if fail_every is not None and fail_every < 1:
            raise BadValue(f"fail_every is 1 or more, or None, got {fail_every}")
        if not isinstance(reply, Mapping):
            _checked(reply)
        elif tokenizer is None:
            raise BadValue("a mapping goes by conversation, and chat requests name none: give a tokenizer")
        self.tokenizer = tokenizer
        self.max_context = max_context
        self.requests = 0  # those that failed included
        self._reply = reply
        self._by_conversation = per_conversation or isinstance(reply, Mapping)
        self._blind = blind
        self._delay = delay
        self._fail_every = fail_every
        self._encode = None if tokenizer is None else lru_cache(1024)(_encoder(tokenizer))  # scripts repeat themselves
        self._lists: dict[Hashable, Iterator[Said]] = {}  # how far each list has been read
        self._scripts: dict[Hashable, Script] = {}  # those a per-conversation function has returned

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, conversation: Hashable | None = None
    ) -> Completion:
        if self.tokenizer is None or self._encode is None:
            raise BadValue("this engine has no tokenizer: call chat(), or give it one (ByteTokenizer() will do)")
        prompt = list(prompt_ids)
        room = sampling.max_tokens
        if self.max_context is not None:
            room = min(room, self.max_context - len(prompt))
            if room < 1:
                raise BadValue(f"a prompt of {len(prompt)} tokens leaves no room in a context of {self.max_context}")
        version = self.version
        shown = None if self._blind else self.tokenizer.decode(prompt, skip_special_tokens=False)
        said = await self._say(shown, conversation)
        ids, text, finish = _tokens(list(self._encode(said.text)), self.tokenizer, sampling, room)
        return Completion(
            ids=ids,
            logprobs=[0.0] * len(ids),
            text=text,
            finish=finish,
            version=version,
            prompt_ids=prompt,
            tool_calls=list(said.tool_calls),
        )

    async def chat(
        self, messages: Sequence[Message], sampling: Sampling, *, tools: Sequence[dict[str, Any]] = ()
    ) -> Completion:
        if self.tokenizer is not None:
            return await super().chat(messages, sampling, tools=tools)
        version = self.version
        said = await self._say(None if self._blind else list(messages), None)
        return Completion(
            ids=[],
            logprobs=[],
            text=_before(said.text, sampling.stop),
            finish="stop",
            version=version,
            prompt_ids=[],
            tool_calls=list(said.tool_calls),
        )

    def forget(self, conversation: Hashable) -> None:
        self._lists.pop(conversation, None)
        self._scripts.pop(conversation, None)

    async def _say(self, prompt: Any, conversation: Hashable | None) -> Reply:
        self.requests += 1
        number = self.requests
        key = conversation if self._by_conversation else None
        script = self._script(key)
        # A list is read on arrival: the order of requests, not of delays, decides who gets which reply.
        said = script if callable(script) else self._next(script, key)
        seconds = self._delay() if callable(self._delay) else self._delay
        await asyncio.sleep(seconds or 0)  # even at once, others get their turn, as they would beside a real engine
        if self._fail_every is not None and number % self._fail_every == 0:
            raise EngineFailed(f"request {number} fails, as fail_every={self._fail_every} asked")
        if callable(said):
            answer = said(prompt)
            said = await answer if inspect.isawaitable(answer) else answer
        if isinstance(said, str):
            return Reply(text=said)
        if isinstance(said, Reply):
            return said
        raise BadValue(f"a script says a string or a Reply, got {type(said).__name__}")

    def _script(self, key: Hashable | None) -> Script:
        if isinstance(self._reply, Mapping):
            if key not in self._reply:
                raise BadValue(f"no script for conversation {key!r}; there are {len(self._reply)}")
            return _checked(self._reply[key])
        reply = self._reply
        if not self._by_conversation or not callable(reply):
            return reply
        if key not in self._scripts:
            self._scripts[key] = _checked(reply(key))
        return self._scripts[key]

    def _next(self, script: str | Sequence[Said], key: Hashable | None) -> Said:
        if isinstance(script, str):
            return script
        said = next(self._lists.setdefault(key, iter(script)), None)
        if said is None:
            raise BadValue(f"the script has {len(script)} replies and was asked for one more")
        return said


def _checked(script: Any) -> Script:
    if isinstance(script, Sequence) or callable(script):
        return cast("Script", script)
    raise BadValue(f"a script is a string, a list of replies or a function, got {type(script).__name__}")


def _before(text: str, stops: Sequence[str]) -> str:
    """The text up to the first stop string."""
    return text[: min((at for at in map(text.find, stops) if at >= 0), default=len(text))]


def _encoder(tokenizer: Tokenizer) -> Callable[[str], tuple[int, ...]]:
    return lambda text: tuple(tokenizer.encode(text, add_special_tokens=False))


def _tokens(ids: list[int], tokenizer: Tokenizer, sampling: Sampling, room: int) -> tuple[list[int], str, Finish]:
    """The reply as a model would have sampled it: cut at the first stop string or id, and at the token limit."""

    def read(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=False))

    eos = tokenizer.eos_token_id
    stop_ids = {*sampling.stop_ids, *(() if eos is None else (eos,))}
    end = next((i for i, token in enumerate(ids) if token in stop_ids), None)
    if end is not None:
        ids = ids[: end + 1]
    elif eos is not None:
        end = len(ids)
        ids = [*ids, eos]

    def stopped(length: int) -> bool:
        text = read(ids[:length])
        return any(stop in text for stop in sampling.stop)

    if sampling.stop and stopped(len(ids[:end])):  # a model stops at the token that completes a stop string
        ids, end = ids[: bisect_left(range(len(ids)), True, key=stopped)], None
    if len(ids) > room:
        return ids[:room], _before(read(ids[:room]), sampling.stop), "length"
    return ids, _before(read(ids[:end]), sampling.stop), "stop"
