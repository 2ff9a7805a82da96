"""CISPO: clip the importance weight instead of the update, so that every token has a gradient (arXiv 2506.13585)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from palestra.algorithms.base import AlgorithmConfig
from palestra.algorithms.grpo import GroupRelative, GRPOConfig
from palestra.algorithms.options import LossOptions, changed_default


@dataclass(frozen=True, kw_only=True)
class CISPOConfig(GRPOConfig):
    """Options for CISPO."""

    clip_low: float = changed_default(GRPOConfig, "clip_low", 1.0)
    clip_high: float = changed_default(GRPOConfig, "clip_high", 4.0)


class CISPO(GroupRelative[CISPOConfig]):
    """L = -mean over tokens of clip(r, 1 - clip_low, 1 + clip_high) A log p, where the clipped ratio has no gradient.

    Advantages are those of GRPO. By default, only the upper bound is active, as in the paper.
    """

    name: ClassVar[str] = "cispo"
    config_class: ClassVar[type[AlgorithmConfig]] = CISPOConfig

    def loss_options(self) -> LossOptions:
        return replace(super().loss_options(), objective="cispo")
