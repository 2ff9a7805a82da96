"""Options shared by several algorithms, and the functions that declare options (from `palestra.options`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from palestra.errors import BadValue
from palestra.options import changed_default, check_options, flat_name, kind_of, option

__all__ = [
    "Aggregate",
    "KLEstimator",
    "LossOptions",
    "Objective",
    "changed_default",
    "check_options",
    "flat_name",
    "kind_of",
    "option",
]

Aggregate = Literal["token", "sequence", "constant"]
KLEstimator = Literal["k1", "k2", "k3"]
Objective = Literal["ppo", "cispo"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOptions:
    """Options for `losses.policy_loss`. The defaults are PPO's: a symmetric clip and a mean over tokens."""

    clip_low: float | None = 0.2  # the ratio is clipped at 1 - clip_low; None disables the lower clip
    clip_high: float | None = 0.2  # the ratio is clipped at 1 + clip_high; None disables the upper clip
    clip_dual: float | None = None  # for negative advantages, clip the ratio at this value; None disables this clip
    aggregate: Aggregate = "token"
    objective: Objective = "ppo"  # "cispo" uses the clipped ratio as a constant weight of the log-probability
    kl_coef: float = 0.0  # coefficient of the KL to the reference model in the loss
    kl_estimator: KLEstimator = "k3"
    kl_straight_through: bool = False  # use the estimator's value and the gradient of k2
    entropy_coef: float = 0.0
    other_coef: float = 0.0  # coefficient of the log-probs of other tokens

    def __post_init__(self) -> None:
        if self.clip_low is not None and not 0 <= self.clip_low <= 1:
            raise BadValue(f"clip_low must be in [0, 1] or None, got {self.clip_low}")
        if self.clip_high is not None and not self.clip_high >= 0:
            raise BadValue(f"clip_high must be at least 0 or None, got {self.clip_high}")
        if self.clip_dual is not None and not self.clip_dual > 1:
            raise BadValue(f"clip_dual must be greater than 1 or None, got {self.clip_dual}")
        if self.aggregate not in get_args(Aggregate):
            raise BadValue(f"aggregate must be one of {', '.join(get_args(Aggregate))}; got {self.aggregate!r}")
        if self.objective not in get_args(Objective):
            raise BadValue(f"objective must be one of {', '.join(get_args(Objective))}; got {self.objective!r}")
        if self.kl_estimator not in get_args(KLEstimator):
            raise BadValue(f"kl_estimator must be one of {', '.join(get_args(KLEstimator))}; got {self.kl_estimator!r}")
        if not self.kl_coef >= 0:
            raise BadValue(f"kl_coef must be at least 0, got {self.kl_coef}")
        if self.kl_coef and self.kl_estimator == "k1" and not self.kl_straight_through:
            raise BadValue(
                "the gradient of the k1 estimator is zero on average, so k1 in the loss has no effect. "
                "Use k2 or k3, or kl_straight_through=True, or put the KL into the reward (kl_in='reward')"
            )
