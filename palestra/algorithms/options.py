"""What a policy loss may be told: plain data, so that a config can hold it without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from palestra.errors import BadValue

Aggregate = Literal["token", "sequence", "constant"]
KLEstimator = Literal["k1", "k2", "k3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossOptions:
    """The defaults are PPO's: a symmetric clip, every token of the batch counting the same."""

    clip_low: float | None = 0.2  # the ratio is held above 1 - clip_low; None: that side is free
    clip_high: float | None = 0.2  # and below 1 + clip_high
    aggregate: Aggregate = "token"
    cap: float | None = None  # importance weights of stale samples are cut off here
    keep: tuple[float, float] | None = None  # tokens whose importance weight lies outside teach the policy nothing
    kl_coef: float = 0.0  # of the KL to the reference, as a term of the loss
    kl_estimator: KLEstimator = "k3"
    kl_straight_through: bool = False  # the estimator's value with k2's gradient, which is the KL's own
    entropy_coef: float = 0.0

    def __post_init__(self) -> None:
        if self.clip_low is not None and not 0 <= self.clip_low <= 1:
            raise BadValue(f"clip_low lies in [0, 1] or is None, got {self.clip_low}")
        if self.clip_high is not None and not self.clip_high >= 0:
            raise BadValue(f"clip_high is 0 or more or None, got {self.clip_high}")
        if self.aggregate not in ("token", "sequence", "constant"):
            raise BadValue(f"aggregate is 'token', 'sequence' or 'constant', got {self.aggregate!r}")
        if self.cap is not None and not self.cap > 0:
            raise BadValue(f"cap is above 0 or None, got {self.cap}")
        if self.keep is not None and not 0 <= self.keep[0] < self.keep[1]:
            raise BadValue(f"keep is (low, high) with 0 <= low < high, got {self.keep}")
        if self.kl_estimator not in ("k1", "k2", "k3"):
            raise BadValue(f"kl_estimator is 'k1', 'k2' or 'k3', got {self.kl_estimator!r}")
        if not self.kl_coef >= 0:
            raise BadValue(f"kl_coef is 0 or more, got {self.kl_coef}")
        if self.kl_coef and self.kl_estimator == "k1" and not self.kl_straight_through:
            raise BadValue(
                "k1 has the KL's value but as a term of the loss its gradient is zero on average, so it would hold "
                "nothing back. Take k2 or k3, or kl_straight_through=True, or put the KL into the reward (beta)"
            )

    @property
    def clips(self) -> bool:
        return self.clip_low is not None or self.clip_high is not None
