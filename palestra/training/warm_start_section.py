"""The base class of config sections, and the `[warm_start]` section. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from palestra.errors import BadValue
from palestra.options import check_options, option


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
        "model and 0 otherwise.",
        flag="warm_start",
        at_least=-1,
    )
    epochs: int = option(
        1, "Number of passes over the warm-start episodes.", flag="warm_epochs", untrained=3, at_least=1
    )
    batch: int = option(16, "Number of episodes per optimizer update in the warm start.", flag="warm_batch", at_least=1)
    lr: float = option(1e-5, "Peak learning rate in the warm start.", flag="warm_lr", untrained=8e-3, at_least=0)
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
        1,
        "Number of parts into which the expert's episodes are divided (DAgger). In every part but the first, the model "
        "plays some of the turns itself and learns from the expert's other actions how to continue after its own "
        "mistakes.",
        flag="warm_rounds",
        at_least=1,
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

    @property
    def all_epochs(self) -> int:
        """Number of epochs in all rounds."""
        return self.rounds * self.epochs
