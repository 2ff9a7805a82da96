"""Less memory for more arithmetic: a layer's inner results are computed again in the backward pass instead of kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

ON_CPU = 2 << 30  # bytes a pass may keep before recomputing pays; fixed, so that a run repeats on another machine
SHARE_OF_GPU = 0.3

_recomputing: ContextVar[bool] = ContextVar("recomputing", default=False)


def layers_of(model: Any) -> list[nn.Module]:
    """The model's blocks, the units that are computed again (and cut up among processes)."""
    return [m for m in model.modules() if any(k.__name__ == "GradientCheckpointingLayer" for k in type(m).__mro__)]


def make_recomputable(model: Any) -> None:
    """Have the blocks heed `recomputing`.

    (transformers' own switch needs training mode, which turns dropout on, and it forbids a cache.)
    """
    for layer in layers_of(model):
        layer.forward = MethodType(_forward, layer)  # a method of the layer, so that a copy of it calls the copy


def _forward(layer: nn.Module, *args: Any, **kwargs: Any) -> Any:
    plain = type(layer).forward
    if _recomputing.get() and torch.is_grad_enabled():
        return checkpoint(plain, layer, *args, use_reentrant=False, preserve_rng_state=False, **kwargs)
    return plain(layer, *args, **kwargs)


@contextmanager
def recomputing(on: bool) -> Iterator[None]:
    """Within the block, and in this thread, layers keep only what goes into them."""
    token = _recomputing.set(on)
    try:
        yield
    finally:
        _recomputing.reset(token)


def kept_bytes(model: Any, tokens: int) -> int:
    """About what a forward pass over `tokens` keeps for the backward pass."""
    config = model.config.get_text_config()
    hidden = config.hidden_size
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    numbers = tokens * config.num_hidden_layers * (18 * hidden + 5 * inner)  # as counted on Qwen3 shapes
    return int(numbers * model.dtype.itemsize)


def is_too_much(model: Any, tokens: int) -> bool:
    device = torch.device(model.device)
    limit = ON_CPU
    if device.type == "cuda":
        limit = int(SHARE_OF_GPU * torch.cuda.get_device_properties(device).total_memory)
    return kept_bytes(model, tokens) > limit
