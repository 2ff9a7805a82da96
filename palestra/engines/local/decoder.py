"""Run the Llama family (Llama, Mistral, Qwen2, Qwen3) straight from a transformers model's own parameters.

All tokens of a step, of however many conversations, are one line without padding; attention is the only part that knows
rows. For small models this leaves out most of what a forward pass in transformers costs, and for all of them the copies
it makes of keys and values for grouped heads. `runner.choose` compares the outcome with the model's own before use.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from palestra.engines.local import loading, runner
from palestra.engines.local.attention import Heads, Part, Planner, attend
from palestra.engines.local.kv_cache import Arena
from palestra.engines.local.runner import Batch, send

FAMILY = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
STEADY_ROPE = {"default", "linear", "llama3", "yarn"}  # the same rotation at a position, however long the text
JOINED = 500_000_000  # parameters; larger models are not worth holding some of their weights twice
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")


Linear = tuple[Tensor, Tensor | None]  # weight, bias


class Layer(NamedTuple):
    """One decoder layer's parameters; several linear maps of the same input are one where that was worth a copy."""

    window: int | None
    before: Tensor
    inward: list[Linear]  # queries, keys, values
    norms: Tensor | None  # of the heads: each query head's, then each key head's
    out: Linear
    after: Tensor
    up: list[Linear]  # gate, up
    down: Linear


class LeanRunner:
    """See the module."""

    name = "lean"
    reads_slots = False

    def __init__(self, model: Any, arena: Arena, device: torch.device) -> None:
        self._model = model
        self._arena = arena
        self._device = device
        config = model.config
        attention = model.model.layers[0].self_attn
        self._heads = Heads(
            kv=config.num_key_value_heads,
            group=config.num_attention_heads // config.num_key_value_heads,
            width=attention.head_dim,
            scale=attention.scaling,
        )
        self._eps: float = config.rms_norm_eps
        self.refresh()
        like = self._embedding.new_empty((1, self._heads.kv, self._heads.width))
        for index in range(len(self._layers)):
            arena.layer(index, like, like)

    @staticmethod
    def refusal(model: Any) -> str | None:
        """Why the model cannot be run this way; None: it can."""
        if type(model).__name__ not in FAMILY or not type(model).__module__.startswith("transformers.models."):
            return f"{type(model).__name__} is not of the Llama family"
        if loading.layer_windows(model) is None or loading.rope_type(model) not in STEADY_ROPE:
            return "its layers or positions are not plain"
        linears = [model.lm_head]
        for layer in model.model.layers:
            linears += [getattr(layer.self_attn, name, None) for name in LINEAR[0]]
            linears += [getattr(layer.mlp, name, None) for name in LINEAR[1]]
        if (
            any(type(linear) is not nn.Linear for linear in linears)
            or type(model.model.embed_tokens) is not nn.Embedding
        ):
            return "its layers are wrapped (adapters or quantisation)"
        for module in model.modules():
            if module._forward_hooks or module._forward_pre_hooks or hasattr(module, "_hf_hook"):
                return "it has hooks"
        if any(
            p.device != model.lm_head.weight.device or p.dtype != model.lm_head.weight.dtype for p in model.parameters()
        ):
            return "it is spread over devices or types"
        return None

    def refresh(self) -> bool:
        if self.refusal(self._model) is not None:
            return False
        body = self._model.model
        windows = loading.layer_windows(self._model) or {}
        kinds = getattr(self._model.config, "layer_types", None) or list(windows) * len(body.layers)
        self._join = sum(parameter.numel() for parameter in self._model.parameters()) <= JOINED
        self._layers = [self._layer(layer, windows[kind]) for layer, kind in zip(body.layers, kinds, strict=True)]
        self._embedding: Tensor = body.embed_tokens.weight.detach()
        self._norm: Tensor = body.norm.weight.detach()
        self._head = _linear(self._model.lm_head)
        self._act = body.layers[0].mlp.act_fn
        self._cos = self._sin = self._embedding.new_empty((0, 1, self._heads.width))
        # What a call costs, in numbers read, from timings: little on a CPU, where memory is slow; much on a GPU.
        dear = runner.dear_calls(self._device)
        self._planner = Planner(
            self._heads,
            list(set(windows.values())),
            self._device,
            self._embedding.dtype,
            call_cost=(10_000_000 if dear else 12_000) / (self._heads.kv * self._heads.width),
            pad=dear,
        )
        return True

    def _layer(self, layer: Any, window: int | None) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        kv, group, width, _ = self._heads
        norms = None
        if hasattr(attention, "q_norm"):
            norms = torch.cat(
                (
                    attention.q_norm.weight.detach().expand(kv * group, width),
                    attention.k_norm.weight.detach().expand(kv, width),
                )
            )
        return Layer(
            window=window,
            before=layer.input_layernorm.weight.detach(),
            inward=self._joined([attention.q_proj, attention.k_proj, attention.v_proj]),
            norms=norms,
            out=_linear(attention.o_proj),
            after=layer.post_attention_layernorm.weight.detach(),
            up=self._joined([mlp.gate_proj, mlp.up_proj]),
            down=_linear(mlp.down_proj),
        )

    def _joined(self, modules: list[Any]) -> list[Linear]:
        """Linear maps of the same input, as one if the model is small enough to hold some of its weights twice."""
        linears = [_linear(module) for module in modules]
        biases = [bias for _, bias in linears if bias is not None]
        if not self._join or 0 < len(biases) < len(linears):
            return linears
        return [(torch.cat([weight for weight, _ in linears]), torch.cat(biases) if biases else None)]

    @torch.no_grad()
    def forward(self, batch: Batch) -> Tensor:
        order, singles = self._planner.order(batch.start, batch.stop, batch.offset, batch.size)
        start, stop = batch.start[order], batch.stop[order]
        offset, size = batch.offset[order], batch.size[order]
        ids = batch.first[order[:singles]]
        positions, addresses, ends = start, offset + start, np.arange(len(order))
        if singles < len(order):
            texts = (batch.slots[at].ids[batch.start[at] : batch.stop[at]] for at in order[singles:].tolist())
            ids = np.concatenate((ids, np.fromiter(chain.from_iterable(texts), np.int64)))
            count = stop - start
            ends = count.cumsum() - 1
            positions = np.arange(len(ids)) + np.repeat(start - ends + count - 1, count)
            addresses = positions + np.repeat(offset, count)
        place = np.empty_like(order)  # where in the line each row's last token is
        place[order] = ends
        line = send(self._device, ids, positions, addresses, place[batch.last])
        parts = self._planner.plan(start, stop, offset, size, singles)
        hidden = self._decode(line[0], line[1], line[2], int(stop.max()) - 1, parts).index_select(0, line[3])
        hidden = F.rms_norm(hidden, self._norm.shape, self._norm, self._eps)
        return F.linear(hidden, *self._head)

    def _decode(self, ids: Tensor, positions: Tensor, addresses: Tensor, furthest: int, parts: list[Part]) -> Tensor:
        hidden = F.embedding(ids, self._embedding)
        cos, sin = self._rotation(furthest)
        cos, sin = cos.index_select(0, positions), sin.index_select(0, positions)
        kv, group, width, _ = self._heads
        count, heads, turned = len(ids), kv * group, kv * group + kv
        shape = hidden.shape[1:]
        for index, layer in enumerate(self._layers):
            keys, values = self._arena.keys[index], self._arena.values[index]
            x = _all(F.rms_norm(hidden, shape, layer.before, self._eps), layer.inward).view(count, -1, width)
            both = x[:, :turned]
            if layer.norms is not None:
                both = F.rms_norm(both, (width,), None, self._eps).mul_(layer.norms)
            both = torch.addcmul(both * cos, both.roll(width // 2, -1), sin)
            keys.index_copy_(0, addresses, both[:, heads:])
            values.index_copy_(0, addresses, x[:, turned:])
            x = attend(both[:, :heads], keys, values, layer.window, parts, self._heads)
            hidden = _added(hidden, x, layer.out)
            x = _all(F.rms_norm(hidden, shape, layer.after, self._eps), layer.up)
            gate, up = x.chunk(2, 1)
            hidden = _added(hidden, self._act(gate).mul_(up), layer.down)
        return hidden

    def _rotation(self, furthest: int) -> tuple[Tensor, Tensor]:
        """Cosine and sine for every position; the sine with the signs of a rotated half."""
        if furthest >= len(self._cos):
            length = max(1024, 1 << furthest.bit_length())
            positions = torch.arange(length, device=self._device)[None]
            cos, sin = self._model.model.rotary_emb(self._embedding[:1], positions)
            sin = sin.clone()
            sin[..., : self._heads.width // 2] *= -1
            self._cos, self._sin = cos[0, :, None].contiguous(), sin[0, :, None].contiguous()
        return self._cos, self._sin


def _linear(module: Any) -> Linear:
    return module.weight.detach(), None if module.bias is None else module.bias.detach()


def _all(x: Tensor, linears: list[Linear]) -> Tensor:
    return F.linear(x, *linears[0]) if len(linears) == 1 else torch.cat([F.linear(x, *each) for each in linears], 1)


def _added(to: Tensor, x: Tensor, linear: Linear) -> Tensor:
    weight, bias = linear
    found = torch.addmm(to, x, weight.t())
    return found if bias is None else found.add_(bias)
