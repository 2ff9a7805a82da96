"""Settings that follow the measurements of each step: learning rate, KL limits and entropy bonus.

The state is saved in checkpoints, so that a resumed run continues with the same values. All inputs are sums over all
processes, so every process computes the same state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from palestra.algorithms.base import PolicyGradientConfig
from palestra.training.config import TrainConfig

MAX_RISE, MAX_FALL = 1.25, 1.5  # largest factors by which the learning rate rises and falls per step
ENTROPY_CHANGE = 1.5  # factor by which the entropy bonus changes per step
MIN_RATE = 0.01  # smallest learning rate, as a fraction of the highest one
MIN_KL_SCALE = 0.2  # smallest factor of the KL limits of a policy whose entropy has fallen
FEW_FAILURES = 0.2  # fraction of failed episodes below which that factor shrinks in proportion to it
SOLVED_KL_SCALE = 0.02  # smallest factor if almost no episode fails
MAX_ENTROPY_SCALE = 10.0  # largest factor of the entropy bonus


@dataclass(slots=True, kw_only=True)
class AdaptiveState:
    """Values that change from step to step."""

    rate: float  # learning rate as a fraction of the highest one
    entropy_scale: float = 1.0  # factor of the entropy bonus
    start_entropy: float = 0.0  # mean entropy per token in the first step; 0: not yet known

    @classmethod
    def of(cls, config: TrainConfig) -> AdaptiveState:
        return cls(rate=config.optimizer.lr_start)

    def state_dict(self) -> dict[str, float]:
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for item in fields(self):
            setattr(self, item.name, float(state[item.name]))

    def kl_scale(self, entropy: float, success: float) -> float:
        """Return the factor of the KL limits for a policy with this entropy per token and success rate.

        The limits shrink with the entropy: a change that hardly affects a random policy can ruin one that is almost
        deterministic. If few episodes fail, the smallest factor shrinks with them. There is little left to gain then,
        the gradient depends on a few episodes, and a KL of 0.005 per token, or 0.06 in an episode of 12 tokens, can
        change the outcome of one episode in six.
        """
        if not self.start_entropy > 0:
            return 1.0
        lowest = max(SOLVED_KL_SCALE, MIN_KL_SCALE * min(1.0, (1 - success) / FEW_FAILURES))
        return min(1.0, max(lowest, entropy / self.start_entropy))

    def observe_entropy(self, entropy: float, success: float, config: PolicyGradientConfig) -> None:
        """Adapt the entropy bonus to a step's entropy per token and success rate.

        The bonus grows while the entropy is below its lower limit, a fraction of the initial entropy that falls to zero
        as the success rate rises to 1, and otherwise shrinks back.
        """
        if not self.start_entropy > 0:
            self.start_entropy = entropy
        floor = (config.entropy_floor or 0.0) * self.start_entropy * (1 - success)
        change = ENTROPY_CHANGE if entropy < floor else 1 / ENTROPY_CHANGE
        self.entropy_scale = min(MAX_ENTROPY_SCALE, max(1.0, self.entropy_scale * change))

    def failed_factor(self, success: float, config: PolicyGradientConfig) -> float:
        """Return the factor of the entropy bonus in failed episodes at this success rate.

        The fewer episodes fail, the more the actions in them have to be varied to find better ones. A policy whose
        replies are almost deterministic also in failed episodes stops learning. The other episodes need no larger
        bonus, which would make their replies worse.
        """
        largest = (config.entropy_failed or 1.0) / self.entropy_scale
        return max(1.0, min(largest, 1 / (1 - success)) if success < 1 else largest)

    def observe_kl(self, kl: float, target: float, *, updates: int, planned: int, rejected: bool) -> None:
        """Adapt the learning rate to a step's KL.

        `kl` is the KL after `updates` of the `planned` updates. The KL grows with the square of the learning rate, and
        at least in proportion to the number of updates.
        """
        if rejected or not updates:
            change = 1 / MAX_FALL
        else:
            whole = max(kl, 1e-12) * planned / updates
            change = min(MAX_RISE, max(1 / MAX_FALL, math.sqrt(target / whole)))
        self.rate = min(1.0, max(MIN_RATE, self.rate * change))

    def lower_rate(self) -> None:
        """Halve the learning rate, after the weights were rolled back."""
        self.rate = max(MIN_RATE, self.rate / 2)
