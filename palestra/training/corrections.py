"""Apply importance weights to training samples, to correct for samples that the learner's policy did not generate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from palestra.algorithms.importance import ImportanceOptions, importance_weights, turn_ratios
from palestra.rollout.samples import TrainingSample

if TYPE_CHECKING:
    from palestra.training.learner import Learner


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeImportance:
    """Importance weights of one episode for its advantages; see `Episode`."""

    weight: float = 1.0
    ratios: list[float] | None = None
    token_ratios: list[float] | None = None


def samples_by_episode(samples: Sequence[TrainingSample], count: int) -> list[list[TrainingSample]]:
    """Return the samples of each of `count` episodes, in order."""
    by_episode: list[list[TrainingSample]] = [[] for _ in range(count)]
    for sample in samples:
        by_episode[sample.episode].append(sample)
    return by_episode


def apply_importance(
    learner: Learner, samples: Sequence[TrainingSample], count: int
) -> tuple[list[EpisodeImportance], dict[str, float]]:
    """Fill the `weights` and `loss_mask` columns of the samples; return the weights of each episode, and metrics.

    Tokens that the mask rejects are excluded from the policy loss and its denominators.
    """
    options = learner.policy_gradient.config.importance
    episodes, tokens, total, clipped, masked, largest = [], 0, 0.0, 0, 0, 0.0
    for own in samples_by_episode(samples, count):
        log_ratios, turns = _log_ratios(own)
        importance = importance_weights(log_ratios, turns, options)
        _fill(own, importance.weights, importance.keep)
        episodes.append(_episode(log_ratios, turns, importance.episode, options))
        tokens += len(log_ratios)
        total += sum(importance.ratios)
        clipped += sum(ratio > (options.clip or inf) for ratio in importance.ratios)
        masked += importance.keep.count(False)
        largest = max(largest, *importance.ratios) if importance.ratios else largest
    distributed = learner.distributed
    everything, total, clipped_sum, masked_sum = distributed.sum([tokens, total, clipped, masked])
    metrics = {"is_weight_mean": total / max(1.0, everything), "is_weight_max": max(distributed.gather(largest))}
    if options.clip:
        metrics["is_clipped_fraction"] = clipped_sum / max(1.0, everything)
    if options.mask is not None:
        metrics["is_masked_fraction"] = masked_sum / max(1.0, everything)
    return episodes, metrics


def _log_ratios(samples: Sequence[TrainingSample]) -> tuple[list[float], list[int]]:
    """Return log p_proximal / p_old and the turn for each sampled token in an episode."""
    log_ratios, turns = [], []
    for sample in samples:
        columns = zip(
            sample.proximal_logprobs or (), sample.old_logprobs or (), sample.turn_index, sample.mask, strict=True
        )
        for proximal, old, turn, sampled in columns:
            if sampled:
                log_ratios.append(proximal - old)
                turns.append(turn)
    return log_ratios, turns


def _fill(samples: Sequence[TrainingSample], weights: Sequence[float], keep: Sequence[bool]) -> None:
    numbers, flags = iter(weights), iter(keep)
    for sample in samples:
        sample.weights = [next(numbers) if sampled else 0.0 for sampled in sample.mask]
        sample.loss_mask = [int(next(flags)) if sampled else 0 for sampled in sample.mask]
        sample.episode_tokens = sum(keep)


def _episode(
    log_ratios: Sequence[float], turns: Sequence[int], weight: float, options: ImportanceOptions
) -> EpisodeImportance:
    tokens = importance_weights(log_ratios, turns, ImportanceOptions(clip=options.clip)).weights
    return EpisodeImportance(weight=weight, ratios=turn_ratios(log_ratios, turns, options.clip), token_ratios=tokens)
