"""Agents and environments for the rollout tests, some of which fail on demand."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import palestra
from palestra.agents.base import Agent, AgentSession
from palestra.core import Reset
from palestra.errors import EngineFailed, EnvFailed, ParsingFailed, ToolFailed
from palestra.seeding import Random, child_seed
from palestra.types import Action, Call, Observation, Step
from tests.conformance.defective_envs import Sound


class Solver(Agent):
    """Agent that plays the expert's actions, with artificial token ids."""

    closed = 0

    def start(self, env: palestra.Env, *, seed: int | None = None) -> SolverSession:
        return SolverSession(self, env, seed or 0)


class SolverSession(AgentSession):
    def __init__(self, agent: Solver, env: palestra.Env, seed: int) -> None:
        self.agent = agent
        self.env = env
        self.seed = seed
        self.ids: list[int] = [0]
        self.open = True

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        await asyncio.sleep(0)
        text = self.env.expert_action() or ""
        sampled = [ord(letter) for letter in text]
        call = Call(prompt_ids=list(self.ids), ids=sampled, logprobs=[-0.5] * len(sampled), finish="stop", version=3)
        self.ids = [*self.ids, *sampled, 1]
        return Action(text=text, calls=(call,))

    def close(self) -> None:
        if self.open:
            self.agent.closed += 1
        self.open = False


class CountedEnv(Sound):
    """Env that counts its open instances and fails with probability `faults`."""

    instances: Counter[str] = Counter()  # noqa: RUF012

    def __init__(self, *, faults: float = 0.0, hang: bool = False) -> None:
        super().__init__()
        self.faults = faults
        self.hang = hang
        self.closed = False
        self.instances["open"] += 1
        self.instances["created"] += 1

    def fails(self, where: str) -> bool:
        return Random(child_seed(self.seed, where, self.instances["created"])).random() < self.faults

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        result = super().reset(seed, options)
        if self.fails("reset"):
            raise EnvFailed("reset broke")
        return result

    def step(self, action: str) -> Step:
        if self.fails(f"env {self.turn}"):
            raise RuntimeError("an unexpected exception")
        if self.fails(f"tool {self.turn}"):
            raise ToolFailed("the tool broke")
        if self.fails(f"parse {self.turn}"):
            raise ParsingFailed("the reply cannot be parsed")
        return super().step(action)

    async def astep(self, action: str) -> Step:
        if self.hang:
            await asyncio.sleep(3600)
        return self.step(action)

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return self.reset(seed, options)

    def close(self) -> None:
        if not self.closed:
            self.instances["open"] -= 1
        self.closed = True


class Unreliable(Solver):
    """Agent whose engine fails with probability `faults`."""

    def __init__(self, faults: float) -> None:
        self.faults = faults
        self.calls = 0

    def start(self, env: palestra.Env, *, seed: int | None = None) -> SolverSession:
        return UnreliableSession(self, env, seed or 0)


class UnreliableSession(SolverSession):
    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        agent = self.agent
        assert isinstance(agent, Unreliable)
        agent.calls += 1
        if Random(agent.calls).random() < agent.faults:
            raise EngineFailed("the model is gone")
        return await super().act(observation, info)
