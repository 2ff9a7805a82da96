"""Fill the sample columns that the loss needs and that must be computed before the first update in a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

from palestra.algorithms import Advantages, Episode, to_tokens, to_turns
from palestra.algorithms.base import Level
from palestra.algorithms.losses import kl_reward
from palestra.rollout.samples import TrainingSample
from palestra.rollout.types import Trajectory
from palestra.seeding import child_seed
from palestra.training.batch import MicroBatch
from palestra.training.corrections import EpisodeImportance, samples_by_episode

if TYPE_CHECKING:
    from palestra.training.distributed import DistributedContext
    from palestra.training.learner import Learner

MIN_VISITS = 4  # minimum number of visits of an unsolved state


@torch.no_grad()
def precompute(learner: Learner, samples: Sequence[TrainingSample], *, corrected: bool) -> frozenset[str]:
    """Fill in the required critic values and log-probs under other policies; return the names of the filled columns.

    The engine reports log-probs at the sampling temperature. With `corrected`, the learner's log-probs at the start of
    the step are proximal log-probs, and importance weights correct their difference from the engine's. Otherwise, old
    log-probs at a temperature other than 1 are recomputed, because an engine may support only temperature 1.
    """
    rescore = corrected or learner.config.sampling.temperature != 1.0
    critic = learner.policy.critic is not None
    columns = {"old_logprobs"}
    if corrected:
        columns |= {"proximal_logprobs", "weights", "loss_mask"}
    if critic:
        columns.add("values")
    options = learner.policy_gradient.config
    # With `kl_unsolved` alone, the reference model only samples tokens.
    reference = learner.reference if options.kl or not options.kl_unsolved else None
    others = {"ref_logprobs": reference, "teacher_logprobs": learner.teacher}
    columns |= {name for name, policy in others.items() if policy is not None}
    if any(sample.teacher_logprobs is not None for sample in samples):
        columns.add("teacher_logprobs")  # computed by a teacher behind a server
    for sample in samples:
        sample.old_logprobs = sample.logprobs
    if not (rescore or len(columns) > 1):
        return frozenset(columns)
    for micro_batch in learner.micro_batches(samples):
        if rescore or critic:
            scores = learner.policy.score(micro_batch, values=learner.value_positions(micro_batch) if critic else None)
            if rescore:
                _store(micro_batch, "proximal_logprobs" if corrected else "old_logprobs", scores.logprobs)
            if scores.values is not None:
                _store(micro_batch, "values", scores.values)
        for name, policy in others.items():
            if policy is not None:
                _store(micro_batch, name, policy.score(micro_batch).logprobs)
    return frozenset(columns)


@torch.no_grad()
def final_values(learner: Learner, trajectories: Sequence[Trajectory]) -> list[float]:
    """Return the critic's value for the final state of each truncated trajectory, and 0 for all other trajectories."""
    values = [0.0] * len(trajectories)
    if learner.policy.critic is None:
        return values
    prompts = [TrainingSample.of_prompt(t.final_prompt, i) for i, t in enumerate(trajectories) if t.final_prompt]
    for micro_batch in learner.micro_batches(prompts):
        scored = learner.policy.score(micro_batch, values=micro_batch.ends).values
        if scored is not None and prompts:
            for sample, numbers in zip(micro_batch.samples, micro_batch.read(scored), strict=True):
                values[sample.episode] = numbers[-1]
    return values


def to_episodes(
    trajectories: Sequence[Trajectory],
    samples: Sequence[TrainingSample],
    last_values: Sequence[float],
    level: Level,
    importance: Sequence[EpisodeImportance] | None = None,
) -> list[Episode]:
    """Convert trajectories to episodes, the inputs of advantage estimators."""
    by_episode = samples_by_episode(samples, len(trajectories))
    episodes = []
    for i, (trajectory, own) in enumerate(zip(trajectories, by_episode, strict=True)):
        values = _values(own, level)
        weights = EpisodeImportance() if importance is None else importance[i]
        episodes.append(
            Episode.from_trajectory(
                trajectory,
                values=values if level == "turn" else None,
                token_values=values if level == "token" else None,
                last_value=last_values[i],
                kl=_kl(own, len(trajectory.turns)),
                teacher_kl=_teacher_kl(own),
                weight=weights.weight,
                ratios=weights.ratios if level == "turn" else None,
                token_ratios=weights.token_ratios if level == "token" else None,
            )
        )
    return episodes


def assign_advantages(samples: Sequence[TrainingSample], advantages: Advantages, first: int, level: Level) -> None:
    """Fill the `advantages` and `returns` columns from the rows of `advantages`, where episode 0 is row `first`."""
    for sample in samples:
        row = first + sample.episode
        sample.advantages = _per_token(advantages.advantages[row], sample, level)
        if advantages.returns is not None:
            sample.returns = _per_token(advantages.returns[row], sample, level)


def assign_entropy_weights(samples: Sequence[TrainingSample], weights: Sequence[float]) -> None:
    """Fill the `entropy_weights` column with one weight per episode."""
    for sample in samples:
        sample.entropy_weights = [weights[sample.episode]] * len(sample)


@torch.no_grad()
def assign_start_ids(
    learner: Learner, samples: Sequence[TrainingSample], trajectories: Sequence[Trajectory], seed: int
) -> None:
    """Fill `start_ids` with tokens that the reference model samples in unsolved states.

    The mean of -log p over these tokens is KL(reference || policy) plus the entropy of the reference model, which is
    constant.
    """
    reference = learner.reference
    if reference is None:
        raise ValueError("the learner has no reference model")
    unsolved: dict[int, frozenset[int]] = {}  # turns by sample
    for sample, turns in zip(samples, unsolved_turns(samples, trajectories, learner.distributed), strict=True):
        sample.start_ids = [-1] * len(sample)
        if turns:
            unsolved[id(sample)] = turns
    generator = torch.Generator(reference.device).manual_seed(child_seed(seed, learner.distributed.rank))
    for micro_batch in learner.micro_batches([sample for sample in samples if id(sample) in unsolved]):
        ids = micro_batch.read(reference.sample(micro_batch, generator), -1)
        for sample, own in zip(micro_batch.samples, ids, strict=True):
            turns = unsolved.get(id(sample), frozenset())  # none: a blank sample
            sample.start_ids = [
                int(token) if turn in turns else -1 for token, turn in zip(own, sample.turn_index, strict=True)
            ]


def unsolved_turns(
    samples: Sequence[TrainingSample], trajectories: Sequence[Trajectory], distributed: DistributedContext
) -> list[frozenset[int]]:
    """Return, for each sample, its turns in unsolved states.

    The state is the conversation so far. It is unsolved if it occurred at least `MIN_VISITS` times in the step and
    never led to success or to a positive return, as with partial credit, which shows which actions are better. If no
    state led to either, as in an environment whose rewards are only costs, there are no unsolved states.
    """
    returns = [list(accumulate(turn.reward for turn in reversed(t.turns)))[::-1] for t in trajectories]
    visits: Counter[int] = Counter()
    solved: set[int] = set()
    states: list[dict[int, int]] = []
    for sample in samples:
        state, last = 0, 0
        own: dict[int, int] = {}
        for i, turn in enumerate(sample.turn_index):
            if turn >= 0 and turn not in own:
                state = hash((state, tuple(sample.ids[last:i])))  # the same in all processes
                own[turn], last = state, i
                if returns[sample.episode][turn] > 0:
                    solved.add(state)
        states.append(own)
        visits.update(own.values())
        if trajectories[sample.episode].success:
            solved.update(own.values())
    shards = distributed.gather((visits, solved))
    total = sum((counts for counts, _ in shards), Counter[int]())
    good = set[int]().union(*(part for _, part in shards))
    unsolved = {state for state, count in total.items() if count >= MIN_VISITS and good} - good
    return [frozenset(turn for turn, state in own.items() if state in unsolved) for own in states]


def _per_token(numbers: Sequence[float], sample: TrainingSample, level: Level) -> list[float]:
    if level == "turn":
        return to_tokens(numbers, sample.turn_index)
    own = iter(numbers[sample.offset : sample.offset + sample.sampled])
    return [next(own) if sampled else 0.0 for sampled in sample.mask]


def _store(micro_batch: MicroBatch, column: str, numbers: torch.Tensor) -> None:
    for sample, values in zip(micro_batch.samples, micro_batch.read(numbers), strict=True):
        setattr(sample, column, values)


def _values(samples: Sequence[TrainingSample], level: Level) -> list[float] | None:
    """Return the critic's values for an episode in order: one per turn or one per sampled token."""
    if not samples or samples[0].values is None:
        return None
    if level == "token":
        return [
            value
            for sample in samples
            for value, sampled in zip(sample.values or (), sample.mask, strict=True)
            if sampled
        ]
    of_turn: dict[int, float] = {}
    for sample in samples:
        for turn, value in zip(sample.turn_index, sample.values or (), strict=True):
            if turn >= 0:
                of_turn.setdefault(turn, value)  # value at the first sampled token of the turn
    return [value for _, value in sorted(of_turn.items())]


def _teacher_kl(samples: Sequence[TrainingSample]) -> list[float] | None:
    """Return log p / p_teacher for each sampled token in an episode."""
    if not samples or samples[0].teacher_logprobs is None:
        return None
    return [
        old - teacher
        for sample in samples
        for old, teacher, sampled in zip(
            sample.old_logprobs or (), sample.teacher_logprobs or (), sample.mask, strict=True
        )
        if sampled
    ]


def _kl(samples: Sequence[TrainingSample], turns: int) -> list[float] | None:
    """Return the KL from the sampling policy to the reference model, summed over the tokens in each turn."""
    if not samples or samples[0].ref_logprobs is None:
        return None
    sums = [0.0] * turns
    for sample in samples:
        old, ref = torch.tensor([sample.old_logprobs]), torch.tensor([sample.ref_logprobs])
        penalty = kl_reward(old, ref, torch.tensor([sample.mask]))[0].tolist()
        sums = [a + b for a, b in zip(sums, to_turns(penalty, sample.turn_index, turns), strict=True)]
    return sums
