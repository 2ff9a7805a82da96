"""Lengths of a few episodes, on which estimates of a run's memory and time are based.

They are played by a scripted player, or read from the trajectories that an offline run is trained on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import fmean
from typing import Any

from palestra.agents.context import FullHistory
from palestra.algorithms.dpo import Pair
from palestra.concurrency import run_sync
from palestra.registry import EnvFactory, with_split
from palestra.rollout import Task, collect
from palestra.rollout.types import Trajectory
from palestra.seeding import child_seed
from palestra.training.config import TrainConfig
from palestra.training.data import Example
from palestra.training.demonstrations import Demonstrator, check_demonstrations, samples_with_end
from palestra.training.transcripts import Transcriber
from palestra.types import text_of

EPISODES = 4  # per environment
EXAMPLES = 64  # of an offline run
USED_TURNS = 0.5  # assumed fraction of the maximum number of turns if there is no scripted player
TURN_TOKENS = 24  # assumed number of tokens that the observation and the chat template then add per turn
REPLY_TOKENS = 12  # assumed number of tokens in an action


@dataclass(frozen=True, kw_only=True)
class EpisodeLengths:
    """Lengths of episodes in tokens. `turns`, `reply`, `tokens`, `pairs` and `env_seconds` are means."""

    source: str  # describes the episodes; empty if lengths were assumed
    prompt: int  # longest first prompt
    limit: int  # maximum number of turns
    turns: float
    reply: float  # tokens per action
    longest_reply: int
    observation: float  # tokens that the observation and the chat template add per turn
    tokens: float
    pairs: float  # pairs of tokens of which one attends to the other
    sample: int  # longest training sample
    shortened: bool = False  # whether a context policy removes turns from the prompts
    env_seconds: float = 0.0  # time of the environment per episode

    def longest(self, reply: int) -> int:
        """Return the maximum length of a training sample with replies of up to `reply` tokens."""
        if self.shortened:
            return self.sample + reply
        return self.prompt + self.limit * (reply + ceil(self.observation))

    def with_reply(self, reply: float) -> EpisodeLengths:
        """Return the lengths of episodes with the same observations and other replies."""
        tokens = self.tokens + self.turns * (reply - self.reply)
        return replace(self, reply=reply, tokens=tokens, pairs=self.pairs * (tokens / self.tokens) ** 2)


def played_lengths(config: TrainConfig, tokenizer: Any, *, required: bool) -> EpisodeLengths:
    """Measure the warm start's player in the environments of a run, which are weighted like in the run.

    An environment without such a player is reset, and lengths are assumed. If `required` is set, this is an error.
    """
    weights = config.env.weights
    lengths = [_lengths_in(config, name, tokenizer, required=required) for name in weights]
    count = EPISODES * sum(bool(one.source) for one in lengths)

    def mean(field: str) -> float:
        return fmean([getattr(one, field) for one in lengths], weights.values())

    return EpisodeLengths(
        source=f"{count} episodes of the {config.warm_start.player} player" if count else "",
        prompt=max(one.prompt for one in lengths),
        limit=max(one.limit for one in lengths),
        longest_reply=max(one.longest_reply for one in lengths),
        observation=max(one.observation for one in lengths),
        sample=max(one.sample for one in lengths),
        shortened=any(one.shortened for one in lengths),
        **{field: mean(field) for field in ("turns", "reply", "tokens", "pairs", "env_seconds")},
    )


def stored_lengths(
    config: TrainConfig, examples: Sequence[Example], tokenizer: Any, window: int | None
) -> EpisodeLengths:
    """Measure some of the trajectories that an offline run is trained on."""
    some = examples[:: ceil(len(examples) / EXAMPLES)]
    trajectories = [t for one in some for t in ((one.chosen, one.rejected) if isinstance(one, Pair) else (one,))]
    transcriber = Transcriber(tokenizer, settings=config.agent, window=window)
    fitting = [t for t in run_sync(transcriber.tokenize(trajectories)).trajectories if t is not None]
    limit = max(len(t.turns) for t in trajectories)
    if not fitting:
        return _assumed(window or 0, limit)
    return _measured(fitting, limit, source=f"{len(fitting)} of the stored trajectories", shortened=True)


def _lengths_in(config: TrainConfig, name: str, tokenizer: Any, *, required: bool) -> EpisodeLengths:
    prompt, limit = _first_prompt(config, name, tokenizer)
    trajectories = _play(config, name, tokenizer, required=required)
    if not trajectories:
        return _assumed(prompt, limit)
    shortened = not isinstance(config.agent.context_policy(), FullHistory)
    return _measured(trajectories, limit, source=name, shortened=shortened)


def _assumed(prompt: int, limit: int) -> EpisodeLengths:
    turns = max(1.0, USED_TURNS * limit)
    tokens = prompt + turns * (REPLY_TOKENS + TURN_TOKENS)
    return EpisodeLengths(
        source="",
        prompt=prompt,
        limit=limit,
        turns=turns,
        reply=REPLY_TOKENS,
        longest_reply=REPLY_TOKENS,
        observation=TURN_TOKENS,
        tokens=tokens,
        pairs=tokens**2 / 2,
        sample=ceil(tokens),
    )


def _measured(trajectories: Sequence[Trajectory], limit: int, *, source: str, shortened: bool) -> EpisodeLengths:
    episodes = [samples_with_end(trajectory, i) for i, trajectory in enumerate(trajectories)]
    first = [samples[0] for samples in episodes]
    prompts = [sample.mask.index(1) for sample in first]
    read = sum(len(sample) - prompt - sample.sampled for sample, prompt in zip(first, prompts, strict=True))
    turns = fmean(len(trajectory.turns) for trajectory in trajectories)
    return EpisodeLengths(
        source=source,
        prompt=max(prompts),
        limit=limit,
        turns=turns,
        reply=fmean(sum(sample.sampled for sample in samples) for samples in episodes) / turns,
        longest_reply=max(len(call.ids) for t in trajectories for turn in t.turns for call in turn.action.calls),
        observation=read / sum(len(set(sample.turn_index) - {-1}) for sample in first),
        tokens=fmean(sum(map(len, samples)) for samples in episodes),
        pairs=fmean(sum(len(sample) ** 2 / 2 for sample in samples) for samples in episodes),
        sample=max(len(sample) for samples in episodes for sample in samples),
        shortened=shortened,
        env_seconds=fmean(sum(turn.env_seconds for turn in trajectory.turns) for trajectory in trajectories),
    )


def _first_prompt(config: TrainConfig, name: str, tokenizer: Any) -> tuple[int, int]:
    """Return the length of a first prompt in tokens, and the maximum number of turns."""
    env = EnvFactory.of(name, kwargs=config.env.kwargs, wrappers=_wrappers(config))()
    try:
        observation, info = env.reset(seed=config.run.seed)
        limit = info.get("max_turns") or getattr(env, "max_turns", None) or 1
        limit = min([limit, *config.env.schedule.stages[-1:]])
    finally:
        env.close()
    return len(tokenizer(text_of(observation))["input_ids"]) + TURN_TOKENS, limit


def _wrappers(config: TrainConfig) -> tuple[Any, ...]:
    """Return the run's wrappers, with the last horizon if it has several."""
    stages = config.env.schedule.stages
    return (*config.env.all_wrappers, *([("Horizon", {"turns": stages[-1]})] if stages else []))


def _play(config: TrainConfig, name: str, tokenizer: Any, *, required: bool) -> list[Trajectory]:
    """Return the finished episodes of the warm start's player."""
    env, player = config.env, config.warm_start.player
    kwargs = with_split(name, env.kwargs, "train")
    seeds = [child_seed(config.run.seed, "estimate", i) for i in range(EPISODES)]
    result = run_sync(
        collect(
            Demonstrator(tokenizer, player, max_tokens=config.sampling.max_tokens, settings=config.agent),
            [Task(env_id=name, kwargs=kwargs, seed=seed, group=i) for i, seed in enumerate(seeds)],
            wrappers=_wrappers(config),
            step_timeout=env.step_timeout or None,
            reset_timeout=env.reset_timeout or None,
            concurrency=EPISODES,
            fail_on_long_prompt=True,
        )
    )
    if required:
        check_demonstrations(result, player)
    return list(result.trajectories)
