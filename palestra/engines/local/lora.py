"""Read the LoRA adapters that peft has added to a model, so that a runner can sample with them.

Adapters stay separate from the base weights, because merging them into bfloat16 weights would round small updates away.
A runner reads them with `base_linear` and `adapter_of` whenever it reads the weights, at its creation and in
`reload_weights`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class LoRA(NamedTuple):
    """Adapter of a linear layer, whose output is W x + bias + b (a x)."""

    a: Tensor  # [rank, in]
    b: Tensor  # [out, rank], multiplied by the adapter's scaling factor


def base_linear(module: Any) -> nn.Linear | None:
    """Return a linear layer without its LoRA adapter; None if it is another kind of layer or adapter."""
    if type(module) is nn.Linear:
        return module
    names = list(getattr(module, "active_adapters", ()))
    if len(names) != 1 or names[0] not in getattr(module, "lora_A", ()):
        return None
    name = names[0]
    plain = (
        not (module.disable_adapters or module.merged)
        and name not in module.lora_variant  # DoRA and other variants
        and type(module.lora_dropout[name]) is nn.Identity
        and module.lora_B[name].bias is None
    )
    return module.base_layer if plain and type(module.base_layer) is nn.Linear else None


def adapter_of(module: Any) -> LoRA | None:
    """Return the adapter of a layer that `base_linear` accepts, or None if it has no adapter."""
    if type(module) is nn.Linear:
        return None
    (name,) = module.active_adapters
    return LoRA(module.lora_A[name].weight.detach(), module.lora_B[name].weight.detach() * module.scaling[name])


def fused(adapters: Sequence[LoRA | None], outputs: Sequence[int]) -> LoRA | None:
    """Combine the adapters of layers with the same input into one for their concatenated outputs."""
    present = [adapter for adapter in adapters if adapter is not None]
    if not present:
        return None
    ranks = [0 if adapter is None else len(adapter.a) for adapter in adapters]
    b = present[0].b.new_zeros(sum(outputs), sum(ranks))
    row = column = 0
    for adapter, out, rank in zip(adapters, outputs, ranks, strict=True):
        if adapter is not None:
            b[row : row + out, column : column + rank] = adapter.b
        row, column = row + out, column + rank
    return LoRA(torch.cat([adapter.a for adapter in present]), b)
