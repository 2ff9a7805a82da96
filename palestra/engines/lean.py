"""Run the Llama family (Llama, Mistral, Qwen2, Qwen3) straight from a transformers model's own parameters.

All tokens of a step, of however many conversations, are one line without padding; attention is the only part that knows
rows. For small models this leaves out most of what a forward pass in transformers costs, and for all of them the copies
it makes of keys and values for grouped heads. `forward.choose` compares the outcome with the model's own before use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from palestra.engines import loading
from palestra.engines.cache import Arena
from palestra.engines.forward import Feed
from palestra.engines.segments import Segment, segments

FAMILY = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
STEADY_ROPE = {"default", "linear", "llama3", "yarn"}  # the same rotation at a position, however long the text
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")


class Layer(NamedTuple):
    """One decoder layer's parameters: the model's own tensors, as (weight, bias) where linear."""

    window: int | None
    before: Tensor
    query: tuple[Tensor, Tensor | None]
    key: tuple[Tensor, Tensor | None]
    value: tuple[Tensor, Tensor | None]
    norms: Tensor | None  # of the heads: each query head's, then each key head's
    out: tuple[Tensor, Tensor | None]
    after: Tensor
    gate: tuple[Tensor, Tensor | None]
    up: tuple[Tensor, Tensor | None]
    down: tuple[Tensor, Tensor | None]


class Single(NamedTuple):
    """A segment of rows that read one token each."""

    segment: Segment
    first: int  # its rows' place in the line of tokens
    end: int
    spread: Tensor | None  # for each block the row that is in it, where some are nobody's
    gather: Tensor | None  # for each row its block
    masks: dict[int | None, Tensor]  # by window


class Long(NamedTuple):
    """A row that reads several tokens."""

    offset: int
    first: int
    end: int
    length: int  # of the whole row, with what is cached
    masks: dict[int | None, Tensor | None]  # by window; None: plainly causal


class LeanRunner:
    """See the module."""

    name = "lean"

    def __init__(self, model: Any, arena: Arena, device: torch.device) -> None:
        self._model = model
        self._arena = arena
        self._device = device
        config = model.config
        attention = model.model.layers[0].self_attn
        self._heads: int = config.num_attention_heads
        self._kv_heads: int = config.num_key_value_heads
        self._width: int = attention.head_dim
        self._scale: float = attention.scaling
        self._eps: float = config.rms_norm_eps
        # In tokens of one layer's keys and values, from timings: on a CPU a call costs about 15 us and a number 0.6 ns;
        # on a GPU memory is so fast that a call is dear.
        cost = 40_000 if device.type == "cpu" else 10_000_000
        self._call_cost = cost / (self._kv_heads * self._width)
        self.refresh()
        like = self._embedding.new_empty((1, self._kv_heads, self._width))
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
        self._layers = [self._layer(layer, windows[kind]) for layer, kind in zip(body.layers, kinds, strict=True)]
        self._windows = set(windows.values())
        self._embedding: Tensor = body.embed_tokens.weight.detach()
        self._norm: Tensor = body.norm.weight.detach()
        self._head = _linear(self._model.lm_head)
        self._nothing = self._embedding.new_zeros(())
        self._minus_infinity = self._embedding.new_full((), float("-inf"))
        self._act = body.layers[0].mlp.act_fn
        self._cos = self._sin = self._embedding.new_empty((0, 1, self._width))
        return True

    def _layer(self, layer: Any, window: int | None) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        norms = None
        if hasattr(attention, "q_norm"):
            norms = torch.cat(
                (
                    attention.q_norm.weight.detach().expand(self._heads, self._width),
                    attention.k_norm.weight.detach().expand(self._kv_heads, self._width),
                )
            )
        return Layer(
            window=window,
            before=layer.input_layernorm.weight.detach(),
            query=_linear(attention.q_proj),
            key=_linear(attention.k_proj),
            value=_linear(attention.v_proj),
            norms=norms,
            out=_linear(attention.o_proj),
            after=layer.post_attention_layernorm.weight.detach(),
            gate=_linear(mlp.gate_proj),
            up=_linear(mlp.up_proj),
            down=_linear(mlp.down_proj),
        )

    @torch.no_grad()
    def forward(self, feeds: Sequence[Feed]) -> Tensor:
        # Rows with one token come first and in the order of their blocks, so that a segment's rows lie side by side.
        order = sorted(
            range(len(feeds)),
            key=lambda at: (feeds[at].stop - feeds[at].start > 1, feeds[at].slot.size, feeds[at].slot.offset),
        )
        ids: list[int] = []
        positions: list[int] = []
        addresses: list[int] = []
        ends = [0] * len(feeds)  # where in the line each feed's last token is
        singles: list[Feed] = []
        longs: list[tuple[Feed, int]] = []
        for at in order:
            slot, start, stop, _ = feed = feeds[at]
            if stop - start == 1:
                ids.append(slot.ids[start])
                positions.append(start)
                addresses.append(slot.offset + start)
                singles.append(feed)
            else:
                longs.append((feed, len(ids)))
                ids += slot.ids[start:stop]
                positions += range(start, stop)
                addresses += range(slot.offset + start, slot.offset + stop)
            ends[at] = len(ids) - 1
        wanted = [end for end, feed in zip(ends, feeds, strict=True) if feed.last]
        line = torch.tensor((ids, positions, addresses)).to(self._device, non_blocking=True)
        rows = self._put(wanted)
        single = self._singles(singles)
        long = [self._long(feed, first) for feed, first in longs]
        hidden = self._decode(line, max(positions), single, long).index_select(0, rows)
        hidden = F.rms_norm(hidden, self._norm.shape, self._norm, self._eps)
        return F.linear(hidden, *self._head)

    def _decode(self, line: Tensor, furthest: int, singles: list[Single], longs: list[Long]) -> Tensor:
        ids, positions, addresses = line
        hidden = F.embedding(ids, self._embedding)
        cos, sin = self._rotation(furthest)
        cos, sin = cos.index_select(0, positions), sin.index_select(0, positions)
        count, heads, half = len(ids), self._heads, self._width // 2
        shape = hidden.shape[1:]
        for index, layer in enumerate(self._layers):
            keys, values = self._arena.keys[index], self._arena.values[index]
            x = F.rms_norm(hidden, shape, layer.before, self._eps)
            both = torch.cat((F.linear(x, *layer.query), F.linear(x, *layer.key)), 1).view(count, -1, self._width)
            if layer.norms is not None:
                both = F.rms_norm(both, (self._width,), None, self._eps).mul_(layer.norms)
            both = torch.addcmul(both * cos, both.roll(half, -1), sin)
            keys.index_copy_(0, addresses, both[:, heads:])
            values.index_copy_(0, addresses, F.linear(x, *layer.value).view(count, -1, self._width))
            x = self._attend(both[:, :heads], keys, values, layer.window, singles, longs)
            hidden += F.linear(x, *layer.out)
            x = F.rms_norm(hidden, shape, layer.after, self._eps)
            hidden += F.linear(self._act(F.linear(x, *layer.gate)).mul_(F.linear(x, *layer.up)), *layer.down)
        return hidden

    def _attend(
        self, query: Tensor, keys: Tensor, values: Tensor, window: int | None, singles: list[Single], longs: list[Long]
    ) -> Tensor:
        parts = []
        kv, group, width = self._kv_heads, self._heads // self._kv_heads, self._width
        for (offset, size, blocks, length, _), first, end, spread, gather, masks in singles:
            q = query[first:end] if spread is None else query[first:end].index_select(0, spread)
            # The heads that share keys are the "queries" of one head: nothing has to be repeated for them.
            shape, strides = (blocks, kv, length, width), (size * kv * width, width, kv * width, 1)
            x = F.scaled_dot_product_attention(
                q.view(blocks, kv, group, width),
                keys.as_strided(shape, strides, offset * kv * width),
                values.as_strided(shape, strides, offset * kv * width),
                attn_mask=masks[window],
                scale=self._scale,
            ).reshape(blocks, -1)
            parts.append(x if gather is None else x.index_select(0, gather))
        for offset, first, end, length, row_masks in longs:
            count, mask = end - first, row_masks[window]
            q = query[first:end].view(count, kv, group, width).permute(1, 2, 0, 3)
            k = keys[offset : offset + length].transpose(0, 1)
            v = values[offset : offset + length].transpose(0, 1)
            if mask is None:
                shape = (kv, group, length, width)
                k, v = k[:, None].expand(shape), v[:, None].expand(shape)
                x = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self._scale)
            else:
                q = q.reshape(1, kv, group * count, width)
                x = F.scaled_dot_product_attention(q, k[None], v[None], attn_mask=mask, scale=self._scale)
            parts.append(x.view(kv, group, count, width).permute(2, 0, 1, 3).reshape(count, -1))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _singles(self, feeds: Sequence[Feed]) -> list[Single]:
        cuts = segments(((feed.slot, feed.stop) for feed in feeds), self._call_cost)
        if not cuts:
            return []
        lengths: list[int] = []  # of every block looked at; one that is nobody's still needs a token
        inverses: list[list[int]] = []
        first = 0
        for segment in cuts:
            inverse, block = [0] * segment.blocks, len(lengths)
            lengths += [1] * segment.blocks
            for row, at in enumerate(segment.rows):
                inverse[at] = row
                lengths[block + at] = feeds[first + row].stop
            inverses.append(inverse)
            first += len(segment.rows)
        seen = torch.arange(max(segment.length for segment in cuts), device=self._device)
        until = self._put(lengths)[:, None]
        masks = {}
        for window in self._windows:
            shown = seen < until
            if window is not None:
                shown &= seen >= until - window
            masks[window] = self._mask(shown)[:, None, None]
        found = []
        first = block = 0
        for segment, inverse in zip(cuts, inverses, strict=True):
            end, after = first + len(segment.rows), block + segment.blocks
            whole = segment.blocks == len(segment.rows)
            found.append(
                Single(
                    segment,
                    first,
                    end,
                    None if whole else self._put(inverse),
                    None if whole else self._put(segment.rows),
                    {window: mask[block:after, ..., : segment.length] for window, mask in masks.items()},
                )
            )
            first, block = end, after
        return found

    def _put(self, numbers: list[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long).to(self._device, non_blocking=True)

    def _long(self, feed: Feed, first: int) -> Long:
        count = feed.stop - feed.start
        masks: dict[int | None, Tensor | None] = {}
        for window in self._windows:
            if feed.start == 0 and (window is None or feed.stop <= window):
                masks[window] = None
                continue
            seen = torch.arange(feed.stop, device=self._device)
            at = seen[feed.start :, None]
            shown = seen <= at
            if window is not None:
                shown &= seen > at - window
            masks[window] = self._mask(shown).repeat(self._heads // self._kv_heads, 1)
        return Long(feed.slot.offset, first, first + count, feed.stop, masks)

    def _mask(self, shown: Tensor) -> Tensor:
        """What is added to the scores: attention would turn a mask of truth values into this anew in every layer."""
        return torch.where(shown, self._nothing, self._minus_infinity)

    def _rotation(self, furthest: int) -> tuple[Tensor, Tensor]:
        """Cosine and sine for every position; the sine with the signs of a rotated half."""
        if furthest >= len(self._cos):
            length = max(1024, 1 << furthest.bit_length())
            positions = torch.arange(length, device=self._device)[None]
            cos, sin = self._model.model.rotary_emb(self._embedding[:1], positions)
            sin = sin.clone()
            sin[..., : self._width // 2] *= -1
            self._cos, self._sin = cos[0, :, None].contiguous(), sin[0, :, None].contiguous()
        return self._cos, self._sin


def _linear(module: Any) -> tuple[Tensor, Tensor | None]:
    return module.weight.detach(), None if module.bias is None else module.bias.detach()
