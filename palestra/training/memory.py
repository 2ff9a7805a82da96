"""Gradient checkpointing: recompute each layer's activations in the backward pass instead of storing them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from palestra.engines.local.loading import transformer_layers
from palestra.training.update_memory import (
    CPU_LIMIT,
    GPU_FRACTION,
    LARGE_MICRO_BATCH,
    MICRO_BATCH,
    packed_activations,
)

_recompute: ContextVar[bool] = ContextVar("recompute", default=False)


def patch_layers(model: Any) -> None:
    """Patch the transformer blocks so that they recompute their activations inside `recompute(True)`.

    The blocks also take an `implementation` to call instead of their own forward pass.

    The gradient checkpointing in `transformers` is not used: it requires training mode, which enables dropout, and does
    not allow a KV cache.
    """
    for layer in transformer_layers(model):
        layer.forward = MethodType(_forward, layer)  # a bound method, so that a deep copy calls the copied layer


def _forward(layer: nn.Module, *args: Any, implementation: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    plain = implementation or type(layer).forward
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


def stored_per_token(config: Any, *, fused: bool = False) -> int:
    """Estimate how many numbers one layer's forward pass stores per token for the backward pass.

    `fused` refers to the forward pass in `packed_decoder`.
    """
    hidden = config.hidden_size
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    experts = getattr(config, "num_experts_per_tok", None)
    if experts:  # each expert also stores a copy of its input and its output
        inner = experts * ((getattr(config, "moe_intermediate_size", None) or inner) + hidden)
    if fused:
        dim = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
        return packed_activations(hidden, config.num_attention_heads, config.num_key_value_heads, dim, inner)
    return int(18 * hidden + 5 * inner)  # measured on models from the Qwen3 family


def activation_bytes(model: Any, tokens: int, *, fused: bool = False) -> int:
    """Estimate how many bytes of activations a forward pass over `tokens` tokens stores for the backward pass."""
    config = model.config.get_text_config()
    return int(tokens * config.num_hidden_layers * stored_per_token(config, fused=fused) * model.dtype.itemsize)


def should_recompute(model: Any, tokens: int, *, device: torch.device, fused: bool = False, reserved: int = 0) -> bool:
    """Return whether the activations for a pass over `tokens` tokens exceed the limit for the device.

    On a GPU, the limit is a fraction of the memory that is free, less the `reserved` bytes that the update will
    allocate.
    """
    limit = CPU_LIMIT
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        limit = int(GPU_FRACTION * (free + cached - reserved))
    return activation_bytes(model, tokens, fused=fused) > limit


def micro_batch_tokens(model: Any, *, device: torch.device, fused: bool, reserved: int = 0) -> int:
    """Return the default number of tokens per micro-batch; the arguments are those of `should_recompute`.

    Fused passes over larger micro-batches are faster, as long as no activations have to be recomputed.
    """
    large = fused and not should_recompute(model, LARGE_MICRO_BATCH, device=device, fused=True, reserved=reserved)
    return LARGE_MICRO_BATCH if large else MICRO_BATCH
