"""Agents without a model: the environment's expert and random policy, functions, and humans."""

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
from palestra.threads import run_in_thread
from palestra.types import Action, Observation, text_of


class ExpertAgent(Agent):
    """Takes the actions of the environment's expert, which is its reference solver."""

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        del seed  # experts are deterministic
        return _EnvPolicySession(env, env.expert_action)


class RandomAgent(Agent):
    """Takes random well-formed actions."""

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        if seed is not None:
            # Episodes in a group share the task but take different actions.
            env.player_rng.seed(child_seed(seed, "random"))
        return _EnvPolicySession(env, env.sample_random_action)


class _EnvPolicySession(AgentSession):
    def __init__(self, env: Env, choose: Callable[[], str | None]) -> None:
        self._env = env
        self._choose = choose

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        del observation, info
        text = self._choose() if self._env.inline else await run_in_thread(self._choose)
        if text is None:
            raise BadValue(f"{self._env!r} has no expert; use RandomAgent() or a model")
        return Action(text=text)


Reply = str | Action
Choose = Callable[[Observation, dict[str, Any]], Reply | Awaitable[Reply]]


class FunctionAgent(Agent):
    """Calls a sync or async function of (observation, info) that returns a string or an Action.

    With `threads=True`, the function is called in a thread, so that a slow sync function does not block the event loop.
    """

    def __init__(self, choose: Choose, *, threads: bool = False) -> None:
        if not callable(choose):
            raise BadValue(f"FunctionAgent needs a function of (observation, info), got {choose!r}")
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
        reply: Any = (
            await run_in_thread(self._choose, observation, info) if self._threads else self._choose(observation, info)
        )
        if inspect.isawaitable(reply):
            reply = await reply
        if isinstance(reply, str):
            return Action(text=reply)
        if isinstance(reply, Action):
            return reply
        raise BadValue(f"a FunctionAgent's function must return a string or an Action, got {type(reply).__name__}")


class HumanAgent(Agent):
    """A human at the terminal. `ask` prints text and returns the typed line; episodes call it one at a time."""

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
            return Action(text=await run_in_thread(self._ask, text_of(observation)))


def _ask(text: str) -> str:
    sys.stdout.write(f"\n{text}\n\n> ")
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        raise BadValue("standard input is closed, so there is no action to read")
    return line.rstrip("\n")
