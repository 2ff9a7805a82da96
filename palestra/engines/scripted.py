"""Engine that takes its replies from a function or a list, for tests, demos and examples without a model."""

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
    """A scripted reply with tool calls."""

    text: str = ""
    tool_calls: tuple[dict[str, Any], ...] = ()


ScriptItem: TypeAlias = str | Reply
Script: TypeAlias = str | Sequence[ScriptItem] | Callable[[Any], Any]  # functions return a ScriptItem or an awaitable


class ScriptedEngine(Engine):
    """Returns predefined replies.

    `reply` is a string (returned every time), a list (returned in order, once each), or a sync or async function of the
    prompt. With a `tokenizer` the engine exchanges ids, the function receives the decoded prompt, and every
    log-probability is 0. Without one it takes chat messages, which are passed to the function unchanged; replies then
    have no tokens, so `max_tokens` and `stop_ids` have no effect.

    If `reply` is a mapping, it holds one script per conversation. With `per_conversation` a list restarts in each
    conversation, and a function is called with the conversation's key and returns its script. With `blind`, functions
    receive None instead of the prompt, which avoids decoding long prompts.

    `delay` is the time a reply takes in seconds, or a function that returns it. With `fail_every=n` every n-th request
    raises EngineFailed, like a failing server.
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
            raise BadValue(f"fail_every must be at least 1 or None, got {fail_every}")
        if not isinstance(reply, Mapping):
            _check_script(reply)
        elif tokenizer is None:
            raise BadValue(
                "a mapping of scripts needs a tokenizer, because chat requests do not name their conversation"
            )
        self.tokenizer = tokenizer
        self.max_context = max_context
        self.requests = 0  # number of requests, including failed ones
        self._reply = reply
        self._by_conversation = per_conversation or isinstance(reply, Mapping)
        self._blind = blind
        self._delay = delay
        self._fail_every = fail_every
        self._encode = None if tokenizer is None else lru_cache(1024)(_encoder(tokenizer))  # scripts often repeat texts
        self._lists: dict[Hashable, Iterator[ScriptItem]] = {}  # iterator over each list
        self._scripts: dict[Hashable, Script] = {}  # scripts returned by the per-conversation function

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, conversation: Hashable | None = None
    ) -> Completion:
        if self.tokenizer is None or self._encode is None:
            raise BadValue("this engine has no tokenizer: call chat(), or pass tokenizer=ByteTokenizer()")
        prompt = list(prompt_ids)
        room = sampling.max_tokens
        if self.max_context is not None:
            room = min(room, self.max_context - len(prompt))
            if room < 1:
                raise BadValue(
                    f"a prompt of {len(prompt)} tokens leaves no room for a reply in a context of {self.max_context}"
                )
        version = self.version
        shown = None if self._blind else self.tokenizer.decode(prompt, skip_special_tokens=False)
        reply = await self._next_reply(shown, conversation)
        ids, text, finish = _tokens(list(self._encode(reply.text)), self.tokenizer, sampling, room)
        return Completion(
            ids=ids,
            logprobs=[0.0] * len(ids),
            text=text,
            finish=finish,
            version=version,
            prompt_ids=prompt,
            tool_calls=list(reply.tool_calls),
        )

    async def chat(
        self, messages: Sequence[Message], sampling: Sampling, *, tools: Sequence[dict[str, Any]] = ()
    ) -> Completion:
        if self.tokenizer is not None:
            return await super().chat(messages, sampling, tools=tools)
        version = self.version
        reply = await self._next_reply(None if self._blind else list(messages), None)
        return Completion(
            ids=[],
            logprobs=[],
            text=_cut_at_stop(reply.text, sampling.stop),
            finish="stop",
            version=version,
            prompt_ids=[],
            tool_calls=list(reply.tool_calls),
        )

    def forget(self, conversation: Hashable) -> None:
        self._lists.pop(conversation, None)
        self._scripts.pop(conversation, None)

    async def _next_reply(self, prompt: Any, conversation: Hashable | None) -> Reply:
        self.requests += 1
        number = self.requests
        key = conversation if self._by_conversation else None
        script = self._script(key)
        # Take the next item before the delay, so that the order of replies depends only on the order of requests.
        item = script if callable(script) else self._next(script, key)
        seconds = self._delay() if callable(self._delay) else self._delay
        await asyncio.sleep(seconds or 0)  # always yields to other tasks, like a real engine
        if self._fail_every is not None and number % self._fail_every == 0:
            raise EngineFailed(f"request {number} failed because of fail_every={self._fail_every}")
        if callable(item):
            result = item(prompt)
            item = await result if inspect.isawaitable(result) else result
        if isinstance(item, str):
            return Reply(text=item)
        if isinstance(item, Reply):
            return item
        raise BadValue(f"a script must return a string or a Reply, got {type(item).__name__}")

    def _script(self, key: Hashable | None) -> Script:
        if isinstance(self._reply, Mapping):
            if key not in self._reply:
                raise BadValue(f"no script for conversation {key!r} among {len(self._reply)} scripts")
            return _check_script(self._reply[key])
        reply = self._reply
        if not self._by_conversation or not callable(reply):
            return reply
        if key not in self._scripts:
            self._scripts[key] = _check_script(reply(key))
        return self._scripts[key]

    def _next(self, script: str | Sequence[ScriptItem], key: Hashable | None) -> ScriptItem:
        if isinstance(script, str):
            return script
        item = next(self._lists.setdefault(key, iter(script)), None)
        if item is None:
            raise BadValue(f"the script has {len(script)} replies, but request {len(script) + 1} arrived")
        return item


def _check_script(script: Any) -> Script:
    if isinstance(script, Sequence) or callable(script):
        return cast("Script", script)
    raise BadValue(f"a script must be a string, a list of replies or a function, got {type(script).__name__}")


def _cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """Return the text up to the first stop string."""
    return text[: min((at for at in map(text.find, stops) if at >= 0), default=len(text))]


def _encoder(tokenizer: Tokenizer) -> Callable[[str], tuple[int, ...]]:
    return lambda text: tuple(tokenizer.encode(text, add_special_tokens=False))


def _tokens(ids: list[int], tokenizer: Tokenizer, sampling: Sampling, room: int) -> tuple[list[int], str, Finish]:
    """Return (ids, text, finish), truncated at the first stop string, stop id or token limit, like a model's reply."""

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

    if sampling.stop and stopped(len(ids[:end])):  # a model stops after the token that completes a stop string
        ids, end = ids[: bisect_left(range(len(ids)), True, key=stopped)], None
    if len(ids) > room:
        return ids[:room], _cut_at_stop(read(ids[:room]), sampling.stop), "length"
    return ids, _cut_at_stop(read(ids[:end]), sampling.stop), "stop"
