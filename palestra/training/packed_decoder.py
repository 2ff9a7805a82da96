"""Forward pass of Llama-family, Qwen3-MoE and Gemma 3 models over a packed row, with gradients.

It uses the modules and parameters of a transformers model, so adapters, FSDP and recomputation work as in the model's
own forward pass. It is faster on a GPU: there is no padding, attention needs no mask, and the operations between
matrix products are fused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from palestra.engines.local import loading
from palestra.engines.local.decoder import SUPPORTED_MODELS, SUPPORTED_ROPE
from palestra.training.batch import MicroBatch
from palestra.training.fused_ops import Ops, parallel_linear
from palestra.training.packed_attention import DocumentPlan, attend, plan

PACKABLE_MODELS = SUPPORTED_MODELS | {"Qwen3MoeForCausalLM", "Gemma3ForCausalLM"}


def unsupported_reason(model: Any) -> str | None:
    """Return why this forward pass cannot replace that of a transformers model, or None if it can."""
    name, config = type(model).__name__, model.config
    if name not in PACKABLE_MODELS or not type(model).__module__.startswith("transformers.models."):
        return f"{name} is not one of {', '.join(sorted(PACKABLE_MODELS))}"
    if loading.layer_windows(model) is None or not loading.rope_types(model) <= SUPPORTED_ROPE:
        return "unsupported layer types or position embeddings"
    if getattr(config, "attn_logit_softcapping", None) or getattr(config, "use_bidirectional_attention", False):
        return "unsupported attention"
    gemma = name.startswith("Gemma")
    if hasattr(model.model.embed_tokens, "embed_scale") and not gemma:
        return "its embeddings are scaled"
    activation = config.hidden_activation if gemma else config.hidden_act
    if activation != ("gelu_pytorch_tanh" if gemma else "silu"):
        return f"its activation function is {activation}"
    return None


@dataclass(frozen=True, slots=True)
class LayerInputs:
    """Inputs that are the same for all layers."""

    documents: DocumentPlan
    cos: Tensor  # [T, dim]
    sin: Tensor
    ops: Ops


def hidden_states(batch: MicroBatch, body: Any, ops: Ops) -> Tensor:
    """Return the last layer's normalized hidden states [1, T, width] for a micro-batch in the layout "flat"."""
    shared, device = batch.shared, batch.ids.device
    ids = torch.cat((batch.prefix, batch.ids), 1)
    positions = torch.cat((torch.arange(shared, device=device)[None], batch.positions), 1)
    x = body.embed_tokens(ids)[0]
    documents = plan([len(sample) - shared for sample in batch.samples], shared, device)
    delta: Tensor | None = None  # output of the previous layer, not yet added to x
    windows = loading.layer_windows(body) or {}
    kinds = getattr(body.config, "layer_types", None) or list(windows) * len(body.layers)
    inputs = {}
    for kind in windows:
        options = {"layer_type": kind} if hasattr(body.layers[0], "pre_feedforward_layernorm") else {}
        cos, sin = body.rotary_emb(x, positions, **options)
        inputs[kind] = LayerInputs(documents, cos[0], sin[0], ops)
    for layer, kind in zip(body.layers, kinds, strict=True):
        x, delta = layer(x, delta, inputs[kind], windows[kind], implementation=decoder_layer)
    hidden = _add_norm(x, delta, body.norm, ops)[1]
    return hidden[None, shared:]


def decoder_layer(
    layer: Any, x: Tensor, delta: Tensor | None, inputs: LayerInputs, window: int | None
) -> tuple[Tensor, Tensor]:
    """Run one transformer block. Returns the residual stream without the output of the MLP, and that output."""
    attention, mlp, ops = layer.self_attn, layer.mlp, inputs.ops
    x, normed = _add_norm(x, delta, layer.input_layernorm, ops)
    projections = parallel_linear(normed, (attention.q_proj, attention.k_proj, attention.v_proj))
    q, k, v = (projection.view(len(x), -1, attention.head_dim) for projection in projections)
    q_norm, k_norm = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
    weights = (None, None) if q_norm is None or k_norm is None else (q_norm.weight, k_norm.weight)
    eps = 0.0 if q_norm is None else _eps(q_norm)
    q, k = ops.rotate(q, k, weights[0], weights[1], inputs.cos, inputs.sin, eps)
    context = attend(q, k, v, inputs.documents, window=window, scale=attention.scaling)
    output = attention.o_proj(context)
    norm = layer.post_attention_layernorm
    normalizes_outputs = hasattr(layer, "pre_feedforward_layernorm")  # as in Gemma 3
    if normalizes_outputs:
        output, norm = ops.rms_norm(output, norm.weight, _eps(norm)), layer.pre_feedforward_layernorm
    x, normed = _add_norm(x, output, norm, ops)
    if hasattr(mlp, "experts"):
        output = mlp(normed[None])[0]
    else:
        output = mlp.down_proj(ops.gate(*parallel_linear(normed, (mlp.gate_proj, mlp.up_proj))))
    if normalizes_outputs:
        norm = layer.post_feedforward_layernorm
        output = ops.rms_norm(output, norm.weight, _eps(norm))
    return x, output


def _add_norm(x: Tensor, delta: Tensor | None, norm: Any, ops: Ops) -> tuple[Tensor, Tensor]:
    if delta is None:
        return x, ops.rms_norm(x, norm.weight, _eps(norm))
    return ops.add_rms_norm(x, delta, norm.weight, _eps(norm))


def _eps(norm: Any) -> float:
    eps: float = norm.eps if hasattr(norm, "eps") else norm.variance_epsilon
    return eps
