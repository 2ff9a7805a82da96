"""Importance weights: correct samples from a policy that differs from the one being trained.

The sampling policy differs if samples come from older weights, or if the inference engine computes slightly different
probabilities from the learner. The ratio of a token is p_learner / p_sampler, at the start of the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, inf
from typing import Literal, get_args

from palestra.errors import BadValue

Level = Literal["token", "turn", "sequence", "geometric"]
MAX_LOG_RATIO = 20.0  # bound on log-ratios in nats, to avoid overflow


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportanceOptions:
    """Options for `importance_weights`."""

    clip: float = 0.0  # truncate weights at this value; 0 disables truncation
    level: Level = "token"  # level at which weights are computed
    mask: tuple[float, float] | None = None  # reject tokens whose ratio is outside this interval
    mask_level: Level = "token"  # level of the ratios that are compared with `mask`

    def __post_init__(self) -> None:
        if not self.clip >= 0:
            raise BadValue(f"clip must be at least 0, got {self.clip}")
        if self.mask is not None and not 0 <= self.mask[0] < self.mask[1]:
            raise BadValue(f"mask must be (low, high) with 0 <= low < high, got {self.mask}")
        for level in (self.level, self.mask_level):
            if level not in get_args(Level):
                raise BadValue(f"level and mask_level must be one of {', '.join(get_args(Level))}; got {level!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Importance:
    """Importance weights of one episode, with one entry per sampled token."""

    ratios: list[float]  # ratios before truncation, at the level of the weights
    weights: list[float]
    keep: list[bool]  # False excludes the token from the loss and its denominators
    episode: float  # truncated product of all ratios: the episode's weight in means over episodes


def importance_weights(log_ratios: Sequence[float], turns: Sequence[int], options: ImportanceOptions) -> Importance:
    """Return the importance weights of one episode from the log-ratio and the turn of each sampled token.

    With the log-ratio l, the weight of a token is exp(l) ("token"), exp(sum of l) over its turn ("turn") or its episode
    ("sequence"), or exp(mean of l) over its episode ("geometric").
    """
    cap = options.clip or inf
    ratios = _ratios(log_ratios, turns, options.level)
    low, high = options.mask or (0.0, inf)
    compared = ratios if options.mask_level == options.level else _ratios(log_ratios, turns, options.mask_level)
    return Importance(
        ratios=ratios,
        weights=[min(ratio, cap) for ratio in ratios],
        keep=[low <= ratio <= high for ratio in compared],
        episode=min(_exp(fsum(log_ratios)), cap),
    )


def turn_ratios(log_ratios: Sequence[float], turns: Sequence[int], cap: float) -> list[float]:
    """Return the truncated product of the token ratios in each turn."""
    sums = _sums(log_ratios, turns)
    return [min(_exp(sums[turn]), cap or inf) for turn in sorted(sums)]


def _ratios(log_ratios: Sequence[float], turns: Sequence[int], level: Level) -> list[float]:
    if level == "token":
        return [_exp(number) for number in log_ratios]
    if level == "turn":
        sums = _sums(log_ratios, turns)
        return [_exp(sums[turn]) for turn in turns]
    total = fsum(log_ratios) / (len(log_ratios) if level == "geometric" and log_ratios else 1)
    return [_exp(total)] * len(log_ratios)


def _sums(numbers: Sequence[float], turns: Sequence[int]) -> dict[int, float]:
    sums: dict[int, float] = {}
    for number, turn in zip(numbers, turns, strict=True):
        sums[turn] = sums.get(turn, 0.0) + number
    return sums


def _exp(number: float) -> float:
    return exp(min(max(number, -MAX_LOG_RATIO), MAX_LOG_RATIO))
