"""Warm start before RL: clone a scripted player's behavior to teach an untrained model the action format.

The model also learns to predict the observations, including the last one of each episode, which often states the
solution. In the last epoch, the random player's actions are weighted by their returns (advantage-weighted regression),
so that the model also learns which of them are better than chance. With several rounds, the model plays some of the
turns of the expert's episodes and learns how the expert continues after its mistakes (DAgger, Ross et al. 2011).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import fmean
from typing import Any

from palestra.agents import ChatAgent
from palestra.algorithms.base import PolicyGradient
from palestra.algorithms.episode import Episode
from palestra.algorithms.hooks import with_hook_rewards
from palestra.algorithms.rebn import ReBN
from palestra.engines.base import PolicyEngine
from palestra.progress import Phase, phase
from palestra.registry import with_split
from palestra.rollout import Task, collect
from palestra.rollout.samples import TrainingSample
from palestra.rollout.types import Trajectory
from palestra.seeding import child_seed
from palestra.training.config import TrainConfig
from palestra.training.demonstrations import (
    SCRIPTED,
    Demonstrator,
    check_demonstrations,
    imitated_turns,
    samples_with_end,
)
from palestra.training.learner import Learner
from palestra.training.step import clone_samples

CHUNK = 500  # number of episodes per batch, after which they are converted to samples, which need less memory
MAX_WEIGHT = 20.0  # largest weight of an action


async def warm_start(
    learner: Learner,
    config: TrainConfig,
    log: Callable[[str], None] = lambda _: None,
    *,
    on_epoch: Callable[[int, int], Awaitable[None]] | None = None,
    model: Callable[[int], Awaitable[ChatAgent]] | None = None,
    **rollout_options: Any,
) -> int:
    """Train on a scripted player's episodes.

    If `config.warm_start.evaluate` is set, `on_epoch` is called before the first epoch and after every epoch but the
    last, with the number of finished epochs and the number that this function will return. Every round has all epochs.
    `model` takes that number as well and returns an agent that plays with the current weights. It is called before
    every round but the first.

    Returns the number of tokens in the longest reply of these episodes, or 0 if there is no warm start.
    """
    options = config.warm_start
    count = options.count(trained=config.model.trained)
    if count == 0:
        return 0
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
    rounds = options.rounds if model is not None else 1
    parts = [tasks[count * i // rounds : count * (i + 1) // rounds] for i in range(rounds)]
    longest = done = cloned = 0
    for number, part in enumerate(parts):
        agent = await model(longest) if model is not None and number else None
        played = await _play(learner, config, part, agent, **rollout_options)
        longest = max(longest, played.longest)
        cloned += len(played.samples)
        planned = [len(played.samples), *map(len, parts[number + 1 :])]
        total = done + options.epochs * sum(-(-episodes // options.batch) for episodes in planned)
        progress = Phase("warm start: learning", total)
        for epoch in range(options.epochs):
            if on_epoch is not None and options.evaluate:
                await on_epoch(number * options.epochs + epoch, longest)
            turn_weights = played.imitated
            if epoch + 1 == options.epochs and options.player == "random":
                turn_weights = action_weights(config, played.episodes)
            order = list(range(len(played.samples)))
            rng.shuffle(order)
            losses: list[float] = []
            for start in range(0, len(order), options.batch):
                batch = [sample for i in order[start : start + options.batch] for sample in played.samples[i]]
                lr = options.lr * min(1.0, (done + 1) / 10, (total - done) / (0.3 * total))
                update = clone_samples(
                    learner,
                    batch,
                    turn_weights,
                    lr,
                    observation_weight=options.observation_weight if options.observations else 0.0,
                    ignore_small_gradients=options.ignore_small_gradients,
                )
                losses += [update["loss"]] if "loss" in update else []  # no loss if no turn has a weight
                done += 1
                progress.update(done)
                await asyncio.sleep(0)  # lets Ctrl-C end the run here
            title = f"round {number + 1} of {rounds}, " if rounds > 1 else ""
            mean = fmean(losses) if losses else 0.0
            log(f"warm start: {title}epoch {epoch + 1} of {options.epochs}, mean loss {mean:.3f}")
        progress.end()
    learner.optimizer.reset_state()  # RL starts without the warm start's momentum
    log(f"warm start: cloned {cloned} episodes of the {options.player} player")
    return longest


@dataclass(slots=True)
class _Round:
    """The episodes of one round."""

    samples: list[list[TrainingSample]] = field(default_factory=list)  # of each episode
    episodes: list[Episode] = field(default_factory=list)
    imitated: list[list[float]] = field(default_factory=list)  # weight of each turn
    longest: int = 0  # number of tokens in the longest reply


async def _play(
    learner: Learner, config: TrainConfig, tasks: Sequence[Task], model: ChatAgent | None, **rollout_options: Any
) -> _Round:
    """Let the scripted player play the tasks; `model` plays a fraction of the turns, and every process its shard."""
    options, distributed = config.warm_start, learner.distributed
    player = Demonstrator(
        learner.policy.tokenizer,
        "expert" if options.player == "expert" else "random",
        max_tokens=config.sampling.max_tokens,
        settings=config.agent,
        model=model,
        own_actions=options.own_actions,
    )
    concurrency = config.sampling.concurrency or 64
    played = _Round()
    with phase("warm start: playing episodes", len(tasks)) as progress:
        for first in range(0, len(tasks), CHUNK):
            part = list(tasks[first : first + CHUNK])
            mine = part if model is None else distributed.shard(part)
            result = await collect(
                player,
                mine,
                concurrency=concurrency if model is not None else min(64, concurrency),
                on_trajectory=progress.count,
                fail_on_long_prompt=True,  # an episode without an action cannot be imitated
                **rollout_options,
            )
            if mine and (not played.samples or result.stopped is not None):
                check_demonstrations(result, options.player)
            trajectories = result.trajectories
            if model is not None and distributed.size > 1:  # the model's replies may differ between processes
                shards = await asyncio.to_thread(distributed.gather, trajectories)
                trajectories = [t for shard in shards for t in shard]
            played.samples += [samples_with_end(t, len(played.samples) + i) for i, t in enumerate(trajectories)]
            played.episodes += [Episode.from_trajectory(t) for t in rewarded(config, trajectories)]
            played.imitated += [imitated_turns(t) for t in trajectories]
            calls = [call for t in trajectories for turn in t.turns for call in turn.action.calls]
            played.longest = max([played.longest, *(len(call.ids) for call in calls if call.version == SCRIPTED)])
    if model is not None and isinstance(model.engine, PolicyEngine):
        await model.engine.release_memory()
    return played


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
