"""Warm start before RL: clone a scripted player's behavior to teach an untrained model the action format."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from palestra.agents import AgentSettings, ChatAgent, FullHistory, Summary
from palestra.agents.base import Agent, AgentSession
from palestra.conformance.rates import Player, next_action
from palestra.core import Env
from palestra.engines.scripted import ScriptedEngine
from palestra.progress import Phase, phase
from palestra.registry import with_split
from palestra.rollout import Task, collect
from palestra.seeding import child_seed
from palestra.training.config import TrainConfig
from palestra.training.failures import check_finished
from palestra.training.learner import Learner
from palestra.training.step import cloning_step
from palestra.types import Action, Observation


class Demonstrator(Agent):
    """Agent that plays a scripted player's actions, tokenized as if they were a model's replies."""

    def __init__(
        self, tokenizer: Any, player: Player, *, max_tokens: int, settings: AgentSettings | None = None
    ) -> None:
        settings = settings or AgentSettings()
        self.player = player
        self._format = "Action: {}" if settings.style == "react" else "{}"
        self._scripts: dict[Any, Callable[[Any], str]] = {}  # keyed by conversation
        engine = ScriptedEngine(self._scripts, tokenizer=tokenizer, blind=True)
        policy = settings.context_policy()
        self._chat = ChatAgent(
            engine,
            max_tokens=max(64, max_tokens),
            context=FullHistory() if isinstance(policy, Summary) else policy,  # a scripted player writes no summaries
            **settings.chat_options(tokenizer),
        )

    def start(self, env: Env, *, seed: int | None = None) -> AgentSession:
        inner = self._chat.start(env, seed=seed)
        self._scripts[inner] = lambda _: self._format.format(next_action(env, self.player))
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


async def warm_start(
    learner: Learner, config: TrainConfig, log: Callable[[str], None] = lambda _: None, **rollout_options: Any
) -> int:
    """Train on a scripted player's episodes; the random player teaches the action format but no strategy.

    Returns the number of tokens in the longest reply of these episodes, or 0 if there is no warm start.
    """
    options = config.warm_start
    count = options.episodes
    if count < 0:
        count = 0 if config.model.trained else 3000
    if count == 0:
        return 0
    player = Demonstrator(
        learner.policy.tokenizer,
        "expert" if options.player == "expert" else "random",
        max_tokens=config.sampling.max_tokens,
        settings=config.agent,
    )
    names, weights = list(config.env.weights), list(config.env.weights.values())
    rng = Random(child_seed(config.run.seed, "warm"))
    tasks = [
        Task(
            env_id=name,
            kwargs=with_split(name, config.env.kwargs, "train"),
            seed=child_seed(config.run.seed, "warm", i),
            group=i,
        )
        for i in range(count)
        for name in rng.choices(names, weights)
    ]
    with phase("warm start: playing episodes", count) as shown:
        result = await collect(player, tasks, concurrency=64, on_trajectory=shown.count, **rollout_options)
    method = "expert_action" if options.player == "expert" else "sample_random_action"
    hint = f". Check {method} of the environment, or use --warm-start 0"
    check_finished(result, f"the {options.player} player of the warm start", hint=hint)
    loss = 0.0
    total = options.epochs * -(-len(result.trajectories) // options.batch)
    done = 0
    shown = Phase("warm start: learning", total)
    for _ in range(options.epochs):
        order = list(range(len(result.trajectories)))
        rng.shuffle(order)
        for start in range(0, len(order), options.batch):
            part = [result.trajectories[i] for i in order[start : start + options.batch]]
            lr = options.lr * min(1.0, (done + 1) / 10, (total - done) / (0.3 * total))
            turn_weights = [[1.0] * len(trajectory.turns) for trajectory in part]
            loss = cloning_step(learner, part, turn_weights, lr, observations=options.observations)["loss"]
            done += 1
            shown.update(done)
    shown.end()
    learner.optimizer.reset_state()  # RL starts without the warm start's momentum
    log(f"warm start: cloned {len(result.trajectories)} episodes of the {options.player} player, loss {loss:.3f}")
    return max(len(call.ids) for t in result.trajectories for turn in t.turns for call in turn.action.calls)
