"""GSPO: clip the probability ratio of whole replies instead of single tokens (arXiv 2507.18071)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from palestra.algorithms.base import AlgorithmConfig, RatioLevel
from palestra.algorithms.grpo import GroupRelative, GRPOConfig
from palestra.algorithms.options import Aggregate, changed_default, option


@dataclass(frozen=True, kw_only=True)
class GSPOConfig(GRPOConfig):
    """Options for GSPO."""

    clip_low: float = changed_default(GRPOConfig, "clip_low", 3e-4)
    clip_high: float = changed_default(GRPOConfig, "clip_high", 4e-4)
    aggregate: Aggregate = changed_default(GRPOConfig, "aggregate", "sequence")
    ratio_over: Literal["turn", "sample"] = option(
        "turn",
        "Tokens that share one length-normalized probability ratio: 'turn' for each reply, 'sample' for all replies in "
        "one token sequence, which is the whole episode unless the chat template splits it.",
        choices=("turn", "sample"),
    )


class GSPO(GroupRelative[GSPOConfig]):
    """L = -agg(min(s A, clip(s, 1 - clip_low, 1 + clip_high) A)); s = (p(y) / p_old(y))^(1 / |y|) for each reply y.

    Advantages are those of GRPO. The ratios of whole replies vary less than those of tokens, so the clipping range is
    much narrower than in GRPO.
    """

    name: ClassVar[str] = "gspo"
    config_class: ClassVar[type[AlgorithmConfig]] = GSPOConfig

    @property
    def ratio_level(self) -> RatioLevel:
        return self.config.ratio_over
