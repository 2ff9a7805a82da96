"""On-policy distillation: train on the student's own episodes with the reverse KL to a teacher as advantage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from palestra.algorithms.base import AlgorithmConfig, Level, PolicyGradient, PolicyGradientConfig
from palestra.algorithms.episode import Advantages, Episode, turn_returns
from palestra.algorithms.normalize import env_keys, normalize, weights_of
from palestra.algorithms.options import changed_default, option
from palestra.errors import BadValue


@dataclass(frozen=True, kw_only=True)
class DistillConfig(PolicyGradientConfig):
    """Options for on-policy distillation."""

    teacher: str = option(
        "",
        "Teacher model with the same tokenizer: a local folder, a Hugging Face id, the folder of a training run, or "
        "the URL of an OpenAI-compatible server that returns log-probabilities of prompts (vLLM, SGLang).",
    )
    reward_coef: float = option(
        0.0,
        "Coefficient of the batch-normalized return that is added to the advantages; 0 trains only toward the teacher.",
        at_least=0,
    )
    kl_unsolved: float = changed_default(PolicyGradientConfig, "kl_unsolved", 0.0)  # the teacher knows better actions


class Distill(PolicyGradient[DistillConfig]):
    """A_i = log p_teacher(token i) - log p(token i) + reward_coef (G_t - mean(G)) / std(G).

    The sum over sampled tokens of the first part is an unbiased estimate of the negative reverse KL, KL(p || teacher).
    """

    name: ClassVar[str] = "distill"
    config_class: ClassVar[type[AlgorithmConfig]] = DistillConfig
    level: ClassVar[Level] = "token"

    @property
    def teacher(self) -> str:  # type: ignore[override]
        if not self.config.teacher:
            raise BadValue("distill needs a teacher model: --teacher FOLDER or a Hugging Face id")
        return self.config.teacher

    def advantages(self, episodes: Sequence[Episode]) -> Advantages:
        config = self.config
        returns = turn_returns(episodes, gamma=config.discount_of(episodes), kl_coef=config.kl_in_reward)
        rewards, metrics = normalize(returns, env_keys(episodes, True), scale=True, weights=weights_of(episodes))
        advantages = []
        for episode, row in zip(episodes, rewards, strict=True):
            if episode.teacher_kl is None or episode.token_turns is None:
                raise BadValue(f"{episode.label}: distill needs `teacher_kl`, one number per sampled token")
            advantages.append(
                [
                    config.reward_coef * row[turn] - kl
                    for turn, kl in zip(episode.token_turns, episode.teacher_kl, strict=True)
                ]
            )
        gaps = [kl for episode in episodes for kl in episode.teacher_kl or ()]
        metrics["teacher_kl"] = sum(gaps) / max(1, len(gaps))
        return Advantages(advantages=advantages, metrics=metrics)
