"""Transcripts of a player without a model, as if a chat model had written them, for an untrained model to clone."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from palestra.agents import ChatAgent
from palestra.agents.base import Agent, AgentSession
from palestra.conformance.rates import Player, next_action
from palestra.core import Env
from palestra.engines.scripted import ScriptedEngine
from palestra.errors import BadValue
from palestra.rollout import Task, collect
from palestra.seeding import child_seed
from palestra.training.config import TrainConfig
from palestra.training.learner import Learner
from palestra.types import Action, Observation


class Demonstrator(Agent):
    """Plays what `player` plays, rendered and tokenised for a model with `tokenizer`."""

    def __init__(self, tokenizer: Any, player: Player, *, max_tokens: int, system: str | None = None) -> None:
        self.player = player
        self._scripts: dict[Any, Callable[[Any], str]] = {}  # of each conversation
        engine = ScriptedEngine(self._scripts, tokenizer=tokenizer, blind=True)
        self._chat = ChatAgent(engine, max_tokens=max(64, max_tokens), system=system)

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        inner = self._chat.start(env, seed=seed)
        self._scripts[inner] = lambda _: next_action(env, self.player)
        return _Demonstration(inner, self._scripts)


class _Demonstration(AgentSession):
    def __init__(self, inner: AgentSession, scripts: dict[Any, Callable[[Any], str]]) -> None:
        self._inner = inner
        self._scripts = scripts

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        return await self._inner.act(observation, info)

    def close(self) -> None:
        self._scripts.pop(self._inner, None)
        self._inner.close()


async def warm_start(learner: Learner, config: TrainConfig, say: Callable[[str], None] = lambda _: None) -> None:
    """Clone a player's transcripts: the sloppy one teaches format, not strategy."""
    count = config.warm_start
    if count < 0:
        count = 0 if config.trained else 3000
    if count == 0:
        return
    player = Demonstrator(
        learner.policy.tokenizer,
        "expert" if config.warm_player == "expert" else "random",
        max_tokens=config.max_tokens,
        system=config.system or None,
    )
    ids, weights = list(config.envs), list(config.envs.values())
    rng = Random(child_seed(config.seed, "warm"))
    tasks = [
        Task(
            env_id=rng.choices(ids, weights)[0],
            kwargs=config.env_keywords,
            seed=child_seed(config.seed, "warm", i),
            group=i,
        )
        for i in range(count)
    ]
    result = await collect(player, tasks, concurrency=64)
    if not result.trajectories:
        raise BadValue("the player whose transcripts were to be cloned finished no episode")
    loss = 0.0
    total = config.warm_epochs * -(-len(result.trajectories) // config.warm_batch)
    done = 0
    for _ in range(config.warm_epochs):
        order = list(range(len(result.trajectories)))
        rng.shuffle(order)
        for start in range(0, len(order), config.warm_batch):
            part = [result.trajectories[i] for i in order[start : start + config.warm_batch]]
            lr = config.warm_lr * min(1.0, (done + 1) / 10, (total - done) / (0.3 * total))
            loss = learner.clone(part, lr, observations=config.warm_observations)
            done += 1
    learner.optimiser.forget()  # RL starts with clean averages
    say(f"warm start: {len(result.trajectories)} episodes of the {config.warm_player} player, loss {loss:.3f}")
