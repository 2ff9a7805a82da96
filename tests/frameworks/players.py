"""Agents for the tests of other libraries' environments."""

from __future__ import annotations

from typing import Any

from palestra.agents.base import Agent, AgentSession
from palestra.core import Env
from palestra.types import Action, Observation


class FirstNumbers(Agent):
    """Writes [1], [2], [3] and so on."""

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        return _Session()


class _Session(AgentSession):
    number = 0

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        self.number += 1
        return Action(text=f"[{self.number}]")
