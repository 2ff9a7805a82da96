"""Forward pass of a decoder for the paged runner, with the parameters of a transformers model.

Projections of the same input are fused into one matrix. The fused matrices are copies at fixed addresses: `reload`
copies new weights into them, so that captured CUDA graphs stay valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from palestra.engines.local import loading
from palestra.engines.local.lora import LoRA, adapter_of, base_linear, fused
from palestra.engines.local.paged.layout import Heads

SUPPORTED_MODELS = {
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "Gemma3ForCausalLM",
}
SUPPORTED_ROPE = {"default", "linear", "llama3", "yarn"}  # rotations that do not depend on the sequence length
ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
ATTENTION_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP_LINEARS = ("gate_proj", "up_proj", "down_proj")


class Linear(NamedTuple):
    weight: Tensor
    bias: Tensor | None = None
    adapter: LoRA | None = None

    def __call__(self, x: Tensor) -> Tensor:
        y = F.linear(x, self.weight, self.bias)
        return y if self.adapter is None else torch.addmm(y, F.linear(x, self.adapter.a), self.adapter.b.t())


class Experts(NamedTuple):
    """Mixture-of-experts block."""

    router: Tensor
    gate_up: Tensor  # (expert, 2 * width, hidden)
    down: Tensor  # (expert, hidden, width)
    top_k: int
    normalize: bool


class Layer(NamedTuple):
    """Parameters of one decoder layer."""

    number: int
    window: int | None
    rotation: tuple[Tensor, Tensor]
    attention_norm: Tensor
    qkv: Linear
    head_norms: tuple[Tensor, Tensor] | None
    out: Linear
    after_attention: Tensor | None  # norm of the attention's output (Gemma)
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear
    after_mlp: Tensor | None
    experts: Experts | None


Attend = Callable[[Layer, Tensor], Tensor]  # stores a layer's keys and values and returns the attention


class PagedModel:
    """Computes hidden states for a flat batch of tokens; `ops` is `kernels` or `reference`."""

    def __init__(self, model: Any, ops: Any, max_context: int) -> None:
        self._model = model
        self._ops = ops
        self._tensors: dict[str, Tensor] = {}  # weights by name
        self._previous: dict[str, Tensor] = {}
        self._moved = False
        config = model.config
        attention = model.model.layers[0].self_attn
        self.heads = Heads(
            config.num_attention_heads, config.num_key_value_heads, attention.head_dim, float(attention.scaling)
        )
        self.eps: float = config.rms_norm_eps
        self.size: int = model.num_parameters()
        self._gemma = type(model).__name__.startswith("Gemma")
        self._activation = ACTIVATIONS[_activation_name(config)]
        self._rotations = self._make_rotations(max_context)
        self.reload()

    @staticmethod
    def unsupported_reason(model: Any) -> str | None:
        """Return why this model cannot be run, or None if it can."""
        name = type(model).__name__
        if name not in SUPPORTED_MODELS or not type(model).__module__.startswith("transformers.models."):
            return f"{name} is not one of {', '.join(sorted(SUPPORTED_MODELS))}"
        config = model.config
        if loading.layer_windows(model) is None or not loading.rope_types(model) <= SUPPORTED_ROPE:
            return "unsupported layer types or position embeddings"
        if getattr(config, "attn_logit_softcapping", None) or getattr(config, "final_logit_softcapping", None):
            return "it caps its logits"
        if getattr(config, "use_bidirectional_attention", False) or _activation_name(config) not in ACTIVATIONS:
            return "unsupported attention or activation"
        linears = [model.lm_head]
        for layer in model.model.layers:
            linears += [getattr(layer.self_attn, linear, None) for linear in ATTENTION_LINEARS]
            if hasattr(layer.mlp, "experts"):
                if not isinstance(getattr(layer.mlp.experts, "gate_up_proj", None), Tensor):
                    return "its experts are separate modules; a newer transformers stores them as one tensor"
                if layer.mlp.experts.gate_up_proj.is_cuda and model.dtype != torch.bfloat16:
                    return "its experts need bfloat16"
            else:
                linears += [getattr(layer.mlp, linear, None) for linear in MLP_LINEARS]
        return loading.unreadable_reason(model, linears)

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    def reload(self) -> bool:
        """Copy the current weights into the fused matrices. Return whether any address has changed."""
        self._previous, self._tensors, self._moved = self._tensors, {}, False
        body = self._model.model
        windows = loading.layer_windows(self._model) or {}
        kinds = getattr(self._model.config, "layer_types", None) or list(windows) * len(body.layers)
        with torch.no_grad():
            self.embedding = self._parameter("embedding", body.embed_tokens.weight)
            self._scale = getattr(body.embed_tokens, "embed_scale", None)
            self._norm = self._norm_weight("norm", body.norm)
            self._head = self._linear("head", [self._model.lm_head])
            self.layers = [
                self._layer(index, layer, kind, windows[kind])
                for index, (layer, kind) in enumerate(zip(body.layers, kinds, strict=True))
            ]
        moved = self._moved or self._tensors.keys() != self._previous.keys()
        self._previous = {}
        return moved

    def forward(self, ids: Tensor, attend: Attend) -> Tensor:
        """Return the normalized hidden states of all tokens after the last layer."""
        ops, eps = self._ops, self.eps
        residual = F.embedding(ids, self.embedding)
        if self._scale is not None:
            residual = residual * self._scale.to(residual.dtype)
        x: Tensor = ops.add_rms_norm(residual, None, self.layers[0].attention_norm, eps)
        for layer in self.layers:
            x = layer.out(attend(layer, layer.qkv(x)))
            if layer.after_attention is not None:
                x = ops.add_rms_norm(x, None, layer.after_attention, eps)
            x = ops.add_rms_norm(x, residual, layer.mlp_norm, eps)
            if layer.experts is None:
                x = layer.down(ops.gate(layer.gate_up(x), self._activation))
            else:
                x = self._mixture(x, layer.experts)
            if layer.after_mlp is not None:
                x = ops.add_rms_norm(x, None, layer.after_mlp, eps)
            following = layer.number + 1
            norm = self.layers[following].attention_norm if following < len(self.layers) else self._norm
            x = ops.add_rms_norm(x, residual, norm, eps)
        return x

    def logits(self, hidden: Tensor) -> Tensor:
        return self._head(hidden)

    def _mixture(self, x: Tensor, experts: Experts) -> Tensor:
        probabilities = F.linear(x, experts.router).softmax(-1, dtype=torch.float32)
        weights, chosen = probabilities.topk(experts.top_k, -1)
        if experts.normalize:
            weights = weights / weights.sum(-1, keepdim=True)
        weights = weights.to(x.dtype)
        result: Tensor = self._ops.mixture(x, chosen, weights, experts.gate_up, experts.down, self._activation)
        return result

    def _layer(self, index: int, layer: Any, kind: str, window: int | None) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp

        def norm(name: str, owner: Any = layer) -> Tensor:
            return self._norm_weight(f"{index}.{name}", getattr(owner, name))

        moe = hasattr(mlp, "experts")
        nothing = Linear(self.embedding[:0])
        return Layer(
            number=index,
            window=window,
            rotation=self._rotations[kind],
            attention_norm=norm("input_layernorm"),
            qkv=self._linear(f"{index}.qkv", [attention.q_proj, attention.k_proj, attention.v_proj]),
            head_norms=(norm("q_norm", attention), norm("k_norm", attention)) if hasattr(attention, "q_norm") else None,
            out=self._linear(f"{index}.out", [attention.o_proj]),
            after_attention=norm("post_attention_layernorm") if self._gemma else None,
            mlp_norm=norm("pre_feedforward_layernorm" if self._gemma else "post_attention_layernorm"),
            gate_up=nothing if moe else self._linear(f"{index}.gate_up", [mlp.gate_proj, mlp.up_proj]),
            down=nothing if moe else self._linear(f"{index}.down", [mlp.down_proj]),
            after_mlp=norm("post_feedforward_layernorm") if self._gemma else None,
            experts=Experts(
                router=self._parameter(f"{index}.router", mlp.gate.weight),
                gate_up=self._parameter(f"{index}.experts.gate_up", mlp.experts.gate_up_proj),
                down=self._parameter(f"{index}.experts.down", mlp.experts.down_proj),
                top_k=mlp.gate.top_k,
                normalize=mlp.gate.norm_topk_prob,
            )
            if moe
            else None,
        )

    def _linear(self, name: str, modules: Sequence[Any]) -> Linear:
        """Return the projections of one input, fused into one projection, with their LoRA adapters."""
        linears = [base_linear(module) or module for module in modules]
        weights, biases = [each.weight for each in linears], [each.bias for each in linears if each.bias is not None]
        adapter = fused([adapter_of(module) for module in modules], [len(weight) for weight in weights])
        return Linear(
            self._concatenated(name, weights),
            self._concatenated(f"{name}.bias", biases) if biases else None,
            adapter and LoRA(self._copy(f"{name}.a", [adapter.a]), self._copy(f"{name}.b", [adapter.b])),
        )

    def _concatenated(self, name: str, parts: Sequence[Tensor]) -> Tensor:
        return self._parameter(name, parts[0]) if len(parts) == 1 else self._copy(name, parts)

    def _norm_weight(self, name: str, module: Any) -> Tensor:
        if self._gemma:
            return self._copy(name, [1.0 + module.weight.float()])
        return self._parameter(name, module.weight)

    def _parameter(self, name: str, parameter: Tensor) -> Tensor:
        """Use a parameter's own memory, and record whether it has moved since the last call."""
        tensor = parameter.detach()
        before = self._previous.get(name)
        self._moved |= before is None or before.data_ptr() != tensor.data_ptr()
        self._tensors[name] = tensor
        return tensor

    def _copy(self, name: str, parts: Sequence[Tensor]) -> Tensor:
        """Concatenate tensors into a buffer that keeps its address."""
        buffer = self._previous.get(name)
        if buffer is None or buffer.shape != (sum(len(part) for part in parts), *parts[0].shape[1:]):
            self._moved = True
            self._tensors[name] = torch.cat([part.detach() for part in parts])
            return self._tensors[name]
        self._tensors[name] = buffer
        at = 0
        for part in parts:
            buffer.narrow(0, at, len(part)).copy_(part)
            at += len(part)
        return buffer

    def _make_rotations(self, length: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Return for each layer type the cosine and sine of every position, for the first half of a head."""
        body = self._model.model
        like = body.embed_tokens.weight.detach()[:1]
        positions = torch.arange(length, device=like.device)[None]
        kinds = set(getattr(self._model.config, "layer_types", None) or loading.layer_windows(self._model) or ())
        half = self.heads.dim // 2
        rotations = {}
        for kind in kinds:
            options = {"layer_type": kind} if self._gemma else {}
            cos, sin = body.rotary_emb(like, positions, **options)
            rotations[kind] = (cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous())
        return rotations


def _activation_name(config: Any) -> str:
    return str(getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", None))
