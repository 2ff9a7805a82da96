"""The critic: a head that predicts values from the hidden states of the policy or of a separate network."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from palestra.algorithms.base import CriticKind
from palestra.training import adapters


def critic_head(width: int) -> nn.Module:
    """Return a network with one hidden layer that initially predicts 0."""
    hidden = max(32, width // 2)
    head = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, 1))
    last = head[2]
    assert isinstance(last, nn.Linear)  # noqa: S101  # narrows the type
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return head


def critic_body(model: Any, kind: CriticKind, *, rank: int, seed: int) -> Any:
    """Return the network that computes the critic's features from `model` (without adapters).

    For "head", return None: the critic uses the policy's hidden states without training them. For "model", return a
    copy of the model without its output layer, in which all weights are trained. For "lora", return a network that
    shares the policy's weights, which it does not change, and trains its own LoRA adapters.
    """
    if kind == "head":
        return None
    body = getattr(model, model.base_model_prefix)
    if kind == "model":
        return copy.deepcopy(body).requires_grad_(True)
    # The copy's parameters share their memory with the policy's, so they follow its updates without a gradient.
    shared: dict[int, Any] = {id(p): nn.Parameter(p.detach(), requires_grad=False) for p in body.parameters()}
    body = copy.deepcopy(body, shared)
    adapters.add_lora(body, rank=rank, alpha=0.0, targets="", seed=seed)
    return body


@torch.no_grad()
def copy_policy_weights(body: nn.Module, model: Any) -> None:
    """Copy the policy's current weights into a "model" critic after a warm start."""
    current = dict(getattr(model, model.base_model_prefix).named_parameters())
    for name, p in body.named_parameters():
        if name in current:
            p.copy_(current[name])
