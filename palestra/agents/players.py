"""Agents without a model: the environment's own experts and random players, people, and plain functions."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from palestra.agents.base import Agent, AgentSession
from palestra.core import Env
from palestra.errors import BadValue
from palestra.seeding import child_seed
from palestra.types import Action, Observation, text_of


class ExpertAgent(Agent):
    """Plays what the environment's reference solver would."""

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        del seed  # experts leave nothing to chance
        return _EnvPlayer(env, env.expert_action)


class RandomAgent(Agent):
    """Plays well-formed actions at random."""

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        if seed is not None:
            env.player_rng.seed(child_seed(seed, "random"))  # members of a group share a task, not their luck
        return _EnvPlayer(env, env.sample_random_action)


class _EnvPlayer(AgentSession):
    def __init__(self, env: Env, choose: Callable[[], str | None]) -> None:
        self._env = env
        self._choose = choose

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        del observation, info
        text = self._choose() if self._env.inline else await asyncio.to_thread(self._choose)
        if text is None:
            raise BadValue(f"{self._env!r} ships no expert; play it with Random() or a model")
        return Action(text=text)


Answer = str | Action
Choose = Callable[[Observation, dict[str, Any]], Answer | Awaitable[Answer]]


class FunctionAgent(Agent):
    """Plays what a function of the observation and its info returns: a string or an Action, at once or awaited.

    With `threads`, a plain function that takes its time runs beside the event loop instead of in it.
    """

    def __init__(self, choose: Choose, *, threads: bool = False) -> None:
        if not callable(choose):
            raise BadValue(f"Function takes a function of (observation, info), got {choose!r}")
        self._choose = choose
        self._threads = threads

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        del env, seed
        return _FunctionSession(self._choose, self._threads)


class _FunctionSession(AgentSession):
    def __init__(self, choose: Choose, threads: bool) -> None:
        self._choose = choose
        self._threads = threads

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        answer: Any = (
            await asyncio.to_thread(self._choose, observation, info)
            if self._threads
            else self._choose(observation, info)
        )
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, str):
            return Action(text=answer)
        if isinstance(answer, Action):
            return answer
        raise BadValue(f"an agent's function returns a string or an Action, got {type(answer).__name__}")


class HumanAgent(Agent):
    """A person at the terminal; `ask` shows a text and returns what was typed. One at a time: others wait."""

    def __init__(self, ask: Callable[[str], str] | None = None) -> None:
        self._ask = ask or _ask
        self._turn = asyncio.Lock()

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        del env, seed
        return _HumanSession(self._ask, self._turn)


class _HumanSession(AgentSession):
    def __init__(self, ask: Callable[[str], str], turn: asyncio.Lock) -> None:
        self._ask = ask
        self._turn = turn

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        del info
        async with self._turn:
            return Action(text=await asyncio.to_thread(self._ask, text_of(observation)))


def _ask(text: str) -> str:
    sys.stdout.write(f"\n{text}\n\n> ")
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        raise BadValue("nobody is typing: the input has ended")
    return line.rstrip("\n")
