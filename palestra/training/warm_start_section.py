"""The base class of config sections, and the `[warm_start]` section. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from palestra.errors import BadValue
from palestra.options import BySize, check_options, is_unset, option

UNTRAINED_EPISODES = 3000
EXPERT_EPISODES = 16_000  # for a pretrained model that imitates an expert
EPISODES_PER_ROUND = 1000
RANDOM_RATE = BySize(small=5e-5, large=1e-5)
EXPERT_RATE = BySize(small=4e-4, large=1e-5)


@dataclass(frozen=True, kw_only=True)
class Section:
    """Base class for config sections. Options are validated on construction."""

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True, kw_only=True)
class WarmStartConfig(Section):
    """`[warm_start]` section: supervised training on a scripted player's episodes before RL."""

    episodes: int = option(
        -1,
        "Number of episodes by a scripted player that the model imitates before RL; -1 means 3000 for an untrained "
        "model, and for a pretrained one 16000 with --warm-player expert and otherwise 0.",
        flag="warm_start",
        at_least=-1,
    )
    epochs: int = option(
        1, "Number of passes over the warm-start episodes.", flag="warm_epochs", untrained=3, at_least=1
    )
    batch: int = option(
        0,
        "Number of episodes per optimizer update in the warm start; 0 means 32 with several rounds and 16 otherwise.",
        flag="warm_batch",
        at_least=0,
    )
    lr: float = option(
        RANDOM_RATE,
        "Peak learning rate in the warm start; for a pretrained model with up to 135M parameters that imitates an "
        "expert, the default is 4e-4.",
        flag="warm_lr",
        untrained=8e-3,
        at_least=0,
    )
    observations: bool = option(
        False,
        "During the warm start, also train on observation tokens, which teaches an untrained model the environment's "
        "language.",
        flag="warm_observations",
        untrained=True,
    )
    observation_weight: float = option(
        1.0,
        "Weight of an observation token in the warm start, relative to an action token. Lower it if observations are "
        "long or contain random text that cannot be predicted.",
        flag="warm_observation_weight",
        above=0,
    )
    ignore_small_gradients: bool = option(
        False,
        "In the warm start, let AdamW, which updates the embeddings beside Muon, divide by at least a fraction of the "
        "typical gradient, as it does in RL, so that the embeddings of rare tokens do not become similar. Use it for a "
        "long warm start in which rare tokens have to be copied.",
        flag="warm_ignore_small_gradients",
    )
    evaluate: bool = option(
        False,
        "Also evaluate the model before the warm start and after each of its epochs; these evaluations have negative "
        "step numbers.",
        flag="warm_evaluate",
    )
    player: Literal["random", "expert"] = option(
        "random",
        "Scripted player to imitate in the warm start: 'random' teaches the action format and, with --warm-beta, which "
        "actions are better than chance; 'expert' teaches its strategy.",
        flag="warm_player",
        choices=("random", "expert"),
    )
    beta: float = option(
        0.0,
        "Temperature of advantage-weighted regression in the last epoch of the warm start: the weight of a random "
        "player's action is proportional to exp(A / beta), at most 20, where A is its normalized return. Lower values "
        "favor actions with high returns more; 0 gives all actions the same weight.",
        flag="warm_beta",
        untrained=1.0,
        at_least=0,
    )
    rounds: int = option(
        0,
        "Number of parts into which the expert's episodes are divided (DAgger). In every part but the first, the model "
        "plays some of the turns itself and learns from the expert's other actions how to continue after its own "
        "mistakes. 0 means one part per 1000 episodes for a pretrained model that imitates an expert, and 1 otherwise.",
        flag="warm_rounds",
        at_least=0,
    )
    own_actions: float = option(
        0.5,
        "With several rounds, the fraction of turns that the model plays itself and does not imitate.",
        flag="warm_own_actions",
        at_least=0,
        below=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds > 1 and self.player != "expert":
            raise BadValue(
                "several rounds of the warm start need an expert that continues the model's episodes; add "
                "--warm-player expert, or use --warm-rounds 1"
            )
        if 0 < self.episodes < self.rounds:
            raise BadValue(
                f"{self.episodes} episodes cannot be divided into {self.rounds} rounds; raise --warm-start or lower "
                "--warm-rounds"
            )

    def count(self, *, trained: bool) -> int:
        """Return the number of episodes for an untrained or a pretrained model."""
        if self.episodes >= 0:
            return self.episodes
        if not trained:
            return UNTRAINED_EPISODES
        return EXPERT_EPISODES if self.player == "expert" else 0

    def resolved(self, *, trained: bool) -> WarmStartConfig:
        """Return the section with values for the options whose default depends on the player."""
        several = trained and self.player == "expert"
        rounds = self.rounds or max(1, self.count(trained=trained) // EPISODES_PER_ROUND if several else 1)
        return replace(self, rounds=rounds, batch=self.batch or (32 if rounds > 1 else 16))

    def for_size(self, parameters: int) -> WarmStartConfig:
        """Return the section with the learning rate for a pretrained model with this number of parameters."""
        return replace(self, lr=self.rate.at(parameters)) if is_unset(self, "lr") else self

    @property
    def rate(self) -> BySize:
        """Learning rate for a pretrained model without LoRA, unless another one was set."""
        return EXPERT_RATE if self.player == "expert" else RANDOM_RATE

    @property
    def all_epochs(self) -> int:
        """Number of epochs in all rounds."""
        return self.rounds * self.epochs
