"""One update: trajectories of a step in, better weights and metrics out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from random import Random

import torch
from torch import Tensor

from palestra.algorithms import Algorithm, Credit, LossOptions
from palestra.algorithms.losses import Denominators, LossInputs, combine, policy_loss, sft_loss, value_loss
from palestra.algorithms.registry import configured
from palestra.errors import BadValue, TrainingDiverged
from palestra.rollout.types import Trajectory
from palestra.seeding import child_seed
from palestra.training.batch import Micro, Row, blank, everything, micro_batches, minibatches, rows_of, staleness
from palestra.training.config import TrainConfig
from palestra.training.distributed import World
from palestra.training.optim import Optimiser
from palestra.training.policy import Policy
from palestra.training.precompute import Before

LOOKED_AT = 64  # rows that tell how far an update went


def learning_rate(config: TrainConfig, step: int) -> float:
    """Warm-up, then a straight line down; a pure function of the step."""
    if step < config.lr_warmup:
        return config.lr * (step + 1) / (config.lr_warmup + 1)
    rest = max(1, config.steps - config.lr_warmup)
    return config.lr * (1 - (1 - config.lr_final) * min(1.0, (step - config.lr_warmup) / rest))


def algorithm_of(config: TrainConfig) -> Algorithm:
    """The algorithm a config names, with the options it has."""
    return configured(config.to_dict())


class Learner:
    """Holds the policy, its optimiser and, where asked, a frozen reference.

    Where there are several processes each calls every method, with its own share of the trajectories unless said
    otherwise; the numbers that come back are those of all.
    """

    publishes = True  # False: whoever calls brings what is sampled from up to date, when nothing is being sampled

    def __init__(
        self, policy: Policy, config: TrainConfig, reference: Policy | None = None, world: World | None = None
    ) -> None:
        self.policy = policy
        self.config = config
        self.reference = reference
        self.world = world or World()
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

    def learn(self, trajectories: Sequence[Trajectory], step: int, *, version: int | None = None) -> dict[str, float]:
        """Credit, then `epochs` times `minibatches` updates.

        `version` is that of the weights before; where some samples are older, the loss corrects for it.
        """
        config = self.config
        metrics: dict[str, float] = {}
        options = self.options
        if version is not None:
            ages = self.world.gather(staleness(trajectories, version))
            metrics["stale_mean"] = sum(total for total, _, _ in ages) / max(1, sum(count for _, count, _ in ages))
            metrics["stale_max"] = max(most for _, _, most in ages)
            if metrics["stale_max"]:
                options = self._for_stale()
        rows = rows_of(trajectories)
        before = self._before(rows, trajectories, anchor=options is not self.options)
        shares = self.world.gather([before.episode(i, t) for i, t in enumerate(trajectories)])
        first = sum(len(share) for share in shares[: self.world.rank])
        count = sum(len(share) for share in shares)
        credit = self.algorithm.credit([episode for share in shares for episode in share])
        metrics |= {f"credit_{name}": value for name, value in credit.metrics.items()}
        if "credit_explained_variance" in metrics:
            metrics["explained_variance"] = metrics.pop("credit_explained_variance")
        metrics["signal"] = float(credit.signal)
        metrics["lr"] = learning_rate(config, step)
        if not credit.signal:
            return metrics  # nothing to learn from: the weights stay as they are
        mine = _part(credit, first, first + len(trajectories))
        self.optimiser.rates(metrics["lr"], config.value_lr)
        found: list[dict[str, float]] = []
        rng = Random(child_seed(config.seed, "minibatches", step))
        parts = [part for _ in range(config.epochs) for part in minibatches(count, config.minibatches, rng)]
        for part in parts:
            chosen = set(part)
            chosen_rows = [row for row in rows if first + row.episode in chosen]
            kept = self.optimiser.kept() if config.kl_back else None
            found.append(self._update(chosen_rows, mine, before, options))
            if kept is not None and self._held_back(kept, chosen_rows, before):
                metrics["held_back"] = 1.0
                break  # what comes next is better learned from new samples
            if found[-1]["step_kl"] > config.kl_stop > 0:
                break  # the policy has left the one of the step's begin: the rest would be learned from hearsay
        metrics["updates"] = len(found)
        for name in found[0]:
            metrics[name] = sum(item[name] for item in found) / len(found)
        if metrics["approx_kl"] > config.kl_limit > 0:
            raise TrainingDiverged(
                f"the policy ran away from the one that sampled (KL {metrics['approx_kl']:.3g}, the limit is "
                f"{config.kl_limit:g}). Lower lr or raise minibatches; the last checkpoint is still good"
            )
        return metrics

    def clone(self, trajectories: Sequence[Trajectory], lr: float, *, observations: bool = False) -> float:
        """One supervised update on transcripts, on what the player wrote or also on what it was told; the loss.

        Every process is given all transcripts, and reads its share.
        """
        rows = rows_of(trajectories)
        if observations:
            rows = everything(rows)
        self.optimiser.rates(lr, 0.0)
        micros = self.micros(self.world.share(rows))
        denominators = self._denominators(micros, 1.0)
        self.optimiser.zero_grad()
        total = 0.0
        for micro in micros:
            scores = self.policy.score(micro)
            weights = torch.ones_like(scores.logprobs)
            loss = sft_loss(scores.logprobs, weights, micro.mask, denominators, lengths=micro.lengths).loss
            self.backward(loss)
            total += loss.item()
        self.apply()
        return self.world.total([total])[0]

    # The parts, which other ways to learn use too

    def micros(self, rows: Sequence[Row]) -> list[Micro]:
        """The rows in micro-batches, as many as every other process has."""
        config, device = self.config, self.policy.device
        # Cut-up weights come together for a layer's output; the keys of a prefix leave by a side door.
        share = self.policy.separate is None and self.world.size == 1
        found = micro_batches(rows, config.token_budget, device, share=share, pack=config.packing)
        return found + [blank(device)] * (self.world.most(len(found)) - len(found))

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a micro-batch's share of the loss."""
        # Gradients are averaged over processes; the loss is a sum over them.
        (loss * self.world.size if self.world.size > 1 else loss).backward()  # type: ignore[no-untyped-call]
        self.optimiser.collect()

    def apply(self) -> float:
        """Move the weights, also those that are sampled from; the gradient's norm before it was clipped."""
        self.optimiser.collect()
        norm = self.optimiser.clip(self.config.max_grad_norm)
        if not math.isfinite(norm):
            raise TrainingDiverged(
                "the gradient is no longer a number. Lower lr or raise clipping; the last checkpoint is still good"
            )
        self.optimiser.step()
        self._publish()
        return norm

    def _publish(self) -> None:
        if self.publishes:
            self.policy.publish()

    def _update(self, rows: list[Row], credit: Credit, before: Before, options: LossOptions) -> dict[str, float]:
        config = self.config
        micros = self.micros(rows)
        denominators = self._denominators(micros, float(config.max_tokens))
        critic = self.policy.critic is not None
        asked = self.world.total([float(sum(int(self._judged(micro).sum()) for micro in micros))])[0] if critic else 0.0
        self.optimiser.zero_grad()
        parts: list[dict[str, Tensor]] = []
        for micro in micros:
            spread = micro.from_turns if self.algorithm.level == "turn" else micro.from_sampled
            places = self._judged(micro) if critic else None
            scores = self.policy.score(micro, entropy=True, entropy_gradient=config.entropy > 0, values=places)
            inputs = LossInputs(
                logprobs=scores.logprobs,
                old_logprobs=before.old_logprobs(micro),
                advantages=spread(credit.advantages),
                mask=micro.mask,
                anchor_logprobs=before.anchor_logprobs(micro),
                ref_logprobs=before.ref_logprobs(micro),
                entropy=scores.entropy,
                lengths=micro.lengths,
            )
            output = policy_loss(inputs, denominators, options)
            loss = output.loss
            if places is not None and scores.values is not None and credit.returns is not None:
                judged = value_loss(
                    scores.values,
                    spread(credit.returns),
                    places,
                    denominator=asked,
                    old_values=before.old_values(micro),
                    clip=config.value_clip or None,
                )
                loss = loss + judged.loss
                output.metrics.update(judged.metrics)
            self.backward(loss)
            parts.append(output.metrics)
        metrics = self._combined(parts)
        metrics["grad_norm"] = self.apply()
        return metrics

    def _held_back(self, kept: list[Tensor], rows: list[Row], before: Before) -> bool:
        """Make the update since `kept` smaller where it went too far, until it does not; did it?

        A quarter of it, a quarter of that, and where that is still too much nothing.
        """
        shares = [0.75, 0.75, 1.0]
        while shares and not self._moved(rows, before) <= self.config.kl_back:  # NaN is too far as well
            self.optimiser.go_back(kept, shares.pop(0))
            self._publish()
        return len(shares) < 3

    @torch.no_grad()
    def _moved(self, rows: list[Row], before: Before) -> float:
        """KL from the policy of the step's begin to the one of now, on some of the rows just learned from."""
        total, count = 0.0, 0.0
        for micro in self.micros(rows[:: max(1, len(rows) // LOOKED_AT)]):
            then = before.anchor_logprobs(micro)
            lately = self.policy.score(micro).logprobs - (before.old_logprobs(micro) if then is None else then)
            lately = lately.double().masked_fill(~micro.mask, 0.0)
            total += float((torch.expm1(lately) - lately).sum())
            count += float(micro.mask.sum())
        total, count = self.world.total([total, count])
        return total / max(1.0, count)

    def _judged(self, micro: Micro) -> Tensor:
        """Where the critic is asked."""
        return micro.turn_starts if self.algorithm.level == "turn" else micro.mask

    def _for_stale(self) -> LossOptions:
        config = self.config
        if config.temperature != 1.0 or config.top_p != 1.0:
            raise BadValue(
                "samples of older weights can be corrected only where they were drawn from the model as it is: "
                "asynchronous collection needs temperature 1 and top_p 1"
            )
        keep = (config.stale_keep_low, config.stale_keep_high) if config.stale_keep_high else None
        return replace(self.options, cap=config.stale_cap or None, keep=keep)

    @torch.no_grad()
    def _before(self, rows: list[Row], trajectories: Sequence[Trajectory], *, anchor: bool) -> Before:
        """What must be known of the samples before the first update: values, the reference's view, the KL."""
        config = self.config
        again = config.temperature != 1.0 or config.top_p != 1.0  # the engine's are of the model at temperature 1
        critic = self.policy.critic is not None
        found = Before(rows, level=self.algorithm.level)
        if again or anchor or critic or self.reference is not None:
            for micro in self.micros(rows):
                if again or anchor or critic:
                    scores = self.policy.score(micro, values=self._judged(micro) if critic else None)
                    if again or anchor:
                        found.note("anchor" if anchor else "old", micro, scores.logprobs)
                    if scores.values is not None:
                        found.note("values", micro, scores.values)
                if self.reference is not None:
                    found.note("ref", micro, self.reference.score(micro).logprobs)
        if critic:
            prompts = [Row.prompt(t.final_prompt, i) for i, t in enumerate(trajectories) if t.final_prompt]
            for micro in self.micros(prompts):
                found.note_last(micro, self.policy.score(micro, values=micro.ends).values)
        return found

    def _denominators(self, micros: Sequence[Micro], length: float) -> Denominators:
        parts = [Denominators.of(micro.mask, lengths=micro.lengths, length=length) for micro in micros]
        tokens, sequences = self.world.total([sum(d.tokens for d in parts), sum(d.sequences for d in parts)])
        return Denominators(tokens=tokens, sequences=sequences, length=length)

    def _combined(self, parts: Sequence[dict[str, Tensor]]) -> dict[str, float]:
        if self.world.size == 1:
            return combine(parts)
        shares = self.world.gather(combine(parts))
        return combine([{name: torch.tensor(value, dtype=torch.float64) for name, value in s.items()} for s in shares])


def _part(credit: Credit, start: int, stop: int) -> Credit:
    """The credit of some of the episodes."""
    returns = None if credit.returns is None else credit.returns[start:stop]
    return replace(credit, advantages=credit.advantages[start:stop], returns=returns)
