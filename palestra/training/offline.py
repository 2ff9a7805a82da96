"""Offline training on stored trajectories: SFT on single trajectories and DPO on preference pairs.

A step is one update on `batch` examples. Environments are used only for evaluation.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, ClassVar, Generic, TypeVar

from palestra.algorithms.dpo import Pair
from palestra.errors import BadValue
from palestra.progress import phase
from palestra.rollout.types import Trajectory
from palestra.training import data
from palestra.training.config import TrainConfig
from palestra.training.run import TrainingRun
from palestra.training.step import cloning_step, preference_step, score_at_temperature_one
from palestra.training.trainer import Trainer
from palestra.training.transcripts import Transcriber

E = TypeVar("E", Trajectory, Pair)


class OfflineTrainer(Trainer, Generic[E]):
    """Trainer that makes passes over stored examples in an order determined by the seed."""

    distributed_support = True
    unit: ClassVar[str] = "trajectories"  # name of the examples in log messages

    def __init__(self, config: TrainConfig, **options: Any) -> None:
        # Load the data first, so that unusable data is reported before the model is loaded.
        with phase("reading trajectories"):
            self.stored = data.load(config.algorithm.config.data)
            self.examples: list[E] = config.algorithm.select(self.stored.trajectories)  # type: ignore[attr-defined]
        self._saved_digest: str | None = None
        super().__init__(data.with_planned_steps(config, len(self.examples)), **options)

    @abstractmethod
    async def tokenize(self) -> list[E]:
        """Return the examples with token ids from the model's tokenizer."""

    @abstractmethod
    def update(self, examples: Sequence[E], lr: float) -> dict[str, float]:
        """Update the weights once and return metrics."""

    async def run(self) -> TrainingRun:
        score_at_temperature_one(self.learner)
        skipped = f"; skipped: {self.stored.skipped}" if self.stored.skipped else ""
        self.log(f"training on {len(self.examples)} {self.unit}{skipped}")
        self.examples = await self.tokenize()
        if not self.examples:
            raise BadValue(
                "no stored trajectory fits into the model's context window; use a model with a longer context window"
            )
        data.check_unchanged(self._saved_digest, self.examples, self.config)
        return await super().run()

    async def prepare(self) -> None:
        """Do nothing: offline training needs no preparation."""

    async def iteration(self, step: int) -> dict[str, Any]:
        config = self.config
        batch = config.algorithm.config.batch
        started = perf_counter()
        indices = data.batch_at(step, count=len(self.examples), batch=batch, seed=config.run.seed)
        lr = self.learner.learning_rate(step)
        async with self.engine.paused():
            learned = self.update([self.examples[i] for i in indices], lr)
            self.unpublished = True  # the weights are published when episodes are played
        return {
            "epoch": (step + 1) / data.updates_per_pass(len(self.examples), batch),
            "examples": len(indices),
            "lr": lr,
            **learned,
            "seconds_learning": perf_counter() - started,
        }

    def state(self) -> dict[str, Any]:
        return {"data": data.digest(self.examples)}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self._saved_digest = state["data"]


class CloningTrainer(OfflineTrainer[Trajectory]):
    """Trainer for behavior cloning on the actions in trajectories, and optionally on their observations."""

    async def tokenize(self) -> list[Trajectory]:
        return [t for t in await tokenize(self, self.examples) if t is not None]

    def update(self, examples: Sequence[Trajectory], lr: float) -> dict[str, float]:
        algorithm = self.config.algorithm
        weights = algorithm.turn_weights(examples)  # type: ignore[attr-defined]
        return cloning_step(self.learner, examples, weights, lr, observations=algorithm.config.observations)


class PreferenceTrainer(OfflineTrainer[Pair]):
    """Trainer for preference pairs; the reference model is the model at the start of the run."""

    unit = "pairs"

    async def tokenize(self) -> list[Pair]:
        both = await tokenize(self, [t for pair in self.examples for t in (pair.chosen, pair.rejected)])
        return [
            Pair(chosen=chosen, rejected=rejected, margin=pair.margin)
            for pair, chosen, rejected in zip(self.examples, both[0::2], both[1::2], strict=True)
            if chosen is not None and rejected is not None
        ]

    def update(self, examples: Sequence[Pair], lr: float) -> dict[str, float]:
        return preference_step(self.learner, examples, lr, self.config.algorithm.loss)  # type: ignore[attr-defined]


async def tokenize(trainer: Trainer, trajectories: Sequence[Trajectory]) -> list[Trajectory | None]:
    """Tokenize trajectories with the model's tokenizer and log a summary. Those that are too long become None."""
    policy = trainer.learner.policy
    window = getattr(policy.model.config.get_text_config(), "max_position_embeddings", None)
    transcriber = Transcriber(policy.tokenizer, settings=trainer.config.agent, window=window)
    with phase("tokenizing trajectories"):
        tokenized = await transcriber.tokenize(trajectories)
    if tokenized.rendered:
        trainer.log(
            f"{tokenized.rendered} of {len(trajectories)} trajectories have no token ids of this model's tokenizer; "
            "their texts were rendered with the chat template"
        )
    if tokenized.too_long:
        trainer.log(f"skipped {tokenized.too_long} trajectories longer than the context window of {window} tokens")
    return tokenized.trajectories
