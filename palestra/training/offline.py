"""Train on stored trajectories, nothing is sampled: sft clones what was played, dpo prefers the better of two.

A step is one update on `batch` examples. Runs are kept as those of RL are; environments serve evaluation alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, Generic, TypeVar

from palestra.algorithms.dpo import Pair
from palestra.algorithms.sft import turn_weights
from palestra.errors import BadValue
from palestra.rollout.types import Trajectory
from palestra.training import data
from palestra.training.config import TrainConfig
from palestra.training.learner import learning_rate
from palestra.training.supervised import as_written, clone, prefer
from palestra.training.trainer import Run, Training
from palestra.training.transcripts import Transcriber

E = TypeVar("E", Trajectory, Pair)


class Offline(Training, Generic[E]):
    """Goes through stored examples, several times where asked, in an order that follows from the seed."""

    shared = True

    def __init__(self, config: TrainConfig, **options: Any) -> None:
        self.stored = data.load(config.data)  # before anything heavy: data that will not do is told at once
        self.examples: list[E] = self.choose(config)
        self._began_with: str | None = None
        super().__init__(data.planned(config, len(self.examples)), **options)

    @abstractmethod
    def choose(self, config: TrainConfig) -> list[E]:
        """What to learn from, of what is stored."""

    @abstractmethod
    async def ready(self) -> list[E]:
        """The examples with token ids."""

    @abstractmethod
    def update(self, examples: Sequence[E], lr: float) -> dict[str, float]:
        """Learn from these."""

    async def run(self) -> Run:
        as_written(self.learner)
        found = f"{len(self.examples)} {'pairs' if self.config.algo == 'dpo' else 'trajectories'} to learn from"
        self.say(found + (f"; left out: {self.stored.left_out}" if self.stored.left_out else ""))
        self.examples = await self.ready()
        if not self.examples:
            raise BadValue("no stored trajectory fits in the model's window; train a model with a longer one")
        data.check_same(self._began_with, self.examples, self.config)
        return await super().run()

    async def prepare(self) -> None:
        """Nothing: all that the model is to be shown is in the data."""

    async def iteration(self, step: int) -> dict[str, Any]:
        config = self.config
        began = perf_counter()
        chosen = data.batch_at(step, count=len(self.examples), batch=config.batch, seed=config.seed)
        lr = learning_rate(config, step)
        async with self.engine.paused():
            learned = self.update([self.examples[i] for i in chosen], lr)
            await self.engine.publish(None, self.engine.version + 1)
        return {
            "epoch": (step + 1) / data.updates_a_pass(len(self.examples), config.batch),
            "examples": len(chosen),
            "lr": lr,
            **learned,
            "seconds_learning": perf_counter() - began,
        }

    def state(self) -> dict[str, Any]:
        return {"data": data.digest(self.examples)}

    def resumed(self, state: Mapping[str, Any]) -> None:
        self._began_with = state["data"]


class SFT(Offline[Trajectory]):
    """Clones trajectories: what the player wrote is learned, what it was told is not (unless asked for)."""

    def choose(self, config: TrainConfig) -> list[Trajectory]:
        return data.to_clone(self.stored, keep=config.data_keep)

    async def ready(self) -> list[Trajectory]:
        return [t for t in await with_ids(self, self.examples) if t is not None]

    def update(self, examples: Sequence[Trajectory], lr: float) -> dict[str, float]:
        weights = turn_weights(examples, [1.0] * len(examples), skip_invalid=self.config.skip_invalid)
        return clone(self.learner, examples, weights, lr, observations=self.config.data_observations)


class DPO(Offline[Pair]):
    """Prefers the better of two ways to play a task; the reference is the model the run starts from."""

    @property
    def needs_reference(self) -> bool:
        return True

    def choose(self, config: TrainConfig) -> list[Pair]:
        return data.to_compare(self.stored, margin=config.dpo_margin, per_task=config.dpo_pairs)

    async def ready(self) -> list[Pair]:
        both = await with_ids(self, [t for pair in self.examples for t in (pair.chosen, pair.rejected)])
        return [
            Pair(chosen=chosen, rejected=rejected, margin=pair.margin)
            for pair, chosen, rejected in zip(self.examples, both[0::2], both[1::2], strict=True)
            if chosen is not None and rejected is not None
        ]

    def update(self, examples: Sequence[Pair], lr: float) -> dict[str, float]:
        config = self.config
        return prefer(self.learner, examples, lr, beta=config.dpo_beta, smoothing=config.dpo_smoothing)


async def with_ids(training: Training, trajectories: Sequence[Trajectory]) -> list[Trajectory | None]:
    """The trajectories in the model's own tokens, None where one is too long for it; says what was done."""
    policy = training.learner.policy
    window = getattr(policy.model.config.get_text_config(), "max_position_embeddings", None)
    readied = await Transcriber(policy.tokenizer, system=training.config.system or None, window=window).ready(
        trajectories
    )
    if readied.rendered:
        training.say(
            f"{readied.rendered} of {len(trajectories)} trajectories hold no tokens of this model's; "
            "their words were rendered through its chat template"
        )
    if readied.too_long:
        training.say(f"{readied.too_long} trajectories are longer than the model's window of {window}: left out")
    return readied.trajectories
