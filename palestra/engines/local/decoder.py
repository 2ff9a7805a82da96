"""Native decoder for the Llama family (Llama, Mistral, Qwen2, Qwen3) that uses a transformers model's parameters.

All tokens in a step, from any number of conversations, form one flat sequence without padding; only attention
distinguishes sequences. For small models this avoids most of the overhead of a transformers forward pass, and for
models with grouped-query attention it avoids copying keys and values. Before using this runner, `select_runner`
compares its results with the model's.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from palestra.engines.local import loading
from palestra.engines.local.attention import AttentionPart, AttentionPlanner, Heads, attend
from palestra.engines.local.kv_cache import KVCache
from palestra.engines.local.lora import LoRA, adapter_of, base_linear, fused
from palestra.engines.local.runner import StepBatch, to_device

SUPPORTED_MODELS = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
SUPPORTED_ROPE = {"default", "linear", "llama3", "yarn"}  # rotations that do not depend on the sequence length
MAX_FUSED_PARAMETERS = 500_000_000  # fused copies of a larger model's projections would need too much memory
LINEAR_NAMES = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")


class Linear(NamedTuple):
    weight: Tensor
    bias: Tensor | None
    adapter: LoRA | None


class Layer(NamedTuple):
    """Parameters of one decoder layer. In small models, projections of the same input are fused into one."""

    window: int | None
    attention_norm: Tensor
    qkv: list[Linear]
    head_norms: Tensor | None  # one row per query head, then one per key head
    out: Linear
    mlp_norm: Tensor
    gate_up: list[Linear]
    down: Linear


class NativeRunner:
    """Runs a Llama-family model without transformers' forward pass."""

    name = "native"
    needs_entries = False

    def __init__(self, model: Any, kv_cache: KVCache, device: torch.device) -> None:
        self._model = model
        self._kv_cache = kv_cache
        self._device = device
        config = model.config
        attention = model.model.layers[0].self_attn
        self._heads = Heads(
            kv=config.num_key_value_heads,
            group=config.num_attention_heads // config.num_key_value_heads,
            dim=attention.head_dim,
            scale=attention.scaling,
        )
        self._eps: float = config.rms_norm_eps
        self.reload_weights()
        like = self._embedding.new_empty((1, self._heads.kv, self._heads.dim))
        for index in range(len(self._layers)):
            kv_cache.layer(index, like, like)

    @staticmethod
    def unsupported_reason(model: Any) -> str | None:
        """Return why this runner cannot run the model, or None if it can."""
        if type(model).__name__ not in SUPPORTED_MODELS or not type(model).__module__.startswith(
            "transformers.models."
        ):
            return f"{type(model).__name__} is not in the Llama family"
        if loading.layer_windows(model) is None or loading.rope_type(model) not in SUPPORTED_ROPE:
            return "unsupported layer types or position embeddings"
        if hasattr(model.model.embed_tokens, "embed_scale"):
            return "its embeddings are scaled"
        linears = [model.lm_head]
        for layer in model.model.layers:
            linears += [getattr(layer.self_attn, name, None) for name in LINEAR_NAMES[0]]
            linears += [getattr(layer.mlp, name, None) for name in LINEAR_NAMES[1]]
        return loading.unreadable_reason(model, linears)

    def reload_weights(self) -> bool:
        if self.unsupported_reason(self._model) is not None:
            return False
        body = self._model.model
        windows = loading.layer_windows(self._model) or {}
        layer_types = getattr(self._model.config, "layer_types", None) or list(windows) * len(body.layers)
        self._fuse = sum(parameter.numel() for parameter in self._model.parameters()) <= MAX_FUSED_PARAMETERS
        self._layers = [
            self._layer(layer, windows[layer_type]) for layer, layer_type in zip(body.layers, layer_types, strict=True)
        ]
        self._embedding: Tensor = body.embed_tokens.weight.detach()
        self._norm: Tensor = body.norm.weight.detach()
        self._head = _linear(self._model.lm_head)
        self._activation = body.layers[0].mlp.act_fn
        self._cos = self._sin = self._embedding.new_empty((0, 1, self._heads.dim))
        # Measured cost of an attention call, as the number of values that can be read from memory in the same time.
        self._planner = AttentionPlanner(
            self._heads,
            list(set(windows.values())),
            self._device,
            self._embedding.dtype,
            call_cost=12_000 / (self._heads.kv * self._heads.dim),
        )
        return True

    def _layer(self, layer: Any, window: int | None) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        kv, group, dim, _ = self._heads
        head_norms = None
        if hasattr(attention, "q_norm"):
            head_norms = torch.cat(
                (
                    attention.q_norm.weight.detach().expand(kv * group, dim),
                    attention.k_norm.weight.detach().expand(kv, dim),
                )
            )
        return Layer(
            window=window,
            attention_norm=layer.input_layernorm.weight.detach(),
            qkv=self._fused([attention.q_proj, attention.k_proj, attention.v_proj]),
            head_norms=head_norms,
            out=_linear(attention.o_proj),
            mlp_norm=layer.post_attention_layernorm.weight.detach(),
            gate_up=self._fused([mlp.gate_proj, mlp.up_proj]),
            down=_linear(mlp.down_proj),
        )

    def _fused(self, modules: list[Any]) -> list[Linear]:
        """Return the projections, fused into one if the model is small enough to store them twice."""
        linears = [_linear(module) for module in modules]
        biases = [linear.bias for linear in linears if linear.bias is not None]
        if not self._fuse or 0 < len(biases) < len(linears):
            return linears
        weights = [linear.weight for linear in linears]
        adapter = fused([linear.adapter for linear in linears], [len(weight) for weight in weights])
        return [Linear(torch.cat(weights), torch.cat(biases) if biases else None, adapter)]

    @torch.no_grad()
    def forward(self, batch: StepBatch) -> Tensor:
        order, decoding = self._planner.order(batch.start, batch.stop, batch.offset, batch.size)
        start, stop = batch.start[order], batch.stop[order]
        offset, size = batch.offset[order], batch.size[order]
        ids = batch.first_id[order[:decoding]]
        positions, addresses, ends = start, offset + start, np.arange(len(order))
        if decoding < len(order):
            prompts = (batch.entries[at].ids[batch.start[at] : batch.stop[at]] for at in order[decoding:].tolist())
            ids = np.concatenate((ids, np.fromiter(chain.from_iterable(prompts), np.int64)))
            count = stop - start
            ends = count.cumsum() - 1
            positions = np.arange(len(ids)) + np.repeat(start - ends + count - 1, count)
            addresses = positions + np.repeat(offset, count)
        last_token = np.empty_like(order)  # index of each sequence's last token in the flat token sequence
        last_token[order] = ends
        inputs = to_device(self._device, ids, positions, addresses, last_token[batch.needs_logits])
        parts = self._planner.plan(start, stop, offset, size, decoding)
        hidden = self._decode(inputs[0], inputs[1], inputs[2], int(stop.max()) - 1, parts).index_select(0, inputs[3])
        hidden = F.rms_norm(hidden, self._norm.shape, self._norm, self._eps)
        return _apply(hidden, self._head)

    def _decode(
        self, ids: Tensor, positions: Tensor, addresses: Tensor, max_position: int, parts: list[AttentionPart]
    ) -> Tensor:
        hidden = F.embedding(ids, self._embedding)
        cos, sin = self._rotation(max_position)
        cos, sin = cos.index_select(0, positions), sin.index_select(0, positions)
        kv, group, dim, _ = self._heads
        count, query_heads, rotated_heads = len(ids), kv * group, kv * group + kv
        shape = hidden.shape[1:]
        for index, layer in enumerate(self._layers):
            keys, values = self._kv_cache.keys[index], self._kv_cache.values[index]
            x = _project(F.rms_norm(hidden, shape, layer.attention_norm, self._eps), layer.qkv).view(count, -1, dim)
            qk = x[:, :rotated_heads]
            if layer.head_norms is not None:
                qk = F.rms_norm(qk, (dim,), None, self._eps).mul_(layer.head_norms)
            qk = torch.addcmul(qk * cos, qk.roll(dim // 2, -1), sin)
            keys.index_copy_(0, addresses, qk[:, query_heads:])
            values.index_copy_(0, addresses, x[:, rotated_heads:])
            x = attend(qk[:, :query_heads], keys, values, layer.window, parts, self._heads)
            hidden = _add_projection(hidden, x, layer.out)
            x = _project(F.rms_norm(hidden, shape, layer.mlp_norm, self._eps), layer.gate_up)
            gate, up = x.chunk(2, 1)
            hidden = _add_projection(hidden, self._activation(gate).mul_(up), layer.down)
        return hidden

    def _rotation(self, max_position: int) -> tuple[Tensor, Tensor]:
        """Return the cosine and sine for every position; the sign of the rotated half is included in the sine."""
        if max_position >= len(self._cos):
            length = max(1024, 1 << max_position.bit_length())
            positions = torch.arange(length, device=self._device)[None]
            cos, sin = self._model.model.rotary_emb(self._embedding[:1], positions)
            sin = sin.clone()
            sin[..., : self._heads.dim // 2] *= -1
            self._cos, self._sin = cos[0, :, None].contiguous(), sin[0, :, None].contiguous()
        return self._cos, self._sin


def _linear(module: Any) -> Linear:
    base = base_linear(module)
    assert base is not None  # noqa: S101  checked by `unsupported_reason`
    return Linear(base.weight.detach(), None if base.bias is None else base.bias.detach(), adapter_of(module))


def _apply(x: Tensor, linear: Linear) -> Tensor:
    y = F.linear(x, linear.weight, linear.bias)
    return y if linear.adapter is None else torch.addmm(y, F.linear(x, linear.adapter.a), linear.adapter.b.t())


def _project(x: Tensor, linears: list[Linear]) -> Tensor:
    return _apply(x, linears[0]) if len(linears) == 1 else torch.cat([_apply(x, each) for each in linears], 1)


def _add_projection(residual: Tensor, x: Tensor, linear: Linear) -> Tensor:
    if linear.adapter is not None:
        return residual + _apply(x, linear)
    result = torch.addmm(residual, x, linear.weight.t())
    return result if linear.bias is None else result.add_(linear.bias)
