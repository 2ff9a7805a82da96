"""Tell rounding errors from errors in a runner: measure how much rounding changes a model's distributions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from palestra.engines.local.loading import transformer_layers

# Mean KL divergence from the model, in nats per token, that is accepted for every model.
MAX_KL, MAX_KL_LOW_PRECISION = 1e-5, 0.02
# Factor by which a runner's divergence may exceed the measured one. On an H200, the paged runner's divergence was 0.7
# times the measured one for SmolLM2-135M in bfloat16, and 11 to 19 times for two models that had been fine-tuned on one
# environment; the reason is not known. A factor of 10 rejected one of them. On the tokens that they sampled, the
# divergence from the learner was 0.0003 nats both with the paged runner and with the one used instead.
MARGIN = 50.0


def excess(kl: float, model: Any, ids: Tensor) -> str | None:
    """Describe a mean KL divergence from the model's distributions that is above the limit; return None if it is not.

    The limit depends on the weights, since in some models rounding errors grow from layer to layer. Their effect is
    measured for `ids` (sequence, token) unless the divergence is small. The model must be in evaluation mode.
    """
    precision = precision_of(model)
    limit = MAX_KL if precision == torch.finfo(torch.float32).eps else MAX_KL_LOW_PRECISION
    if not kl <= limit:
        limit = max(limit, MARGIN * _kl_of_rounding(model, ids, precision))
    if kl <= limit:
        return None
    return f"its distributions differ from the model's by {kl:.2g} nats, above the limit of {limit:.2g}"


@torch.no_grad()
def _kl_of_rounding(model: Any, ids: Tensor, precision: float) -> float:
    """Return the mean KL divergence that random errors of the size of rounding errors cause."""
    expected = model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
    with _rounding_errors(model, precision):
        actual = model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
    return float((expected.exp() * (expected - actual)).sum(-1).mean())


def precision_of(model: Any) -> float:
    """Return the distance between two neighboring numbers in the model's matrix products, relative to them."""
    tf32 = model.device.type == "cuda" and torch.get_float32_matmul_precision() != "highest"
    return 2.0**-10 if model.dtype == torch.float32 and tf32 else float(torch.finfo(model.dtype).eps)


@contextmanager
def _rounding_errors(model: Any, precision: float) -> Iterator[None]:
    """Add random errors of the size of rounding errors to the output of every layer inside the `with` block."""
    generator = torch.Generator(model.device).manual_seed(0)

    def perturb(_: Any, __: Any, output: Any) -> Any:
        hidden = output[0] if isinstance(output, tuple) else output
        error = torch.rand(hidden.shape, generator=generator, device=hidden.device) - 0.5
        changed = (hidden.float() * (1 + precision * error)).to(hidden.dtype)
        return (changed, *output[1:]) if isinstance(output, tuple) else changed

    handles = [layer.register_forward_hook(perturb) for layer in transformer_layers(model)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
