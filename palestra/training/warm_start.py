"""Warm start before RL: clone a scripted player's behavior to teach an untrained model the action format.

The model also learns to predict the observations, including the last one of each episode, which often states the
solution. In the last epoch, the random player's actions are weighted by their returns (advantage-weighted regression),
so that the model also learns which of them are better than chance.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from statistics import fmean
from typing import Any

from palestra.agents import AgentSettings, ChatAgent, FullHistory, Summary
from palestra.agents.base import Agent, AgentSession
from palestra.algorithms.base import PolicyGradient
from palestra.algorithms.episode import Episode
from palestra.algorithms.hooks import with_hook_rewards
from palestra.algorithms.rebn import ReBN
from palestra.conformance.rates import Player, next_action
from palestra.core import Env
from palestra.engines.scripted import ScriptedEngine
from palestra.progress import Phase, phase
from palestra.registry import with_split
from palestra.rollout import Task, collect
from palestra.rollout.samples import TrainingSample, to_samples
from palestra.rollout.types import Trajectory
from palestra.seeding import child_seed
from palestra.training.config import TrainConfig
from palestra.training.failures import check_finished
from palestra.training.learner import Learner
from palestra.training.step import clone_samples
from palestra.types import Action, Observation

CHUNK = 500  # number of episodes per batch, after which they are converted to samples, which need less memory
MAX_WEIGHT = 20.0  # largest weight of an action


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
    reads_end = True

    def __init__(self, inner: AgentSession, scripts: dict[Any, Callable[[Any], str]]) -> None:
        self._inner = inner
        self._scripts = scripts

    async def act(self, observation: Observation, info: dict[str, Any]) -> Action:
        return await self._inner.act(observation, info)

    def next_prompt(self, observation: Observation, info: dict[str, Any]) -> list[int]:
        return self._inner.next_prompt(observation, info)

    def close(self) -> None:
        self._scripts.pop(self._inner, None)
        self._inner.close()


async def warm_start(
    learner: Learner,
    config: TrainConfig,
    log: Callable[[str], None] = lambda _: None,
    *,
    on_epoch: Callable[[int, int], Awaitable[None]] | None = None,
    **rollout_options: Any,
) -> int:
    """Train on a scripted player's episodes.

    If `config.warm_start.evaluate` is set, `on_epoch` is called before the first epoch and after every epoch but the
    last, with the number of finished epochs and the number that this function will return.

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
    method = "expert_action" if options.player == "expert" else "sample_random_action"
    hint = f". Check {method} of the environment, or use --warm-start 0"
    samples: list[list[TrainingSample]] = []  # of each episode
    episodes: list[Episode] = []
    longest = 0
    concurrency = min(64, config.sampling.concurrency or 64)
    with phase("warm start: playing episodes", count) as shown:
        for first in range(0, count, CHUNK):
            part = tasks[first : first + CHUNK]
            result = await collect(player, part, concurrency=concurrency, on_trajectory=shown.count, **rollout_options)
            if not samples or result.stopped is not None:
                check_finished(result, f"the {options.player} player of the warm start", hint=hint)
            samples += [samples_with_end(t, len(samples) + i) for i, t in enumerate(result.trajectories)]
            episodes += [Episode.from_trajectory(t) for t in rewarded(config, result.trajectories)]
            calls = [call for t in result.trajectories for turn in t.turns for call in turn.action.calls]
            longest = max([longest, *(len(call.ids) for call in calls)])
    turn_weights = [[1.0] * len(episode.rewards) for episode in episodes]
    total = options.epochs * -(-len(samples) // options.batch)
    done = 0
    shown = Phase("warm start: learning", total)
    for epoch in range(options.epochs):
        if on_epoch is not None and options.evaluate:
            await on_epoch(epoch, longest)
        if epoch + 1 == options.epochs:
            turn_weights = action_weights(config, episodes)
        order = list(range(len(samples)))
        rng.shuffle(order)
        losses: list[float] = []
        for start in range(0, len(order), options.batch):
            batch = [sample for i in order[start : start + options.batch] for sample in samples[i]]
            lr = options.lr * min(1.0, (done + 1) / 10, (total - done) / (0.3 * total))
            weight = options.observation_weight if options.observations else 0.0
            update = clone_samples(
                learner,
                batch,
                turn_weights,
                lr,
                observation_weight=weight,
                ignore_small_gradients=options.ignore_small_gradients,
            )
            losses.append(update["loss"])
            done += 1
            shown.update(done)
        log(f"warm start: epoch {epoch + 1} of {options.epochs}, mean loss {fmean(losses):.3f}")
    shown.end()
    learner.optimizer.reset_state()  # RL starts without the warm start's momentum
    log(f"warm start: cloned {len(samples)} episodes of the {options.player} player")
    return longest


def samples_with_end(trajectory: Trajectory, episode: int) -> list[TrainingSample]:
    """Return a trajectory's samples; the last one also contains the observation after the last action, if it fits."""
    samples = to_samples(trajectory, episode)
    last, prompt = samples[-1], list(trajectory.final_prompt)
    if prompt[: len(last)] == last.ids:
        rest = prompt[len(last) :]
        last.ids.extend(rest)
        last.mask.extend([0] * len(rest))
        last.logprobs.extend([0.0] * len(rest))
        last.turn_index.extend([-1] * len(rest))
    return samples


def rewarded(config: TrainConfig, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Return the trajectories with rewards from the algorithm's reward hook, if it has one."""
    algorithm = config.algorithm
    hook = algorithm.config.reward_hook if isinstance(algorithm, PolicyGradient) else ""
    return with_hook_rewards(hook, trajectories)


def action_weights(config: TrainConfig, episodes: Sequence[Episode]) -> list[list[float]]:
    """Return the weight of each turn: exp(A / beta), where A is its return, normalized per turn number, as in ReBN.

    The weights have a mean of 1. The expert's actions have the weight 1, and so have all actions if `beta` is 0.
    """
    options, algorithm = config.warm_start, config.algorithm
    if not options.beta or options.player == "expert":
        return [[1.0] * len(episode.rewards) for episode in episodes]
    gamma = algorithm.config.discount_of(episodes) if isinstance(algorithm, PolicyGradient) else 1.0
    advantages = ReBN(gamma=gamma, normalize_per_turn=True).advantages(episodes).advantages
    limit = math.log(MAX_WEIGHT)
    weights = [[math.exp(min(limit, advantage / options.beta)) for advantage in row] for row in advantages]
    mean = sum(map(sum, weights)) / sum(map(len, weights))
    return [[weight / mean for weight in row] for row in weights]
