"""Gradient checkpointing: recompute each layer's activations in the backward pass instead of storing them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

CPU_LIMIT = 2 << 30  # maximum bytes of activations per pass; constant, so that runs are reproducible across machines
GPU_FRACTION = 0.3  # maximum size of the activations, as a fraction of the GPU's memory

_recompute: ContextVar[bool] = ContextVar("recompute", default=False)


def transformer_layers(model: Any) -> list[nn.Module]:
    """Return a model's transformer blocks, which are the units for recomputation and sharding."""
    return [m for m in model.modules() if any(k.__name__ == "GradientCheckpointingLayer" for k in type(m).__mro__)]


def enable_recompute(model: Any) -> None:
    """Patch the transformer blocks so that they recompute their activations inside `recompute(True)`.

    The gradient checkpointing in `transformers` is not used: it requires training mode, which enables dropout, and does
    not allow a KV cache.
    """
    for layer in transformer_layers(model):
        layer.forward = MethodType(_forward, layer)  # a bound method, so that a deep copy calls the copied layer


def _forward(layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
    plain = type(layer).forward
    if _recompute.get() and torch.is_grad_enabled():
        return checkpoint(plain, layer, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
    return plain(layer, *args, **kwargs)


@contextmanager
def recompute(on: bool) -> Iterator[None]:
    """Turn recomputation on or off in this thread; if it is on, only the inputs of each block are stored."""
    token = _recompute.set(on)
    try:
        yield
    finally:
        _recompute.reset(token)


def activation_bytes(model: Any, tokens: int) -> int:
    """Estimate how many bytes of activations a forward pass over `tokens` tokens stores for the backward pass."""
    config = model.config.get_text_config()
    hidden = config.hidden_size
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    numbers = tokens * config.num_hidden_layers * (18 * hidden + 5 * inner)  # measured on models from the Qwen3 family
    return int(numbers * model.dtype.itemsize)


def should_recompute(model: Any, tokens: int) -> bool:
    """Return whether the activations for a pass over `tokens` tokens exceed the limit for the model's device."""
    device = torch.device(model.device)
    limit = CPU_LIMIT
    if device.type == "cuda":
        limit = int(GPU_FRACTION * torch.cuda.get_device_properties(device).total_memory)
    return activation_bytes(model, tokens) > limit
