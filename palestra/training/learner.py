"""The learner: policy, optimizer and reference model, with the operations used by every training step."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from palestra.algorithms.base import PolicyGradient
from palestra.algorithms.losses import Denominators, combine
from palestra.engines.default_model import count_parameters
from palestra.errors import BadValue, TrainingDiverged
from palestra.rollout.samples import TrainingSample
from palestra.training.adaptive import AdaptiveState
from palestra.training.batch import MicroBatch, blank, micro_batches
from palestra.training.config import TrainConfig
from palestra.training.distributed import DistributedContext
from palestra.training.fused_ops import is_large
from palestra.training.optim import Optimizer
from palestra.training.policy import Policy

logger = logging.getLogger(__name__)


def learning_rate(config: TrainConfig, step: int, *, steps: int) -> float:
    """Return the linear schedule's rate at `step`: linear warm-up, then linear decay until `steps`, then constant."""
    optimizer = config.optimizer
    if step < optimizer.lr_warmup:
        return optimizer.lr * (step + 1) / (optimizer.lr_warmup + 1)
    rest = max(1, steps - optimizer.lr_warmup)
    return optimizer.lr * (1 - (1 - optimizer.lr_final) * min(1.0, (step - optimizer.lr_warmup) / rest))


class Learner:
    """The policy, its optimizer and, if the algorithm needs one, a frozen reference or teacher model.

    With several processes, each one calls every method with its own samples; sums and metrics cover all processes.
    """

    def __init__(
        self,
        policy: Policy,
        config: TrainConfig,
        reference: Policy | None = None,
        distributed: DistributedContext | None = None,
        teacher: Policy | None = None,
    ) -> None:
        self.policy = policy
        self.config = config = config.with_model_size(count_parameters(policy.model))
        self.reference = reference
        self._longest = 0  # length of the longest sample so far
        self.teacher = teacher
        self.distributed = distributed or DistributedContext()
        self.adaptive = AdaptiveState.of(config)
        self.lr_steps = config.optimizer.lr_steps or config.run.steps  # a resumed run restores the initial value
        self.optimizer = Optimizer(
            config.optimizer.name,
            policy.model,
            policy.critic,
            weight_decay=config.optimizer.weight_decay,
            critic_body=policy.critic_body,
            offload=config.optimizer.offload,
        )
        policy.reserved_bytes = self.optimizer.unallocated_bytes
        if config.optimizer.packing is None and policy.unpackable is not None and is_large(policy.model):
            name = type(policy.model).__name__
            logger.warning("%s is trained in padded rows, which is slower (%s)", name, policy.unpackable)

    @property
    def policy_gradient(self) -> PolicyGradient[Any]:
        """The run's algorithm, which must be a policy-gradient algorithm."""
        algorithm = self.config.algorithm
        if not isinstance(algorithm, PolicyGradient):
            raise BadValue(f"{algorithm.name} computes no advantages; use a policy-gradient algorithm such as rebn")
        return algorithm

    def learning_rate(self, step: int) -> float:
        """Return the learning rate at `step` with the linear schedule."""
        return learning_rate(self.config, step, steps=self.lr_steps)

    def policy_rate(self, step: int) -> float:
        """Return a policy-gradient algorithm's learning rate at `step`; an adaptive rate follows the measured KL."""
        if self.config.optimizer.lr_schedule == "adaptive" and self.policy_gradient.config.target_kl:
            return self.config.optimizer.lr * self.adaptive.rate
        return self.learning_rate(step)

    def micro_batches(self, samples: Sequence[TrainingSample], columns: Iterable[str] = ()) -> list[MicroBatch]:
        """Split samples into the same number of micro-batches in every process; `columns` names the filled columns."""
        options, device = self.config.optimizer, self.policy.device
        alone = self.distributed.size == 1  # several processes must use the same layout
        layout = self.policy.layout(options.packing, samples if alone else ())
        budget = options.token_budget or self.policy.default_token_budget(layout)
        longest = max(map(len, samples), default=0)
        if longest > budget >= self._longest:  # warn once
            logger.warning(
                "a conversation of %d tokens exceeds --token-budget %d and is trained in a separate micro-batch; if "
                "memory runs out, limit conversations with --max-context",
                longest,
                budget,
            )
        self._longest = max(self._longest, longest)
        # With FSDP, prefixes are not shared through a KV cache: FSDP frees a layer's weights after the forward pass,
        # but the keys and values of a shared prefix are used later. In the flat layout, the prefix is part of the row.
        share = (self.policy.separate is None and alone) or layout == "flat"
        batches = micro_batches(samples, budget, device, share_prefix=share, layout=layout)
        return batches + [blank(device, columns)] * (self.distributed.max(len(batches)) - len(batches))

    def value_positions(self, batch: MicroBatch) -> Tensor:
        """Return a boolean mask [B, T] of the tokens before which the critic predicts a value."""
        return batch.turn_starts if self.policy_gradient.level == "turn" else batch.mask

    def denominators(
        self, batches: Sequence[MicroBatch], *, length: float = 1.0, weights: Sequence[Tensor] | None = None
    ) -> Denominators:
        """Count the tokens and sequences in the micro-batches of all processes."""
        if weights is None:
            parts = [Denominators.of(batch.loss_mask, lengths=batch.lengths, length=length) for batch in batches]
        else:
            parts = [Denominators.of(b.mask, weights=w, length=length) for b, w in zip(batches, weights, strict=True)]
        counts = [sum(part.tokens for part in parts), sum(part.sequences for part in parts)]
        tokens, sequences = self.distributed.sum(counts)
        return Denominators(tokens=tokens, sequences=sequences, length=length)

    @property
    def constant_length(self) -> float:
        """Divisor of the "constant" aggregation: the maximum number of sampled tokens per episode."""
        config = self.config
        stated = self.policy_gradient.config.constant_length
        if stated:
            return float(stated)
        text = self.policy.model.config.get_text_config()
        limits = [getattr(text, "max_position_embeddings", None)]
        if config.env.schedule.stages:
            limits.append(config.sampling.max_tokens * config.env.schedule.stages[-1])
        known = [limit for limit in limits if limit]
        return float(min(known) if known else config.sampling.max_tokens)

    def combine(self, parts: Sequence[dict[str, Tensor]]) -> dict[str, float]:
        """Combine the micro-batch metrics from all processes."""
        if self.distributed.size == 1:
            return combine(parts)
        shards = self.distributed.gather(combine(parts))
        return combine([{name: torch.tensor(value, dtype=torch.float64) for name, value in s.items()} for s in shards])

    def backward(self, loss: Tensor) -> None:
        """Compute the gradient of a micro-batch's loss and add it to the accumulated gradients."""
        # FSDP averages gradients over processes, but the loss is the sum over processes.
        size = self.distributed.size
        (loss * size if size > 1 else loss).backward()  # type: ignore[no-untyped-call]
        self.optimizer.accumulate()

    def reshard(self) -> None:
        """Free the gathered weights of FSDP, so that the next forward pass uses weights that other code has set."""
        for module in self.policy.modules():
            reshard: Any = getattr(module, "reshard", None)
            if reshard is not None:
                reshard()

    def apply(self) -> float:
        """Clip the gradient and update the weights; return the norm of the gradient before clipping."""
        self.optimizer.accumulate()
        norm = self.optimizer.clip_grad_norm(self.config.optimizer.max_grad_norm)
        if not math.isfinite(norm):
            raise TrainingDiverged(
                f"the gradient norm is {norm}. Lower --lr or --max-grad-norm; the last checkpoint is intact"
            )
        self.optimizer.step()
        return norm
