"""Test engines that return prepared replies and record their requests."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from palestra.agents import AgentSession, ChatAgent
from palestra.core import Env
from palestra.engines.base import Completion, Engine, Sampling
from palestra.registry import make
from palestra.types import Action, Message


@dataclass(frozen=True, kw_only=True)
class PreparedReply:
    """Token ids and text of a prepared reply."""

    ids: list[int]
    text: str


def prepare_reply(tokenizer: Any, text: str, *, end: str | None = "") -> PreparedReply:
    """Tokenize `text` and append the token `end`: the model's end token if `end` is empty, no token if it is None."""
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    if end is not None:
        ids = [*ids, tokenizer.convert_tokens_to_ids(end) if end else tokenizer.eos_token_id]
    return PreparedReply(ids=ids, text=text)


class PreparedEngine(Engine):
    """Engine that returns `replies` in order, with log-probabilities of -(position + 1)."""

    def __init__(
        self,
        tokenizer: Any,
        replies: Sequence[PreparedReply | str],
        *,
        max_context: int | None = None,
        version: int = 0,
    ) -> None:
        self.tokenizer = tokenizer
        self.max_context = max_context
        self.version = version
        self.replies = [prepare_reply(tokenizer, reply) if isinstance(reply, str) else reply for reply in replies]
        self.requests: list[tuple[list[int], Sampling]] = []
        self.conversations: list[Hashable] = []
        self.forgotten: list[Hashable] = []

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, conversation: Hashable | None = None
    ) -> Completion:
        await asyncio.sleep(0)
        self.requests.append((list(prompt_ids), sampling))
        self.conversations.append(conversation)
        reply = self.replies[len(self.requests) - 1]
        return Completion(
            ids=list(reply.ids),
            logprobs=[-(i + 1.0) for i in range(len(reply.ids))],
            text=reply.text,
            finish="stop",
            version=self.version,
            prompt_ids=list(prompt_ids),
        )

    def forget(self, conversation: Hashable) -> None:
        self.forgotten.append(conversation)

    def prompts(self) -> list[str]:
        tokenizer: Any = self.tokenizer
        return [tokenizer.decode(ids, skip_special_tokens=False) for ids, _ in self.requests]


class PreparedChatEngine(Engine):
    """Engine like `PreparedEngine` that takes chat messages and returns no token ids."""

    def __init__(self, replies: Sequence[str | tuple[str, list[dict[str, Any]]]]) -> None:
        self.replies = list(replies)
        self.requests: list[list[Message]] = []
        self.tools: list[list[dict[str, Any]]] = []

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, *, conversation: Hashable | None = None
    ) -> Completion:
        raise AssertionError("this engine takes messages")

    async def chat(
        self, messages: Sequence[Message], sampling: Sampling, *, tools: Sequence[dict[str, Any]] = ()
    ) -> Completion:
        await asyncio.sleep(0)
        self.requests.append(list(messages))
        self.tools.append(list(tools))
        reply = self.replies[len(self.requests) - 1]
        text, calls = (reply, []) if isinstance(reply, str) else reply
        return Completion(ids=[], logprobs=[], text=text, finish="stop", version=0, prompt_ids=[], tool_calls=calls)


def start_session(agent: ChatAgent, *, seed: int | None = None) -> AgentSession:
    return agent.start(make_env(), seed=seed)


def make_env() -> Env:
    env = make("game:GuessTheNumber-v0-easy", seed=0)
    env.reset()
    return env


def converse(agent: ChatAgent, observations: Sequence[Any], infos: Sequence[dict[str, Any]] = ()) -> list[Action]:
    """Pass the observations to a session one by one and return its actions."""
    session = start_session(agent)

    async def run() -> list[Action]:
        padded = [*infos, *({} for _ in observations[len(infos) :])]
        return [await session.act(observation, info) for observation, info in zip(observations, padded, strict=True)]

    actions = asyncio.run(run())
    session.close()
    return actions
