"""Normalization, rotary embedding and gate for training, fused by torch.compile where it saves time.

Each function in `Ops` is memory-bound. Compiled, it reads and writes every tensor once, and saves only its inputs for
the backward pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

logger = logging.getLogger(__name__)

MIN_COMPILED_PARAMETERS = 50_000_000  # for a smaller model, compilation takes longer than it saves


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the RMS norm of `x`, computed in float32, times `weight`."""
    value = x.float()
    return weight * (value * torch.rsqrt(value.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


def add_rms_norm(x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return `x + delta` and its RMS norm times `weight`."""
    total = x + delta
    return total, rms_norm(total, weight, eps)


def rotate(
    q: Tensor, k: Tensor, q_norm: Tensor | None, k_norm: Tensor | None, cos: Tensor, sin: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """Normalize the heads of `q` and `k` [T, heads, dim] if they have norms, and apply rotary embeddings [T, dim]."""
    if q_norm is not None and k_norm is not None:
        q, k = rms_norm(q, q_norm, eps), rms_norm(k, k_norm, eps)
    return _rotated(q, cos, sin), _rotated(k, cos, sin)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat((-second, first), -1) * sin[:, None]


def gate(gates: Tensor, values: Tensor) -> Tensor:
    """Return silu(gates) * values."""
    return F.silu(gates) * values


def gemma_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the RMS norm as in Gemma, which multiplies by 1 + `weight` before it rounds."""
    value = x.float()
    return (value * torch.rsqrt(value.square().mean(-1, keepdim=True) + eps) * (1.0 + weight.float())).to(x.dtype)


def gemma_add_rms_norm(x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    total = x + delta
    return total, gemma_rms_norm(total, weight, eps)


def gemma_rotate(
    q: Tensor, k: Tensor, q_norm: Tensor | None, k_norm: Tensor | None, cos: Tensor, sin: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    if q_norm is not None and k_norm is not None:
        q, k = gemma_rms_norm(q, q_norm, eps), gemma_rms_norm(k, k_norm, eps)
    return _rotated(q, cos, sin), _rotated(k, cos, sin)


def gemma_gate(gates: Tensor, values: Tensor) -> Tensor:
    """Return gelu(gates) * values."""
    return F.gelu(gates, approximate="tanh") * values


class Ops(NamedTuple):
    """The functions above, compiled or not."""

    rms_norm: Callable[[Tensor, Tensor, float], Tensor]
    add_rms_norm: Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]
    rotate: Callable[[Tensor, Tensor, Tensor | None, Tensor | None, Tensor, Tensor, float], tuple[Tensor, Tensor]]
    gate: Callable[[Tensor, Tensor], Tensor]


PLAIN = Ops(rms_norm, add_rms_norm, rotate, gate)
GEMMA = Ops(gemma_rms_norm, gemma_add_rms_norm, gemma_rotate, gemma_gate)


def ops_for(model: nn.Module) -> Ops:
    """Return a model's functions, compiled for a large model on a GPU."""
    plain = GEMMA if type(model).__name__.startswith("Gemma") else PLAIN
    return compiled_ops(plain) if is_large(model) else plain


def is_large(model: nn.Module) -> bool:
    """Return whether a model is on a GPU and large enough that its matrix products take most of the time."""
    on_gpu = next(model.parameters()).device.type == "cuda"
    return on_gpu and sum(p.numel() for p in model.parameters()) >= MIN_COMPILED_PARAMETERS


@cache
def compiled_ops(plain: Ops) -> Ops:
    """Return the compiled functions, or plain ones if torch.compile does not work on this machine."""
    return Ops(*(compiled(function) for function in plain)) if can_compile() else plain


@cache
def can_compile() -> bool:
    """Return whether torch.compile works on the GPU; log the reason if it does not."""
    try:
        x = torch.ones(4, 64, device="cuda", requires_grad=True)
        compiled(rms_norm)(x, x[0].detach(), 1e-6).sum().backward()
    except Exception as err:  # noqa: BLE001  # no C compiler, no Triton, and other reasons
        reason = str(err).strip().partition("\n")[0]
        logger.warning("torch.compile does not work here, so training is slower (%s: %s)", type(err).__name__, reason)
        return False
    return True


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled for tensors with any number of rows."""
    fast = torch.compile(function)

    def call(first: Tensor, *arguments: Any) -> Any:
        for tensor in (first, *arguments):
            if isinstance(tensor, Tensor) and len(tensor) == len(first):
                torch._dynamo.maybe_mark_dynamic(tensor, 0)
        return fast(first, *arguments)

    return call


class _ParallelLinear(torch.autograd.Function):
    """Several linear layers with the same input; the backward pass adds their gradients inside the matrix products."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, *weights)
        return tuple(F.linear(x, weight) for weight in weights)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        total = None
        if ctx.needs_input_grad[0]:
            total = grads[0] @ weights[0]
            for grad, weight in zip(grads[1:], weights[1:], strict=True):
                total.addmm_(grad, weight)
        needed = ctx.needs_input_grad[1:]
        return total, *(grad.mT @ x if need else None for grad, need in zip(grads, needed, strict=True))


def parallel_linear(x: Tensor, layers: Sequence[nn.Module]) -> tuple[Tensor, ...]:
    """Apply several layers to the same input [T, width]."""
    if all(type(layer) is nn.Linear and layer.bias is None for layer in layers):
        return _ParallelLinear.apply(x, *(layer.weight for layer in layers))  # type: ignore[no-untyped-call,no-any-return]
    return tuple(layer(x) for layer in layers)
