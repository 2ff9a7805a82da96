"""Ragged token batches in float64, and the smallest model with two layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from palestra.algorithms.losses import LossInputs

torch.set_num_threads(1)  # the tensors are tiny
NAMES = (
    "logprobs",
    "old_logprobs",
    "advantages",
    "proximal_logprobs",
    "weights",
    "ref_logprobs",
    "entropy",
    "entropy_weights",
)


def batch(seed: int, *, rows: int = 4, width: int = 7) -> LossInputs:
    """Return rows of different lengths with prompts, gaps between turns and padding, with all fields set."""
    rng = torch.Generator().manual_seed(seed)

    def logprobs() -> Tensor:
        return -3 * torch.rand(rows, width, generator=rng, dtype=torch.float64)

    mask = torch.rand(rows, width, generator=rng) < 0.6
    ends = torch.randint(2, width + 1, (rows, 1), generator=rng)
    mask &= torch.arange(width) < ends
    mask[0, 1] = True  # at least one sampled token
    now = logprobs()
    return LossInputs(
        logprobs=now.requires_grad_(),
        old_logprobs=now.detach() + 0.4 * torch.randn(rows, width, generator=rng, dtype=torch.float64),
        advantages=torch.randn(rows, width, generator=rng, dtype=torch.float64),
        mask=mask,
        proximal_logprobs=now.detach() + 0.3 * torch.randn(rows, width, generator=rng, dtype=torch.float64),
        weights=2 * torch.rand(rows, width, generator=rng, dtype=torch.float64),
        ref_logprobs=logprobs(),
        entropy=logprobs().neg().requires_grad_(),
        entropy_weights=1 + torch.rand(rows, width, generator=rng, dtype=torch.float64),
        ratio_ids=2 * torch.arange(rows)[:, None] + (torch.arange(width) >= width // 2),  # two turns per row
    )


def without(inputs: LossInputs, *names: str) -> LossInputs:
    nothing: dict[str, Any] = dict.fromkeys(names)
    return replace(inputs, **nothing)


def mapped(inputs: LossInputs, change: Any) -> LossInputs:
    """Return the inputs with `change(tensor, filler)` applied to every tensor; the mask's filler is False."""
    result = {name: change(tensor, 0.0) for name in NAMES if (tensor := getattr(inputs, name)) is not None}
    if inputs.lengths is not None:
        result["lengths"] = change(inputs.lengths, 1)
    if inputs.ratio_ids is not None:
        result["ratio_ids"] = change(inputs.ratio_ids, 0)
    return replace(inputs, **result, mask=change(inputs.mask, False))


@dataclass(frozen=True)
class TwoLayers:
    """Model p(next token | token) = softmax(W2 tanh(W1 e(token))), in float64."""

    embedding: Tensor
    first: Tensor
    second: Tensor

    @classmethod
    def of(cls, seed: int, vocabulary: int = 5, hidden: int = 3) -> TwoLayers:
        rng = torch.Generator().manual_seed(seed)

        def weights(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=rng, dtype=torch.float64).requires_grad_()

        return cls(weights(vocabulary, hidden), weights(hidden, hidden), weights(vocabulary, hidden))

    @property
    def parameters(self) -> list[Tensor]:
        return [self.embedding, self.first, self.second]

    def distribution(self, ids: Tensor) -> Tensor:
        """Return the log-probabilities of all possible next tokens after each token in `ids`, with shape [B, T, V]."""
        return torch.log_softmax(torch.tanh(self.embedding[ids] @ self.first.T) @ self.second.T, dim=-1)

    def read(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probability and entropy of each token in `ids` [B, T + 1] but the first, with shape [B, T]."""
        logits = self.distribution(ids[:, :-1])
        return logits.gather(-1, ids[:, 1:, None])[..., 0], -(logits.exp() * logits).sum(-1)

    def values(self, ids: Tensor) -> Tensor:
        """Return the values of a critic with the same weights, with shape [B, T]."""
        return torch.tanh(self.embedding[ids] @ self.first.T).sum(-1)
