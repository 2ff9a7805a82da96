"""Gradient checkpointing: recompute the activations of a layer in the backward pass instead of storing them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

CPU_LIMIT = 2 << 30  # bytes of activations per pass; fixed, so that a run is the same on every machine
GPU_FRACTION = 0.3  # of the GPU's memory

_recompute: ContextVar[bool] = ContextVar("recompute", default=False)


def transformer_layers(model: Any) -> list[nn.Module]:
    """Return the transformer blocks of a model: the units of recomputation and of sharding."""
    return [m for m in model.modules() if any(k.__name__ == "GradientCheckpointingLayer" for k in type(m).__mro__)]


def enable_recompute(model: Any) -> None:
    """Make the blocks follow `recompute`.

    The switch in transformers requires training mode, which enables dropout, and forbids a cache.
    """
    for layer in transformer_layers(model):
        layer.forward = MethodType(_forward, layer)  # a bound method, so that a deep copy calls its own layer


def _forward(layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
    plain = type(layer).forward
    if _recompute.get() and torch.is_grad_enabled():
        return checkpoint(plain, layer, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
    return plain(layer, *args, **kwargs)


@contextmanager
def recompute(on: bool) -> Iterator[None]:
    """Store only the inputs of each block, within the `with` statement and in this thread."""
    token = _recompute.set(on)
    try:
        yield
    finally:
        _recompute.reset(token)


def activation_bytes(model: Any, tokens: int) -> int:
    """Estimate the activations that a forward pass over `tokens` stores for the backward pass, in bytes."""
    config = model.config.get_text_config()
    hidden = config.hidden_size
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    numbers = tokens * config.num_hidden_layers * (18 * hidden + 5 * inner)  # measured on models of the Qwen3 family
    return int(numbers * model.dtype.itemsize)


def should_recompute(model: Any, tokens: int) -> bool:
    """Return whether the activations of a pass over `tokens` exceed the limit of the device."""
    device = torch.device(model.device)
    limit = CPU_LIMIT
    if device.type == "cuda":
        limit = int(GPU_FRACTION * torch.cuda.get_device_properties(device).total_memory)
    return activation_bytes(model, tokens) > limit
