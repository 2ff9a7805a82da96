"""Dr. GRPO: GRPO without division by the standard deviation and without length normalization (arXiv 2503.20783)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from palestra.algorithms.base import AlgorithmConfig
from palestra.algorithms.grpo import GroupRelative, GRPOConfig
from palestra.algorithms.options import Aggregate, changed_default


@dataclass(frozen=True, kw_only=True)
class DrGRPOConfig(GRPOConfig):
    """Options for Dr. GRPO."""

    normalize: Literal["std", "none"] = changed_default(GRPOConfig, "normalize", "none")
    aggregate: Aggregate = changed_default(GRPOConfig, "aggregate", "constant")


class DrGRPO(GroupRelative[DrGRPOConfig]):
    """A_t = R - mean_group(R) for every turn; L = mean over episodes of (sum of the token losses) / constant_length."""

    name: ClassVar[str] = "dr_grpo"
    config_class: ClassVar[type[AlgorithmConfig]] = DrGRPOConfig
