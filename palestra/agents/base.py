"""Agent: who plays. Session: one agent in one episode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from palestra.core import Env
from palestra.types import Action, Observation


class AgentSession(ABC):
    """An agent's memory and voice in one episode."""

    @abstractmethod
    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        """The next action, given what the environment just showed."""

    def next_prompt(self, observation: Observation, info: dict[str, Any]) -> list[int]:
        """What a model would be given if it went on from `observation`; empty where no tokens are known.

        Asked once, of an episode that was cut short, for a critic to say what the rest would have been worth.
        """
        del observation, info
        return []

    def close(self) -> None:
        """The episode is over, however it ended. May be called twice."""


class Agent(ABC):
    """Plays any number of episodes at once, each in a session of its own."""

    @abstractmethod
    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        """A session for the episode that `env` has just begun; `seed` makes the agent's own chance repeatable."""

    async def aclose(self) -> None:
        """Give back what the agent holds. May be called twice."""
