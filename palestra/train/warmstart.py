"""Transcripts of a player without a model, as if a chat model had written them, for an untrained model to clone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palestra.agents import Chat
from palestra.agents.base import Agent, Session
from palestra.checks.rates import Player, next_action
from palestra.core import Env
from palestra.engines.scripted import ScriptedEngine
from palestra.types import Action, Observation


class Demonstrator(Agent):
    """Plays what `player` plays, rendered and tokenised for a model with `tokenizer`."""

    def __init__(self, tokenizer: Any, player: Player, *, max_tokens: int, system: str | None = None) -> None:
        self.player = player
        self._scripts: dict[Any, Callable[[Any], str]] = {}  # of each conversation
        self._chat = Chat(
            ScriptedEngine(self._scripts, tokenizer=tokenizer), max_tokens=max(64, max_tokens), system=system
        )

    def begin(self, env: Env, *, seed: int | None = None) -> Session:
        inner = self._chat.begin(env, seed=seed)
        self._scripts[inner] = lambda _: next_action(env, self.player)
        return _Demonstration(inner, self._scripts)


class _Demonstration(Session):
    def __init__(self, inner: Session, scripts: dict[Any, Callable[[Any], str]]) -> None:
        self._inner = inner
        self._scripts = scripts

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        return await self._inner.act(observation, info)

    def close(self) -> None:
        self._scripts.pop(self._inner, None)
        self._inner.close()
