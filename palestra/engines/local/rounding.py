"""Tell rounding errors from errors in a runner: measure how much rounding changes a model's distributions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

# Mean KL divergence from the model, in nats per token, that is accepted for every model.
MAX_KL, MAX_KL_LOW_PRECISION = 1e-5, 0.02
# Factor by which a runner's divergence may exceed the one that rounding causes in the model itself. On an H200 with
# bfloat16, the paged runner's was 1.5 times as large for SmolLM2-135M, and 0.3 times for a model that had been
# fine-tuned on one environment, in which both were several times larger.
MARGIN = 10.0


def excess(kl: float, model: Any, batches: Sequence[Tensor]) -> str | None:
    """Describe a mean KL divergence from the model's distributions that is above the limit; return None if it is not.

    The limit depends on the weights, since in some models rounding errors grow from layer to layer. Their effect is
    measured for `batches` of tokens (sequence, token) unless the divergence is small. The model must be in evaluation
    mode.
    """
    limit = MAX_KL_LOW_PRECISION if _is_low_precision(model) else MAX_KL
    if not kl <= limit:
        limit = max(limit, MARGIN * kl_of_rounding(model, batches))
    if kl <= limit:
        return None
    return f"its distributions differ from the model's by {kl:.2g} nats, above the limit of {limit:.2g}"


def _is_low_precision(model: Any) -> bool:
    tf32 = model.device.type == "cuda" and torch.get_float32_matmul_precision() != "highest"
    return bool(tf32 or torch.finfo(model.dtype).eps > torch.finfo(torch.float32).eps)


@torch.no_grad()
def kl_of_rounding(model: Any, batches: Sequence[Tensor]) -> float:
    """Return the mean KL divergence of a model's distributions from those that are computed in float32."""
    total = 0.0
    for ids in batches:
        actual = model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
        with _float32(model):
            exact = model(input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
        total += float((exact.exp() * (exact - actual)).sum())
    return total / sum(ids.numel() for ids in batches)


@contextmanager
def _float32(model: Any) -> Iterator[None]:
    """Compute in float32, without TF32, inside the `with` block.

    The weights of one module at a time are converted, while it is called, since a copy of a large model may not fit.
    A module with adapters is converted as a whole, because it rounds its input to the data type of the adapters.
    """
    originals: dict[torch.nn.Module, dict[str, Any]] = {}

    def convert(module: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        for part in module.modules() if _has_adapters(module) else (module,):
            originals.setdefault(part, dict(part._parameters))
            for name, weight in part._parameters.items():
                if weight is not None and weight.is_floating_point():
                    part._parameters[name] = torch.nn.Parameter(weight.float(), requires_grad=False)
        return tuple(x.float() if isinstance(x, Tensor) and x.is_floating_point() else x for x in inputs)

    def restore(module: torch.nn.Module, *_: Any) -> None:
        module._parameters.update(originals.pop(module, {}))

    modules = [module for module in model.modules() if module._parameters or _has_adapters(module)]
    handles = [module.register_forward_pre_hook(convert) for module in modules]
    handles += [module.register_forward_hook(restore, always_call=True) for module in modules]
    matmul_precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul_precision)
        for handle in handles:
            handle.remove()
        for module in list(originals):
            restore(module)


def _has_adapters(module: torch.nn.Module) -> bool:
    return hasattr(module, "base_layer")  # as in peft
