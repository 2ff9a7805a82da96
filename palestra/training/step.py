"""A training step: samples, advantages, minibatches, loss and update.

Synchronous and asynchronous trainers call `reinforcement_step`; offline training and AgentEvol call `cloning_step` and
`preference_step`. With several processes, all of them must call these functions. `reinforcement_step` takes only the
trajectories of its own process; the other functions take all examples and select their shard. Metrics cover all
processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from math import expm1
from random import Random

import torch
from torch import Tensor

from palestra.algorithms.dpo import Pair
from palestra.algorithms.hooks import with_hook_advantages
from palestra.algorithms.importance import MAX_LOG_RATIO
from palestra.algorithms.losses import LossInputs, LossOutput, sequence_logprobs, sft_loss
from palestra.errors import BadValue, EngineFailed, TrainingDiverged
from palestra.rollout.samples import TrainingSample, to_batch
from palestra.rollout.types import Trajectory
from palestra.seeding import child_seed
from palestra.training.batch import MicroBatch, minibatches, staleness, with_observations
from palestra.training.corrections import apply_importance
from palestra.training.learner import Learner
from palestra.training.policy import Policy
from palestra.training.precompute import (
    assign_advantages,
    assign_entropy_weights,
    assign_start_ids,
    final_values,
    precompute,
    to_episodes,
)
from palestra.training.trust_region import TrustRegion

MAX_ENGINE_KL = 0.2  # maximum KL between the engine's log-probs and the learner's for the same weights


def reinforcement_step(
    learner: Learner,
    trajectories: Sequence[Trajectory],
    step: int,
    *,
    version: int | None = None,
    teacher_logprobs: Sequence[list[float]] | None = None,
) -> dict[str, float]:
    """Train on one step's trajectories: compute advantages, then make `epochs` times `minibatches` updates.

    `version` is the version of the current weights; importance weights correct samples from older versions.
    `teacher_logprobs` contains the log-probs of the tokens in each sample under a teacher that is not in this process.
    """
    algorithm, config = learner.policy_gradient, learner.config
    samples = to_batch(trajectories)
    if teacher_logprobs is not None:
        for sample, logprobs in zip(samples, teacher_logprobs, strict=True):
            sample.teacher_logprobs = logprobs
    metrics = _staleness_metrics(learner, trajectories, version)
    corrected = metrics.get("staleness_max", 0) > 0 or algorithm.config.is_correction == "always"

    columns = precompute(learner, samples, corrected=corrected)
    importance = None
    if corrected:
        importance, is_metrics = apply_importance(learner, samples, len(trajectories))
        metrics |= is_metrics
        if metrics.get("staleness_max") == 0:
            metrics["engine_kl"] = _mismatch_kl(learner, samples)
    last_values = final_values(learner, trajectories)
    shards = learner.distributed.gather(to_episodes(trajectories, samples, last_values, algorithm.level, importance))
    episodes = [episode for shard in shards for episode in shard]
    advantages = with_hook_advantages(algorithm.config.advantage_hook, episodes, algorithm.advantages(episodes))
    adaptive, limits = learner.adaptive, algorithm.config
    entropy, success = _entropy_and_success(learner, samples, trajectories)
    adaptive.observe_entropy(entropy, success, limits)
    metrics |= {**advantages.metrics, "signal": float(advantages.signal), "lr": learner.policy_rate(step)}
    metrics["gamma"] = limits.discount if learner.policy.critic is not None else limits.discount_of(episodes)
    if not advantages.signal:
        return metrics  # all advantages are zero, so the gradient would be zero
    first = sum(map(len, shards[: learner.distributed.rank]))
    assign_advantages(samples, advantages, first, algorithm.level)

    learner.optimizer.set_lr(metrics["lr"], algorithm.value_lr, algorithm.critic_lr, ignore_small_gradients=True)
    entropy_coef = limits.entropy_coef(entropy) * adaptive.entropy_scale
    metrics["entropy_coef"] = entropy_coef
    factor = adaptive.failed_factor(success, limits)
    if entropy_coef and factor > 1:
        metrics["entropy_coef_failed"] = entropy_coef * factor
        assign_entropy_weights(samples, [1.0 if trajectory.success else factor for trajectory in trajectories])
        columns |= {"entropy_weights"}
    if limits.kl_unsolved:
        assign_start_ids(learner, samples, trajectories, child_seed(config.run.seed, "start ids", step))
        kept = set(advantages.kept)
        own = [sample for sample in samples if first + sample.episode in kept]
        tokens = sum(token >= 0 for sample in own for token in sample.start_ids or ())
        counts = learner.distributed.sum([float(tokens), float(sum(sample.sampled for sample in own))])
        metrics["unsolved"] = counts[0] / max(1.0, counts[1])
        columns |= {"start_ids"}
    rng = Random(child_seed(config.run.seed, "minibatches", step))
    updates: list[dict[str, float]] = []
    parts = config.optimizer.minibatches
    passes = _passes(config.optimizer.epochs, lambda: minibatches(advantages.kept, parts, rng))
    scale = adaptive.kl_scale(entropy, success)
    target, limit = limits.target_kl * scale, limits.kl_backtrack * scale
    region = TrustRegion(learner, target=target, limit=limit, entropy=entropy, on_policy=not corrected)
    for chosen in passes:
        minibatch = [sample for sample in samples if first + sample.episode in chosen]
        update = policy_gradients(learner, minibatch, columns, entropy_coef=entropy_coef)
        if update is None:
            continue  # the importance mask rejected every token in the minibatch
        if not updates:
            region.offset = update["step_kl"]
        elif region.reached(update["step_kl"]):
            break  # the remaining minibatches would be off-policy
        updates.append(update | {"grad_norm": learner.apply()})

    metrics["updates"] = len(updates)
    if not updates:
        return metrics
    if version is not None and not corrected:
        metrics["engine_kl"] = _check_engine(updates[0]["approx_kl"])
    metrics |= {name: sum(update[name] for update in updates) / len(updates) for name in updates[0]}
    if region.target or region.limit:
        metrics["step_kl"], metrics["step_unsampled"] = region.finish(samples, columns)
    if region.backtracked:
        metrics["backtracked"] = 1.0
    if region.target:
        adaptive.observe_kl(
            metrics["step_kl"], region.target, updates=len(updates), planned=len(passes), rejected=region.backtracked
        )
    if metrics["approx_kl"] > algorithm.config.max_kl > 0:
        raise TrainingDiverged(
            f"the KL from the policy that sampled the episodes is {metrics['approx_kl']:.3g}, above max_kl="
            f"{algorithm.config.max_kl:g}. Lower --lr or raise --minibatches; the last checkpoint is intact"
        )
    return metrics


def _check_engine(kl: float) -> float:
    """Return the KL from the engine's log-probs to the learner's before the first update, when both are the same model.

    Raises EngineFailed if it is larger than differences in numerical precision can explain.
    """
    if kl > MAX_ENGINE_KL:
        raise EngineFailed(
            f"the engine's log-probabilities do not match the weights: the KL is {kl:.3g} before the first update of a "
            f"step, above {MAX_ENGINE_KL:g}. Check that the engine samples from the published weights and reports "
            "log-probabilities at the sampling temperature; the last checkpoint is intact"
        )
    return kl


def _mismatch_kl(learner: Learner, samples: Sequence[TrainingSample]) -> float:
    """Estimate the KL from the engine's policy to the learner's at the start of the step, for fresh samples."""
    total, count = 0.0, 0
    for sample in samples:
        columns = zip(sample.proximal_logprobs or (), sample.old_logprobs or (), sample.mask, strict=True)
        ratios = [min(ours - engine, MAX_LOG_RATIO) for ours, engine, sampled in columns if sampled]
        total += sum(expm1(ratio) - ratio for ratio in ratios)
        count += len(ratios)
    total, tokens = learner.distributed.sum([total, float(count)])
    return total / max(1.0, tokens)


def policy_gradients(
    learner: Learner, samples: Sequence[TrainingSample], columns: frozenset[str], *, entropy_coef: float | None = None
) -> dict[str, float] | None:
    """Compute the gradient on a minibatch, summed over its micro-batches, and return its metrics.

    Returns None if no token is in the loss.
    """
    algorithm = learner.policy_gradient
    if entropy_coef is None:
        entropy_coef = algorithm.config.entropy or 0.0
    critic = learner.policy.critic is not None
    columns = columns | {"advantages", "returns"} if critic else columns | {"advantages"}
    batches = learner.micro_batches(samples, columns)
    denominators = learner.denominators(batches, length=learner.constant_length)
    if not denominators.tokens > 0:
        return None
    positions = [learner.value_positions(batch) if critic else None for batch in batches]
    values = learner.distributed.sum([float(sum(int(p.sum()) for p in positions if p is not None))])[0]
    learner.optimizer.zero_grad()
    parts: list[dict[str, Tensor]] = []
    for batch, value_mask in zip(batches, positions, strict=True):
        start_ids = batch.column("start_ids")
        scores = learner.policy.score(
            batch, entropy=True, entropy_gradient=entropy_coef != 0, values=value_mask, other_ids=start_ids
        )
        inputs = LossInputs(
            logprobs=scores.logprobs,
            old_logprobs=_required(batch, "old_logprobs"),
            advantages=_required(batch, "advantages"),
            mask=batch.loss_mask,
            proximal_logprobs=batch.column("proximal_logprobs"),
            weights=batch.column("weights"),
            ref_logprobs=batch.column("ref_logprobs"),
            entropy=scores.entropy,
            entropy_weights=batch.column("entropy_weights"),
            other_logprobs=scores.other_logprobs,
            lengths=batch.lengths,
            ratio_ids=batch.ratio_ids(algorithm.ratio_level),
        )
        output: LossOutput = algorithm.loss(inputs, denominators, entropy_coef=entropy_coef)
        loss = output.loss
        if value_mask is not None and scores.values is not None:
            critic_output = algorithm.critic_loss(
                scores.values,
                _required(batch, "returns"),
                value_mask,
                denominator=values,
                old_values=batch.column("values"),
            )
            loss = loss + critic_output.loss
            output.metrics.update(critic_output.metrics)
        learner.backward(loss)
        parts.append(output.metrics)
    return learner.combine(parts)


def cloning_step(
    learner: Learner,
    trajectories: Sequence[Trajectory],
    weights: Sequence[Sequence[float]],
    lr: float,
    *,
    observations: bool = False,
) -> dict[str, float]:
    """Make one behavior-cloning update that increases the probability of the actions, weighted per turn.

    With `observations`, the loss also includes the tokens in observations, with weight 1.
    """
    return clone_samples(learner, to_batch(trajectories), weights, lr, observation_weight=1.0 if observations else 0.0)


def clone_samples(
    learner: Learner,
    samples: Sequence[TrainingSample],
    weights: Sequence[Sequence[float]],
    lr: float,
    *,
    observation_weight: float = 0.0,
    ignore_small_gradients: bool = False,
) -> dict[str, float]:
    """Make a behavior-cloning update on samples; `weights` has one list per episode, with one number per turn.

    If `observation_weight` is not 0, the model also learns to predict the observations, whose tokens have this weight.
    `ignore_small_gradients` is explained in `Optimizer.set_lr`.
    """
    if observation_weight:
        samples = with_observations(samples)
    batches = learner.micro_batches(learner.distributed.shard(samples))
    token_weights = [batch.from_turns(weights, observation_weight) for batch in batches]
    denominators = learner.denominators(batches, weights=token_weights)
    if not denominators.tokens > 0:
        return {"signal": 0.0}  # every weight is zero
    learner.optimizer.set_lr(lr, 0.0, ignore_small_gradients=ignore_small_gradients)
    learner.optimizer.zero_grad()
    total = 0.0
    for batch, weight in zip(batches, token_weights, strict=True):
        loss = sft_loss(learner.policy.score(batch).logprobs, weight, batch.mask, denominators).loss
        learner.backward(loss)
        total += loss.item()
    return {"loss": learner.distributed.sum([total])[0], "grad_norm": learner.apply()}


def preference_step(
    learner: Learner, pairs: Sequence[Pair], lr: float, loss: Callable[[Tensor, Tensor, Tensor, Tensor], LossOutput]
) -> dict[str, float]:
    """Update the weights once on preference pairs, relative to the learner's reference model.

    `loss` takes the log-probs of whole trajectories (chosen, rejected, and both under the reference model). These are
    first computed without gradient. The gradient of the loss with respect to them is then used as the weight for the
    tokens, so that a pair's trajectories need not fit into one micro-batch.
    """
    if learner.reference is None:
        raise BadValue("a preference loss requires a reference model; create Learner(policy, config, reference)")
    trajectories = [t for pair in pairs for t in (pair.chosen, pair.rejected)]
    batches = learner.micro_batches(learner.distributed.shard(to_batch(trajectories)))
    logprobs = _trajectory_logprobs(learner, learner.policy, batches, trajectories).requires_grad_()
    reference = _trajectory_logprobs(learner, learner.reference, batches, trajectories)
    output = loss(logprobs[0::2], logprobs[1::2], reference[0::2], reference[1::2])
    (slopes,) = torch.autograd.grad(output.loss, logprobs)
    weights = [[slope] * len(t.turns) for slope, t in zip(slopes.tolist(), trajectories, strict=True)]
    learner.optimizer.set_lr(lr, 0.0)
    learner.optimizer.zero_grad()
    for batch in batches:
        weighted = learner.policy.score(batch).logprobs * batch.from_turns(weights)
        learner.backward(weighted.masked_fill(~batch.mask, 0.0).sum())
    metrics = {name: value.item() for name, value in output.metrics.items() if not name.endswith("_loss")}
    metrics["loss"] = output.loss.item()
    return metrics | {"grad_norm": learner.apply()}


def score_at_temperature_one(learner: Learner) -> None:
    """Make the learner score trajectories at temperature 1, regardless of the sampling temperature."""
    for policy in (learner.policy, learner.reference):
        if policy is not None:
            policy.temperature = 1.0


def _passes(epochs: int, split: Callable[[], list[list[int]]]) -> list[set[int]]:
    """Return the minibatches for all epochs as sets of episode indices."""
    return [set(part) for _ in range(epochs) for part in split()]


def _staleness_metrics(learner: Learner, trajectories: Sequence[Trajectory], version: int | None) -> dict[str, float]:
    """Return the age of the samples in weight versions."""
    if version is None:
        return {}
    ages = learner.distributed.gather(staleness(trajectories, version))
    mean = sum(total for total, _, _ in ages) / max(1, sum(count for _, count, _ in ages))
    oldest = max(age for _, _, age in ages)
    return {"staleness_mean": mean, "staleness_max": oldest}


def _entropy_and_success(
    learner: Learner, samples: Sequence[TrainingSample], trajectories: Sequence[Trajectory]
) -> tuple[float, float]:
    """Return the mean negative log-prob per sampled token, which estimates the entropy, and the success rate."""
    nll = -sum(chain.from_iterable(sample.old_logprobs or () for sample in samples))  # 0 if a token was not sampled
    successes = sum(bool(t.success) for t in trajectories)
    counts = [nll, sum(sample.sampled for sample in samples), successes, len(trajectories)]
    total, tokens, solved, played = learner.distributed.sum([float(count) for count in counts])
    return total / max(1.0, tokens), solved / max(1.0, played)


@torch.no_grad()
def _trajectory_logprobs(
    learner: Learner, policy: Policy, batches: Sequence[MicroBatch], trajectories: Sequence[Trajectory]
) -> Tensor:
    """Return log p for each trajectory: the sum over its sampled tokens in the micro-batches on all processes."""
    total = torch.zeros(len(trajectories), dtype=torch.float64)
    indices = [[float(i)] * len(t.turns) for i, t in enumerate(trajectories)]
    for batch in batches:
        owner = batch.from_turns(indices).long()
        total += sequence_logprobs(policy.score(batch).logprobs, batch.mask, owner, len(trajectories)).cpu()
    return torch.tensor(learner.distributed.sum(total.tolist()), dtype=torch.float64)


def _required(batch: MicroBatch, name: str) -> Tensor:
    column = batch.column(name)
    if column is None:
        raise ValueError(f"the samples have no column {name!r}; call precompute first")
    return column
