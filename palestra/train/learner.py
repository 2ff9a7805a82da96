"""One update: trajectories of a step in, better weights and metrics out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from random import Random
from typing import Any

import torch
from torch import Tensor

from palestra.algorithms import Algorithm, Credit, Episode, LossOptions, explained_variance, make_algorithm, to_turns
from palestra.algorithms.losses import Denominators, LossInputs, combine, kl_reward, policy_loss, sft_loss, value_loss
from palestra.errors import BadValue
from palestra.rollout.types import Trajectory
from palestra.seeding import child_seed
from palestra.train.batch import Micro, Row, everything, micro_batches, minibatches, rows_of
from palestra.train.config import TrainConfig
from palestra.train.model import Policy
from palestra.train.optim import Optimiser


class Diverged(BadValue):
    """The numbers are no longer numbers; the last checkpoint is still good."""


def learning_rate(config: TrainConfig, step: int) -> float:
    """Warm-up, then a straight line down; a pure function of the step."""
    if step < config.lr_warmup:
        return config.lr * (step + 1) / (config.lr_warmup + 1)
    rest = max(1, config.steps - config.lr_warmup)
    return config.lr * (1 - (1 - config.lr_final) * min(1.0, (step - config.lr_warmup) / rest))


def algorithm_of(config: TrainConfig) -> Algorithm:
    """The algorithm a config names, with the options it has."""
    options: dict[str, Any] = {"gamma": config.gamma}
    if config.kl and config.kl_in == "reward":
        options["beta"] = config.kl
    if config.algo == "grpo":
        options["normalise"] = config.normalise
    if config.algo == "ppo":
        options["lam"] = config.lam
    return make_algorithm(config.algo, **options)


class Learner:
    """Holds the policy, its optimiser and, where asked, a frozen reference."""

    hold: Callable[[], AbstractContextManager[None]] = staticmethod(nullcontext)  # around every write of the weights

    def __init__(self, policy: Policy, config: TrainConfig, reference: Policy | None = None) -> None:
        self.policy = policy
        self.config = config
        self.reference = reference
        self.optimiser = Optimiser(config.optimiser, policy.model, policy.critic, weight_decay=config.weight_decay)
        in_loss = config.kl if config.kl_in == "loss" else 0.0
        self.options = LossOptions(
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            aggregate=config.aggregate,  # type: ignore[arg-type]  # checked by the config
            kl_coef=in_loss,
            kl_estimator=config.kl_estimator,  # type: ignore[arg-type]
            entropy_coef=config.entropy,
        )

    @cached_property
    def algorithm(self) -> Algorithm:
        """How turns get their credit; cloning and preferences have no such thing."""
        return algorithm_of(self.config)

    def learn(self, trajectories: Sequence[Trajectory], step: int) -> dict[str, float]:
        """Credit, then `epochs` times `minibatches` updates."""
        config = self.config
        rows = rows_of(trajectories)
        before = self._before(rows)
        episodes = [
            Episode.of(t, values=before.values(i, len(t.turns)), kl=before.kl(i, len(t.turns)))
            for i, t in enumerate(trajectories)
        ]
        credit = self.algorithm.credit(episodes)
        metrics: dict[str, float] = {f"credit_{name}": value for name, value in credit.metrics.items()}
        metrics["signal"] = float(credit.signal)
        metrics["lr"] = learning_rate(config, step)
        if credit.returns is not None and before.turn_values is not None:
            metrics["explained_variance"] = explained_variance(credit.returns, before.turn_values)
        if not credit.signal:
            return metrics  # nothing to learn from: the weights stay as they are
        self.optimiser.rates(metrics["lr"], config.value_lr)
        found: list[dict[str, float]] = []
        rng = Random(child_seed(config.seed, "minibatches", step))
        parts = [part for _ in range(config.epochs) for part in minibatches(len(trajectories), config.minibatches, rng)]
        for part in parts:
            chosen = set(part)
            found.append(self._update([row for row in rows if row.episode in chosen], credit, before))
            if found[-1]["approx_kl"] > config.kl_stop > 0:
                break  # the policy has left the one that sampled: the rest of the step would be learned from hearsay
        metrics["updates"] = len(found)
        for name in found[0]:
            metrics[name] = sum(item[name] for item in found) / len(found)
        return metrics

    def clone(self, trajectories: Sequence[Trajectory], lr: float, *, observations: bool = False) -> float:
        """One supervised update on transcripts, on what the player wrote or also on what it was told; the loss."""
        rows = rows_of(trajectories)
        if observations:
            rows = everything(rows)
        self.optimiser.rates(lr, 0.0)
        micros = micro_batches(rows, self.config.token_budget, self.policy.device)
        denominators = _denominators(micros, 1.0)
        self.optimiser.zero_grad()
        total = 0.0
        for micro in micros:
            scores = self.policy.score(micro)
            loss = sft_loss(scores.logprobs, torch.ones_like(scores.logprobs), micro.mask, denominators).loss
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        self._apply()
        return total

    def _update(self, rows: list[Row], credit: Credit, before: _Before) -> dict[str, float]:
        config = self.config
        micros = micro_batches(rows, config.token_budget, self.policy.device)
        denominators = _denominators(micros, float(config.max_tokens))
        turns = sum(int(micro.turn_starts.sum()) for micro in micros)
        critic = self.policy.critic is not None
        self.optimiser.zero_grad()
        parts: list[dict[str, Tensor]] = []
        for micro in micros:
            scores = self.policy.score(micro, entropy=True, values=critic)
            inputs = LossInputs(
                logprobs=scores.logprobs,
                old_logprobs=before.old_logprobs(micro),
                advantages=micro.from_turns(credit.advantages),
                mask=micro.mask,
                ref_logprobs=before.ref_logprobs(micro),
                entropy=scores.entropy,
            )
            output = policy_loss(inputs, denominators, self.options)
            loss = output.loss
            if critic and scores.values is not None and credit.returns is not None:
                judged = value_loss(
                    scores.values,
                    micro.from_turns(credit.returns),
                    micro.turn_starts,
                    denominator=turns,
                    old_values=micro.from_turns(before.turn_values or []),
                    clip=config.value_clip or None,
                )
                loss = loss + judged.loss
                output.metrics.update(judged.metrics)
            loss.backward()  # type: ignore[no-untyped-call]
            parts.append(output.metrics)
        metrics = combine(parts)
        metrics["grad_norm"] = self._apply()
        return metrics

    def _apply(self) -> float:
        norm = float(torch.nn.utils.clip_grad_norm_(self.optimiser.parameters, self.config.max_grad_norm))
        if not math.isfinite(norm):
            raise Diverged(
                "the gradient is no longer a number. Lower lr or raise clipping; the last checkpoint is still good"
            )
        with self.hold():
            self.optimiser.step()
        return norm

    @torch.no_grad()
    def _before(self, rows: list[Row]) -> _Before:
        """What must be known of the samples before the first update: values, the reference's view, the KL."""
        config = self.config
        again = config.temperature != 1.0 or config.top_p != 1.0  # the engine's are of the model at temperature 1
        found = _Before(again)
        if not (again or self.policy.critic is not None or self.reference is not None):
            return found
        for micro in micro_batches(rows, config.token_budget, self.policy.device):
            scores = ref = None
            if again or self.policy.critic is not None:
                scores = self.policy.score(micro, values=self.policy.critic is not None)
            if self.reference is not None:
                ref = self.reference.score(micro).logprobs
            found.note(micro, scores.logprobs if scores else None, scores.values if scores else None, ref)
        found.settle(rows)
        return found


class _Before:
    """Per row and episode: log-probabilities, reference log-probabilities and values from before the update."""

    def __init__(self, again: bool) -> None:
        self._again = again
        self._old: dict[int, list[float]] = {}
        self._ref: dict[int, list[float]] = {}
        self._values: dict[int, dict[int, float]] = {}
        self._kl: dict[int, dict[int, float]] = {}
        self.turn_values: list[list[float]] | None = None

    def note(self, micro: Micro, logprobs: Tensor | None, values: Tensor | None, ref: Tensor | None) -> None:
        for i, row in enumerate(micro.rows):
            size = len(row.ids)
            if logprobs is not None and self._again:
                self._old[id(row)] = logprobs[i, :size].tolist()
            if values is not None:
                of_turn = self._values.setdefault(row.episode, {})
                for turn, value, start in zip(
                    row.turn_index, values[i, :size].tolist(), micro.turn_starts[i, :size].tolist(), strict=True
                ):
                    if start:
                        of_turn.setdefault(turn, value)
            if ref is not None:
                self._ref[id(row)] = ref[i, :size].tolist()
                old = torch.tensor(self._old.get(id(row), row.logprobs))
                mask = torch.tensor(row.mask, dtype=torch.bool)
                penalty = kl_reward(old[None], ref[i, :size].cpu()[None], mask[None])[0].tolist()
                turns = max(row.turn_index) + 1
                for turn, value in enumerate(to_turns(penalty, row.turn_index, turns)):
                    sums = self._kl.setdefault(row.episode, {})
                    sums[turn] = sums.get(turn, 0.0) + value

    def settle(self, rows: list[Row]) -> None:
        if self._values:
            count = max(row.episode for row in rows) + 1
            self.turn_values = [[v for _, v in sorted(self._values.get(i, {}).items())] for i in range(count)]

    def values(self, episode: int, turns: int) -> list[float] | None:
        del turns
        return None if self.turn_values is None else self.turn_values[episode]

    def kl(self, episode: int, turns: int) -> list[float] | None:
        if not self._kl:
            return None
        return [self._kl[episode].get(turn, 0.0) for turn in range(turns)]

    def old_logprobs(self, micro: Micro) -> Tensor:
        return micro.fill([self._old[id(row)] for row in micro.rows]) if self._again else micro.old_logprobs

    def ref_logprobs(self, micro: Micro) -> Tensor | None:
        return micro.fill([self._ref[id(row)] for row in micro.rows]) if self._ref else None


def _denominators(micros: Sequence[Micro], length: float) -> Denominators:
    total = Denominators(tokens=0.0, sequences=0.0, length=length)
    for micro in micros:
        total = total + Denominators.of(micro.mask, length=length)
    return total
