"""DAPO: GRPO with a higher upper clip, dynamic sampling and rules for overlong replies (arXiv 2503.14476)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from palestra.algorithms.base import AlgorithmConfig
from palestra.algorithms.episode import Advantages, Episode
from palestra.algorithms.grpo import GroupRelative, GRPOConfig
from palestra.algorithms.options import changed_default, option
from palestra.errors import BadValue


@dataclass(frozen=True, kw_only=True)
class DAPOConfig(GRPOConfig):
    """Options for DAPO."""

    clip_high: float = changed_default(GRPOConfig, "clip_high", 0.28)
    mask_overlong: bool = option(
        True,
        "Exclude from the loss all episodes whose last reply reached --max-tokens or whose context was full, because "
        "their reward reflects the truncation rather than the content.",
    )
    overlong_length: int = option(
        0,
        "Reply length in tokens at which the length penalty reaches its maximum of 1; 0 disables the penalty. Set it "
        "to --max-tokens or less.",
        at_least=0,
    )
    overlong_buffer: int = option(
        0,
        "Number of tokens before --overlong-length over which the length penalty grows linearly from 0 to 1.",
        at_least=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.overlong_buffer > self.overlong_length:
            raise BadValue(
                f"overlong_buffer must be at most overlong_length, got {self.overlong_buffer} and "
                f"{self.overlong_length}; set --overlong-length to the length with the full penalty"
            )


def length_penalty(tokens: int, *, length: int, buffer: int) -> float:
    """Return 0 up to `length` - `buffer` tokens, then a linear decrease to -1 at `length` tokens, then -1."""
    if tokens <= length - buffer:
        return 0.0
    return -1.0 if tokens >= length else (length - buffer - tokens) / buffer


class DAPO(GroupRelative[DAPOConfig]):
    """A_t = (R - mean_group(R)) / std_group(R), with the length penalty of each turn added to its reward.

    Dynamic sampling replaces groups whose returns are all equal (`--dynamic-sampling`).
    """

    name: ClassVar[str] = "dapo"
    config_class: ClassVar[type[AlgorithmConfig]] = DAPOConfig
    defaults: ClassVar[Mapping[str, Any]] = {"group_size": 8, "dynamic_sampling": 3}

    def advantages(self, episodes: Sequence[Episode]) -> Advantages:
        config = self.config
        penalized = [self._penalized(episode) for episode in episodes]
        result = super().advantages(penalized)
        if not config.mask_overlong:
            return result
        excluded = result.excluded or [False] * len(episodes)
        cut = [episode.cut for episode in episodes]
        metrics = {**result.metrics, "overlong": sum(cut) / max(1, len(cut))}
        return replace(result, excluded=[a or b for a, b in zip(excluded, cut, strict=True)], metrics=metrics)

    def _penalized(self, episode: Episode) -> Episode:
        length, buffer = self.config.overlong_length, self.config.overlong_buffer
        if not length:
            return episode
        if episode.reply_tokens is None:
            raise BadValue(f"{episode.label}: the length penalty needs `reply_tokens`, the token count of each reply")
        rewards = [
            reward + length_penalty(tokens, length=length, buffer=buffer)
            for reward, tokens in zip(episode.rewards, episode.reply_tokens, strict=True)
        ]
        return replace(episode, rewards=rewards)
