"""Agent interfaces: an Agent starts one AgentSession per episode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from palestra.core import Env
from palestra.types import Action, Observation


class AgentSession(ABC):
    """An agent's state in one episode."""

    reads_end = False  # whether `next_prompt` is called at the end of every episode, not only truncated ones

    @abstractmethod
    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        """Return the next action, given the latest observation and info."""

    def next_prompt(self, observation: Observation, info: dict[str, Any]) -> list[int]:
        """Return the prompt ids for a turn after `observation`, or an empty list if the agent has no token ids.

        Called once after a truncated episode, so that a critic can estimate the value of the last state. If
        `reads_end` is set, it is called after every episode.
        """
        del observation, info
        return []

    def close(self) -> None:
        """Release resources after the episode. Idempotent."""


class Agent(ABC):
    """Acts in any number of concurrent episodes, with one session per episode."""

    @abstractmethod
    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        """Start a session for a new episode of `env`, which has just been reset. `seed` makes it reproducible."""

    async def aclose(self) -> None:
        """Release all resources. Idempotent."""
