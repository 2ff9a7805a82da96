"""The Triton kernels in plain torch: slow, for tests on a CPU and for comparison with the kernels."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from palestra.engines.local.paged.layout import (
    LAST_TOKEN,
    LENGTH,
    LOGPROB_TEMPERATURE,
    MIN_P,
    PAGE,
    SAMPLED,
    SEED_HIGH,
    SEED_LOW,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    Heads,
)  # fmt: skip

MASK_32 = 0xFFFFFFFF


def add_rms_norm(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    value = x if residual is None else residual.add_(x)
    return _rms_norm(value, weight, eps)


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    y = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + eps)
    if weight.dtype == x.dtype:
        y = y.to(x.dtype)
    return (y * weight).to(x.dtype)


def rotate_and_store(
    qkv: Tensor, positions: Tensor, slots: Tensor, tables: Tensor, keys: Tensor, values: Tensor,
    rotation: tuple[Tensor, Tensor], norms: tuple[Tensor, Tensor] | None, eps: float, heads: Heads,
) -> None:  # fmt: skip
    x = qkv.view(len(qkv), -1, heads.dim)
    q, k, v = torch.split_with_sizes(x, (heads.query, heads.kv, heads.kv), 1)
    cos, sin = (table.index_select(0, positions).float()[:, None] for table in rotation)
    rotated = []
    for part, norm in zip((q, k), norms or (None, None), strict=True):
        y = part if norm is None else _rms_norm(part, norm, eps)
        a, b = y.float().chunk(2, -1)
        rotated.append(torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(qkv.dtype))
    q.copy_(rotated[0])
    pages = tables[slots.long(), (positions // PAGE).long()].long()
    keys[pages, :, (positions % PAGE).long()] = rotated[1]
    values[pages, :, (positions % PAGE).long()] = v


def gate(gate_up: Tensor, activation: str) -> Tensor:
    first, second = gate_up.chunk(2, -1)
    return (F.gelu(first, approximate="tanh") if activation == "gelu_tanh" else F.silu(first)) * second


def mixture(x: Tensor, chosen: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, activation: str) -> Tensor:
    out = torch.zeros_like(x)
    for expert in set(chosen.flatten().tolist()):
        token, at = torch.where(chosen == expert)
        hidden = F.linear(gate(F.linear(x[token], gate_up[expert]), activation), down[expert])
        out.index_add_(0, token, hidden * weights[token, at, None])
    return out


def decode_attention(
    qkv: Tensor, keys: Tensor, values: Tensor, positions: Tensor, slots: Tensor, tables: Tensor, heads: Heads,
    window: int | None,
) -> Tensor:  # fmt: skip
    pages = tables[slots.long(), : int(positions.max()) // PAGE + 1].long()
    rows, length = len(qkv), pages.shape[1] * PAGE
    t = torch.arange(length, device=qkv.device)
    visible = t <= positions[:, None]
    if window is not None:
        visible &= t > positions[:, None] - window
    q = qkv.view(rows, -1, heads.dim)[:, : heads.query].reshape(rows, heads.kv, heads.group, heads.dim)
    gathered = []
    for cache in (keys, values):
        states = cache[pages].transpose(1, 2).reshape(rows, heads.kv, length, heads.dim)
        gathered.append(states.where(visible[:, None, :, None], 0.0))  # unused tokens in a page may be NaN
    k, v = gathered
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=visible[:, None, None], scale=heads.scale)
    return out.reshape(rows, -1)


def prefill_tile_tokens(heads: Heads, element_size: int) -> int:
    del heads, element_size
    return 256


def prefill_attention(
    qkv: Tensor, keys: Tensor, values: Tensor, tiles: Tensor, tables: Tensor, heads: Heads, window: int | None
) -> Tensor:
    out = qkv.new_zeros((len(qkv), heads.query * heads.dim))
    x = qkv.view(len(qkv), -1, heads.dim)
    for slot, first, count, position in tiles.tolist():
        if count == 0:
            continue
        end = position + count
        pages = tables[slot, : (end - 1) // PAGE + 1].long()
        k, v = (
            cache[pages].transpose(0, 1).reshape(heads.kv, -1, heads.dim)[:, :end].repeat_interleave(heads.group, 0)
            for cache in (keys, values)
        )
        q = x[first : first + count, : heads.query].transpose(0, 1)
        t = torch.arange(end, device=qkv.device)
        visible = t <= t[position:, None]
        if window is not None:
            visible &= t > t[position:, None] - window
        y = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=visible, scale=heads.scale)
        out[first : first + count] = y[0].transpose(0, 1).reshape(count, -1)
    return out


def extend_tables(slots: Tensor, pages: Tensor, positions: Tensor, tables: Tensor) -> None:
    new = pages > 0
    tables[slots[new].long(), (positions[new] // PAGE).long()] = pages[new]


def apply_updates(updates: Tensor, pages: int, tables: Tensor, state: Tensor) -> None:
    tables.view(-1)[updates[:pages].long()] = updates[pages : 2 * pages]
    rows = updates[2 * pages :].view(-1, 1 + state.shape[1])
    state[rows[:, 0].long()] = rows[:, 1:]


def sample(logits: Tensor, rows: Tensor, state: Tensor, tokens: Tensor, logprobs: Tensor) -> None:
    vocabulary = logits.shape[1]
    slots = rows.long()
    settings = state[slots]
    temperature, top_p, min_p = (settings[:, at].view(torch.float32)[:, None] for at in (TEMPERATURE, TOP_P, MIN_P))
    greedy = temperature == 0
    temperature = temperature.where(~greedy, 1.0)
    x = logits.float()
    centered = x - x.amax(-1, keepdim=True)
    keep = torch.ones_like(x, dtype=torch.bool)
    top_k = settings[:, TOP_K].long()[:, None]
    top_k = top_k.where((top_k > 0) & (top_k < vocabulary), vocabulary)
    if bool((((top_k < vocabulary) | (top_p < 1) | (min_p > 0)) & ~greedy).any()):
        weights = (centered / temperature).exp()
        ordered = weights.sort(-1, descending=True).values
        cumulative = ordered.cumsum(-1, dtype=torch.float64)
        last = top_k - 1
        reached = torch.searchsorted(cumulative, top_p * cumulative.gather(1, last))
        last = torch.minimum(reached, last).where(top_p < 1, last)
        keep = (weights >= ordered.gather(1, last)) & (centered / temperature >= min_p.log())
    noise = -_exponential(settings, vocabulary).log()
    score = torch.where(greedy, x, x / temperature + noise).where(keep | greedy, -torch.inf)
    token = score.nan_to_num(-torch.inf, None, -torch.inf).argmax(-1)
    tokens.copy_(token)
    tempered = x / settings[:, LOGPROB_TEMPERATURE].view(torch.float32)[:, None]
    logprobs.copy_(tempered.log_softmax(-1).gather(1, token[:, None])[:, 0])
    real = slots != len(state) - 1
    state[slots[real], LENGTH] += 1
    state[slots[real], SAMPLED] += 1
    state[slots[real], LAST_TOKEN] = token[real].int()


def _exponential(settings: Tensor, vocabulary: int) -> Tensor:
    """Return exponential random numbers that depend on the seed, the position in the reply and the token."""
    columns = (settings[:, at].long() & MASK_32 for at in (SAMPLED, SEED_LOW, SEED_HIGH))
    sampled, low, high = (column[:, None] for column in columns)
    first = _mix(low ^ _mix((sampled + 0x9E3779B9) & MASK_32))
    second = _mix((high + _mix(first ^ 0x5BD1E995)) & MASK_32)
    token = torch.arange(vocabulary, device=settings.device)
    u = (_mix(_mix((token + first) & MASK_32) ^ second).float() + 0.5) * 2.0**-32
    return torch.where(u < 1e-3, u + 0.5 * u * u, -(1 - u).clamp(min=2.0**-25).log())


def _mix(x: Tensor) -> Tensor:
    x = x ^ (x >> 16)
    x = (x * 0x85EBCA6B) & MASK_32
    x = x ^ (x >> 13)
    x = (x * 0xC2B2AE35) & MASK_32
    return x ^ (x >> 16)
