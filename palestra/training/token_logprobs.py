"""Log-probs and entropies of tokens from hidden states, without storing logits for the whole vocabulary.

Logits are computed for a block of tokens at a time. The backward pass computes them again, one block at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from palestra.training.fused_ops import can_compile, compiled
from palestra.training.update_memory import GPU_BLOCK, GPU_BLOCK_FRACTION, LOGITS_BLOCK

MIN_COMPILED_VOCABULARY = 16_384  # for a smaller vocabulary, compilation takes longer than it saves


class Scaling(NamedTuple):
    """Transformation of a model's logits before the softmax."""

    temperature: float = 1.0
    cap: float | None = None  # final_logit_softcapping


def token_logprobs(
    head: nn.Module, hidden: Tensor, ids: Tensor, scaling: Scaling, *, entropy: bool, entropy_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Return log-probs [N] and entropies [N] of the tokens predicted from the hidden states [N, width].

    If there are more than LOGITS_BLOCK logits, they are not stored for the backward pass but recomputed block by block.
    """
    if type(head) is nn.Linear and len(ids) * head.weight.shape[0] > LOGITS_BLOCK:
        options = (scaling, entropy and entropy_gradient, max(1, _block(hidden.device) // head.weight.shape[0]))
        logprobs, entropies = _Blocks.apply(hidden, head.weight, head.bias, ids, *options)  # type: ignore[no-untyped-call]
        return logprobs, entropies if entropy else None
    scores = _scaled(head(hidden), *scaling).log_softmax(-1)
    logprobs = scores.gather(-1, ids[:, None])[:, 0]
    if not entropy:
        return logprobs, None
    scores = scores if entropy_gradient else scores.detach()
    return logprobs, -(scores.exp() * scores).sum(-1)


@torch.no_grad()
def sample_tokens(head: Any, hidden: Tensor, scaling: Scaling, generator: torch.Generator) -> Tensor:
    """Return a token [N] for each of the hidden states [N, width], sampled from the predicted distribution."""
    rows = max(1, _block(hidden.device) // head.weight.shape[0])
    parts = [_scaled(head(part), *scaling).softmax(-1) for part in torch.split(hidden, rows)]
    return torch.cat([torch.multinomial(part, 1, generator=generator)[:, 0] for part in parts])


def _block(device: torch.device) -> int:
    """Return the maximum number of logits to compute at a time."""
    if device.type != "cuda":
        return LOGITS_BLOCK
    return min(GPU_BLOCK, int(torch.cuda.get_device_properties(device).total_memory * GPU_BLOCK_FRACTION))


def _scaled(logits: Tensor, temperature: float, cap: float | None) -> Tensor:
    scores = logits.float()
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    return scores if temperature == 1.0 else scores / temperature


def _statistics(logits: Tensor, ids: Tensor, temperature: float, cap: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log-prob of each row's token, the normalizer (log-sum-exp) and the entropy."""
    scores = _scaled(logits, temperature, cap)
    top = scores.amax(-1, keepdim=True)
    weights = (scores - top).exp()
    total = weights.sum(-1)
    normalizer = top[:, 0] + total.log()
    entropy = normalizer - (weights * scores).sum(-1) / total
    return scores.gather(-1, ids[:, None])[:, 0] - normalizer, normalizer, entropy


def _gradient(
    logits: Tensor, ids: Tensor, normalizer: Tensor, entropy: Tensor, logprob_grad: Tensor, entropy_grad: Tensor,
    temperature: float, cap: float | None,
) -> Tensor:  # fmt: skip
    """Return the gradient with respect to the logits.

    d log p / dz = onehot - p and dH / dz = -p (log p + H), where z are the scaled logits.
    """
    scores = _scaled(logits, temperature, cap)
    logprobs = scores - normalizer[:, None]
    chosen = torch.arange(scores.shape[1], device=ids.device) == ids[:, None]
    weight = logprob_grad[:, None] + entropy_grad[:, None] * (logprobs + entropy[:, None])
    grad = torch.where(chosen, logprob_grad[:, None], 0.0) - logprobs.exp() * weight
    grad = grad / temperature
    if cap is not None:
        grad = grad * (1 - (scores * (temperature / cap)).square())
    return grad.to(logits.dtype)


_compiled: dict[Callable[..., Any], Callable[..., Any]] = {}


def _fast(function: Callable[..., Any], like: Tensor) -> Callable[..., Any]:
    """Return the function, compiled if that is faster."""
    if not (like.is_cuda and like.shape[0] >= MIN_COMPILED_VOCABULARY and can_compile()):
        return function
    if function not in _compiled:
        _compiled[function] = compiled(function)
    return _compiled[function]


class _Blocks(torch.autograd.Function):
    """Linear layer, log-softmax and entropy, for `rows` tokens at a time."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, ids: Tensor, scaling: Scaling,
        entropy_gradient: bool, rows: int,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        statistics = _fast(_statistics, weight)
        parts = [
            statistics(F.linear(part, weight, bias), own, *scaling)
            for part, own in zip(torch.split(hidden, rows), torch.split(ids, rows), strict=True)
        ]
        logprobs, normalizer, entropy = (torch.cat(column) for column in zip(*parts, strict=True))
        ctx.save_for_backward(hidden, weight, bias, ids, normalizer, entropy)
        ctx.options = scaling, entropy_gradient, rows
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, logprob_grad: Tensor, entropy_grad: Tensor) -> tuple[Any, ...]:
        hidden, weight, bias, ids, normalizer, entropy = ctx.saved_tensors
        scaling, entropy_gradient, rows = ctx.options
        if not entropy_gradient:
            entropy_grad = torch.zeros_like(logprob_grad)
        gradient = _fast(_gradient, weight)
        hidden_grad = torch.empty_like(hidden)
        total = torch.promote_types(weight.dtype, torch.float32)  # data type in which blocks are summed
        several = len(ids) > rows
        weight_grad = bias_grad = None
        for start in range(0, len(ids), rows):
            part = slice(start, start + rows)
            logits = F.linear(hidden[part], weight, bias)
            columns = (ids, normalizer, entropy, logprob_grad, entropy_grad)
            grad = gradient(logits, *(column[part] for column in columns), *scaling)
            del logits
            torch.mm(grad, weight, out=hidden_grad[part])
            if ctx.needs_input_grad[1]:
                own = grad.mT @ hidden[part]
                weight_grad = own if not several else own.to(total) if weight_grad is None else weight_grad.add_(own)
            if bias is not None and ctx.needs_input_grad[2]:
                own = grad.sum(0, dtype=total)
                bias_grad = own if bias_grad is None else bias_grad + own
        return (
            hidden_grad,
            None if weight_grad is None else weight_grad.to(weight.dtype),
            None if bias_grad is None else bias_grad.to(weight.dtype),
            *(None,) * 4,
        )
