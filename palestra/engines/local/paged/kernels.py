"""Triton kernels for the forward pass: normalization, rotary embedding, activation, and attention over pages.

`reference` has the same functions in plain torch. A KV cache tensor has the shape (page, kv head, token in page, dim),
with any stride between pages. A block table maps a sequence's position // PAGE to a page.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from palestra.engines.local.paged.layout import PAGE, Heads

try:
    import triton
    import triton.language as tl

    jit: Any = triton.jit
except ModuleNotFoundError:  # CPU builds of torch do not include Triton

    def jit(function: Any) -> Any:
        return function


LOG2_E = 1.4426950408889634
ROTATED_ELEMENTS = 1024  # elements per program in `rotate_and_store`
MULTIPROCESSORS = 132  # number of programs that fill a large GPU; a wrong value affects only the speed
MAX_SPLITS = 16


@jit
def _add_rms_norm(
    x, residual, weight, out, eps, width,
    HAS_RESIDUAL: tl.constexpr, FLOAT_WEIGHT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < width
    at = row * width + column
    value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    dtype = out.dtype.element_ty
    if HAS_RESIDUAL:
        value = (value + tl.load(residual + at, mask=mask, other=0.0).to(tl.float32)).to(dtype)
        tl.store(residual + at, value, mask=mask)
        value = value.to(tl.float32)
    value = value * (1.0 / tl.sqrt(tl.sum(value * value, 0) / width + eps))
    scale = tl.load(weight + column, mask=mask, other=0.0).to(tl.float32)
    if not FLOAT_WEIGHT:
        value = value.to(dtype).to(tl.float32)
    tl.store(out + at, (value * scale).to(dtype), mask=mask)


def add_rms_norm(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    """Add `x` to `residual` in place if one is given, and return the RMS norm of the sum (or of `x`) times `weight`.

    A float32 weight of a model in lower precision is multiplied before rounding, as in Gemma.
    """
    rows, width = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(width)
    _add_rms_norm[(rows,)](
        x, x if residual is None else residual, weight, out, eps, width,
        HAS_RESIDUAL=residual is not None, FLOAT_WEIGHT=weight.dtype != x.dtype, BLOCK=block,
        num_warps=max(1, min(8, block // 256)),
    )  # fmt: skip
    return out


@jit
def _rotate_and_store(
    qkv, positions, slots, tables, keys, values, cos, sin, q_norm, k_norm, eps,
    qkv_stride, table_stride, page_stride,
    QUERY_HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HALF: tl.constexpr, HALF_PADDED: tl.constexpr,
    HEADS: tl.constexpr, QUERY_BLOCKS: tl.constexpr, KV_BLOCKS: tl.constexpr, PAGE: tl.constexpr,
    HAS_NORM: tl.constexpr, FLOAT_NORM: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1)
    dim = 2 * HALF
    position = tl.load(positions + token)
    half = tl.arange(0, HALF_PADDED)
    is_query = block < QUERY_BLOCKS
    is_value = block >= QUERY_BLOCKS + KV_BLOCKS
    start = tl.where(is_query, 0, tl.where(is_value, QUERY_BLOCKS + KV_BLOCKS, QUERY_BLOCKS))
    base = tl.where(is_query, 0, tl.where(is_value, QUERY_HEADS + KV_HEADS, QUERY_HEADS))
    head = (block - start) * HEADS + tl.arange(0, HEADS)
    mask = (head < tl.where(is_query, QUERY_HEADS, KV_HEADS))[:, None] & (half < HALF)[None, :]
    source = qkv + token * qkv_stride + (base + head)[:, None] * dim + half[None, :]
    a = tl.load(source, mask=mask, other=0.0)
    b = tl.load(source + HALF, mask=mask, other=0.0)
    if block < QUERY_BLOCKS + KV_BLOCKS:
        x = a.to(tl.float32)
        y = b.to(tl.float32)
        in_half = half < HALF
        if HAS_NORM:
            factor = 1.0 / tl.sqrt((tl.sum(x * x, 1) + tl.sum(y * y, 1)) / dim + eps)
            x *= factor[:, None]
            y *= factor[:, None]
            if not FLOAT_NORM:
                x = x.to(a.dtype).to(tl.float32)
                y = y.to(a.dtype).to(tl.float32)
            norm = tl.where(is_query, tl.load(q_norm + half, mask=in_half, other=0.0).to(tl.float32),
                            tl.load(k_norm + half, mask=in_half, other=0.0).to(tl.float32))  # fmt: skip
            x *= norm[None, :]
            norm = tl.where(is_query, tl.load(q_norm + HALF + half, mask=in_half, other=0.0).to(tl.float32),
                            tl.load(k_norm + HALF + half, mask=in_half, other=0.0).to(tl.float32))  # fmt: skip
            y *= norm[None, :]
            x = x.to(a.dtype).to(tl.float32)
            y = y.to(a.dtype).to(tl.float32)
        c = tl.load(cos + position * HALF + half, mask=in_half, other=0.0).to(tl.float32)[None, :]
        s = tl.load(sin + position * HALF + half, mask=in_half, other=0.0).to(tl.float32)[None, :]
        a = (x * c - y * s).to(a.dtype)
        b = (y * c + x * s).to(b.dtype)
    if block < QUERY_BLOCKS:
        tl.store(source, a, mask=mask)
        tl.store(source + HALF, b, mask=mask)
    else:
        slot = tl.load(slots + token).to(tl.int64)
        page = tl.load(tables + slot * table_stride + position // PAGE).to(tl.int64)
        at = page * page_stride + (head[:, None] * PAGE + position % PAGE) * dim + half[None, :]
        if block < QUERY_BLOCKS + KV_BLOCKS:
            tl.store(keys + at, a, mask=mask)
            tl.store(keys + at + HALF, b, mask=mask)
        else:
            tl.store(values + at, a, mask=mask)
            tl.store(values + at + HALF, b, mask=mask)


def rotate_and_store(
    qkv: Tensor, positions: Tensor, slots: Tensor, tables: Tensor, keys: Tensor, values: Tensor,
    rotation: tuple[Tensor, Tensor], norms: tuple[Tensor, Tensor] | None, eps: float, heads: Heads,
) -> None:  # fmt: skip
    """Normalize and rotate queries (in place) and keys, and store keys and values in the pages of their sequences."""
    half = heads.dim // 2
    padded = triton.next_power_of_2(half)
    block = max(1, min(triton.next_power_of_2(heads.kv), ROTATED_ELEMENTS // (2 * padded)))
    query_blocks, kv_blocks = triton.cdiv(heads.query, block), triton.cdiv(heads.kv, block)
    q_norm, k_norm = norms or (qkv, qkv)
    _rotate_and_store[(len(qkv), query_blocks + 2 * kv_blocks)](
        qkv, positions, slots, tables, keys, values, *rotation, q_norm, k_norm, eps,
        qkv.stride(0), tables.stride(0), keys.stride(0),
        QUERY_HEADS=heads.query, KV_HEADS=heads.kv, HALF=half, HALF_PADDED=padded, HEADS=block,
        QUERY_BLOCKS=query_blocks, KV_BLOCKS=kv_blocks, PAGE=PAGE,
        HAS_NORM=norms is not None, FLOAT_NORM=q_norm.dtype != qkv.dtype,
        num_warps=4 if block * padded >= 512 else 1,
    )  # fmt: skip


@jit
def _gate(gate_up, out, width, GELU: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < width
    gate = tl.load(gate_up + row * 2 * width + column, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * width + width + column, mask=mask, other=0.0).to(tl.float32)
    if GELU:
        inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        gate = gate / (1.0 + tl.exp(-2.0 * inner))
    else:
        gate = gate / (1.0 + tl.exp(-gate))
    dtype = out.dtype.element_ty
    tl.store(out + row * width + column, (gate.to(dtype).to(tl.float32) * up).to(dtype), mask=mask)


def gate(gate_up: Tensor, activation: str) -> Tensor:
    """Return activation(gate) * up for rows of concatenated gate and up projections."""
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty((rows, width))
    block = min(1024, triton.next_power_of_2(width))
    _gate[(rows, triton.cdiv(width, block))](
        gate_up, out, width, GELU=activation == "gelu_tanh", BLOCK=block, num_warps=4
    )
    return out


@jit
def _extend_tables(slots, pages, positions, tables, table_stride, count, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    page = tl.load(pages + row, mask=row < count, other=0)
    slot = tl.load(slots + row, mask=row < count, other=0).to(tl.int64)
    position = tl.load(positions + row, mask=row < count, other=0)
    tl.store(tables + slot * table_stride + position // PAGE, page, mask=page > 0)


def extend_tables(slots: Tensor, pages: Tensor, positions: Tensor, tables: Tensor) -> None:
    """Write new pages (those that are not 0) to the block tables, at the given positions in their sequences."""
    _extend_tables[(triton.cdiv(len(slots), 256),)](
        slots, pages, positions, tables, tables.stride(0), len(slots), PAGE=PAGE, BLOCK=256
    )


@jit
def _apply_updates(updates, tables, state, pages, rows, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(updates + at, mask=at < pages, other=0)
    tl.store(tables + index, tl.load(updates + pages + at, mask=at < pages), mask=at < pages)
    row = at // WIDTH
    source = updates + 2 * pages + row * (WIDTH + 1)
    slot = tl.load(source, mask=row < rows, other=0)
    value = tl.load(source + 1 + at % WIDTH, mask=row < rows)
    tl.store(state + slot * WIDTH + at % WIDTH, value, mask=row < rows)


def apply_updates(updates: Tensor, pages: int, tables: Tensor, state: Tensor) -> None:
    """Write new block table elements (`pages` indices, then as many values) and state rows (slot, then state)."""
    width = state.shape[1]
    rows = (len(updates) - 2 * pages) // (width + 1)
    _apply_updates[(triton.cdiv(max(pages, rows * width), 256),)](
        updates, tables, state, pages, rows, WIDTH=width, BLOCK=256
    )


def mixture(x: Tensor, chosen: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, activation: str) -> Tensor:
    """Return the weighted sum of the chosen experts' outputs for each token."""
    count = chosen.shape[1]
    expert, order = chosen.flatten().sort()
    ends = torch.searchsorted(expert, torch.arange(len(gate_up), device=x.device), right=True).int()
    hidden = torch._grouped_mm(x.index_select(0, order // count), gate_up.transpose(1, 2), offs=ends)
    hidden = torch._grouped_mm(gate(hidden, activation), down.transpose(1, 2), offs=ends)
    hidden = hidden * weights.flatten().index_select(0, order)[:, None]
    return torch.empty_like(hidden).index_copy_(0, order, hidden).view(len(x), count, -1).sum(1)


@jit
def _decode_attention(
    qkv, keys, values, out, partial, partial_lse, positions, slots, tables, scale,
    qkv_stride, table_stride, page_stride,
    WINDOW: tl.constexpr, SPLITS: tl.constexpr, GROUP: tl.constexpr, GROUP_PADDED: tl.constexpr,
    DIM: tl.constexpr, DIM_PADDED: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    heads = tl.num_programs(1)
    split = tl.program_id(2)
    length = tl.load(positions + row) + 1
    table = tables + tl.load(slots + row).to(tl.int64) * table_stride
    member = tl.arange(0, GROUP_PADDED)
    d = tl.arange(0, DIM_PADDED)
    in_dim = d < DIM
    query_mask = (member < GROUP)[:, None] & in_dim[None, :]
    query = tl.load(qkv + row * qkv_stride + (head * GROUP + member)[:, None] * DIM + d[None, :], mask=query_mask,
                    other=0.0)  # fmt: skip
    first = 0
    if WINDOW > 0:
        first = tl.maximum(length - WINDOW, 0)
    start = first // BLOCK * BLOCK
    end = length
    if SPLITS > 1:
        share = tl.cdiv(tl.cdiv(length - start, SPLITS), BLOCK) * BLOCK
        start += split * share
        end = tl.minimum(start + share, length)
    maximum = tl.full([GROUP_PADDED], -1e30, tl.float32)
    total = tl.zeros([GROUP_PADDED], tl.float32)
    result = tl.zeros([GROUP_PADDED, DIM_PADDED], tl.float32)
    for at in range(start, end, BLOCK):
        t = at + tl.arange(0, BLOCK)
        visible = t < length
        if WINDOW > 0:
            visible &= t >= first
        page = tl.load(table + t // PAGE, mask=t < length, other=0).to(tl.int64)
        address = page * page_stride + (head * PAGE + t % PAGE) * DIM
        mask = visible[:, None] & in_dim[None, :]
        key = tl.load(keys + address[:, None] + d[None, :], mask=mask, other=0.0)
        value = tl.load(values + address[:, None] + d[None, :], mask=mask, other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
        score = tl.where(visible[None, :], score, -1e30)
        largest = tl.maximum(maximum, tl.max(score, 1))
        weight = tl.exp2(score - largest[:, None])
        shrink = tl.exp2(maximum - largest)
        total = total * shrink + tl.sum(weight, 1)
        result = result * shrink[:, None] + tl.dot(weight.to(value.dtype), value, input_precision=PRECISION)
        maximum = largest
    query_head = row * heads * GROUP + head * GROUP + member
    if SPLITS > 1:
        nonempty = tl.maximum(total, 1e-30)
        tl.store(partial_lse + query_head * SPLITS + split, maximum + tl.log2(nonempty), mask=member < GROUP)
        tl.store(partial + (query_head * SPLITS + split)[:, None] * DIM + d[None, :], result / nonempty[:, None],
                 mask=query_mask)  # fmt: skip
    else:
        tl.store(out + query_head[:, None] * DIM + d[None, :],
                 (result / total[:, None]).to(out.dtype.element_ty), mask=query_mask)  # fmt: skip


@jit
def _combine_splits(partial, partial_lse, out, SPLITS: tl.constexpr, DIM: tl.constexpr, DIM_PADDED: tl.constexpr):
    head = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, SPLITS)
    d = tl.arange(0, DIM_PADDED)
    lse = tl.load(partial_lse + head * SPLITS + split)
    weight = tl.exp2(lse - tl.max(lse, 0))
    part = tl.load(partial + (head * SPLITS + split)[:, None] * DIM + d[None, :], mask=(d < DIM)[None, :], other=0.0)
    result = tl.sum(part * weight[:, None], 0) / tl.sum(weight, 0)
    tl.store(out + head * DIM + d, result.to(out.dtype.element_ty), mask=d < DIM)


def decode_attention(
    qkv: Tensor, keys: Tensor, values: Tensor, positions: Tensor, slots: Tensor, tables: Tensor, heads: Heads,
    window: int | None,
) -> Tensor:  # fmt: skip
    """Return the attention of one query token per row, at `positions`, over all pages of its sequence."""
    rows, dim = len(qkv), heads.dim
    out = qkv.new_empty((rows, heads.query * dim))
    splits = max(1, min(MAX_SPLITS, triton.next_power_of_2(2 * MULTIPROCESSORS // (rows * heads.kv))))
    partial, lse = out, out
    if splits > 1:  # with few rows, several programs share a sequence, so that all multiprocessors are busy
        partial = torch.empty((rows, heads.query, splits, dim), dtype=torch.float32, device=qkv.device)
        lse = torch.empty((rows, heads.query, splits), dtype=torch.float32, device=qkv.device)
    padded = max(16, triton.next_power_of_2(dim))
    _decode_attention[(rows, heads.kv, splits)](
        qkv, keys, values, out, partial, lse, positions, slots, tables, heads.scale * LOG2_E,
        qkv.stride(0), tables.stride(0), keys.stride(0),
        WINDOW=window or 0, SPLITS=splits, GROUP=heads.group,
        GROUP_PADDED=max(16, triton.next_power_of_2(heads.group)), DIM=dim, DIM_PADDED=padded, PAGE=PAGE,
        PRECISION="ieee" if qkv.dtype == torch.float32 else "tf32",
        **_decode_options(rows, padded, qkv.element_size()),
    )  # fmt: skip
    if splits > 1:
        _combine_splits[(rows * heads.query,)](partial, lse, out, SPLITS=splits, DIM=dim, DIM_PADDED=padded,
                                               num_warps=1)  # fmt: skip
    return out


def _decode_options(rows: int, dim: int, element_size: int) -> dict[str, int]:
    block = 32 if dim * element_size > 256 else 64 if rows < 128 else 128
    return {"BLOCK": block, "num_warps": 4, "num_stages": 3 if element_size == 2 else 1}


@jit
def _prefill_attention(
    qkv, keys, values, out, tiles, tables, scale, qkv_stride, table_stride, page_stride,
    WINDOW: tl.constexpr, GROUP: tl.constexpr, DIM: tl.constexpr, DIM_PADDED: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    tile = tiles + (tl.num_programs(0) - 1 - tl.program_id(0)) * 4
    head = tl.program_id(1)
    heads = tl.num_programs(1)
    count = tl.load(tile + 2)
    if count == 0:
        return
    table = tables + tl.load(tile).to(tl.int64) * table_stride
    first = tl.load(tile + 1).to(tl.int64)
    position = tl.load(tile + 3)
    # Query heads that share a key/value head are rows of one tile: row = token * GROUP + member.
    row = tl.arange(0, BLOCK_M)
    token = row // GROUP
    query_head = head * GROUP + row % GROUP
    d = tl.arange(0, DIM_PADDED)
    in_dim = d < DIM
    query_mask = (token < count)[:, None] & in_dim[None, :]
    query = tl.load(qkv + ((first + token) * qkv_stride + query_head * DIM)[:, None] + d[None, :], mask=query_mask,
                    other=0.0)  # fmt: skip
    query_position = position + token
    end = position + count
    start = 0
    if WINDOW > 0:
        start = tl.maximum(position - WINDOW + 1, 0) // BLOCK_N * BLOCK_N
        visible_to_all = start
    else:
        visible_to_all = (position + 1) // BLOCK_N * BLOCK_N
    maximum = tl.full([BLOCK_M], -1e30, tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    result = tl.zeros([BLOCK_M, DIM_PADDED], tl.float32)
    for at in range(start, visible_to_all, BLOCK_N):
        t = at + tl.arange(0, BLOCK_N)
        page = tl.load(table + t // PAGE).to(tl.int64)
        address = page * page_stride + (head * PAGE + t % PAGE) * DIM
        if DIM == DIM_PADDED:
            key = tl.load(keys + address[:, None] + d[None, :])
            value = tl.load(values + address[:, None] + d[None, :])
        else:
            key = tl.load(keys + address[:, None] + d[None, :], mask=in_dim[None, :], other=0.0)
            value = tl.load(values + address[:, None] + d[None, :], mask=in_dim[None, :], other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
        largest = tl.maximum(maximum, tl.max(score, 1))
        weight = tl.exp2(score - largest[:, None])
        shrink = tl.exp2(maximum - largest)
        total = total * shrink + tl.sum(weight, 1)
        result = result * shrink[:, None]
        result = tl.dot(weight.to(value.dtype), value, result, input_precision=PRECISION)
        maximum = largest
    for at in range(visible_to_all, end, BLOCK_N):
        t = at + tl.arange(0, BLOCK_N)
        page = tl.load(table + t // PAGE, mask=t < end, other=0).to(tl.int64)
        address = page * page_stride + (head * PAGE + t % PAGE) * DIM
        mask = (t < end)[:, None] & in_dim[None, :]
        key = tl.load(keys + address[:, None] + d[None, :], mask=mask, other=0.0)
        value = tl.load(values + address[:, None] + d[None, :], mask=mask, other=0.0)
        visible = t[None, :] <= query_position[:, None]
        if WINDOW > 0:
            visible &= t[None, :] > query_position[:, None] - WINDOW
        score = tl.where(visible, tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale, -1e30)
        largest = tl.maximum(maximum, tl.max(score, 1))
        weight = tl.where(visible, tl.exp2(score - largest[:, None]), 0.0)
        shrink = tl.exp2(maximum - largest)
        total = total * shrink + tl.sum(weight, 1)
        result = result * shrink[:, None]
        result = tl.dot(weight.to(value.dtype), value, result, input_precision=PRECISION)
        maximum = largest
    target = ((first + token) * heads * GROUP + query_head) * DIM
    result = result / tl.maximum(total, 1e-30)[:, None]
    tl.store(out + target[:, None] + d[None, :], result.to(out.dtype.element_ty), mask=query_mask)


def prefill_tile_tokens(heads: Heads, element_size: int) -> int:
    """Return the maximum number of tokens in one tile of `prefill_attention`."""
    return max(1, _prefill_options(heads.dim, element_size)["BLOCK_M"] // heads.group)


def _prefill_options(dim: int, element_size: int) -> dict[str, int]:
    if element_size == 4:
        return {"BLOCK_M": 64, "BLOCK_N": 32, "num_warps": 4, "num_stages": 1}
    if dim <= 64:
        return {"BLOCK_M": 128, "BLOCK_N": 64, "num_warps": 4, "num_stages": 3}
    if dim <= 128:
        return {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4, "num_stages": 2}
    return {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 8, "num_stages": 2}


def prefill_attention(
    qkv: Tensor, keys: Tensor, values: Tensor, tiles: Tensor, tables: Tensor, heads: Heads, window: int | None
) -> Tensor:
    """Return the causal attention for chunks of sequences, whose keys and values are already in their pages.

    Each row in `tiles` describes consecutive tokens in one sequence: slot, index of the first token in `qkv`, number
    of tokens (0: an unused tile), position of the first token.
    """
    out = qkv.new_empty((len(qkv), heads.query * heads.dim))
    _prefill_attention[(len(tiles), heads.kv)](
        qkv, keys, values, out, tiles, tables, heads.scale * LOG2_E,
        qkv.stride(0), tables.stride(0), keys.stride(0),
        WINDOW=window or 0, GROUP=heads.group, DIM=heads.dim, DIM_PADDED=max(16, triton.next_power_of_2(heads.dim)),
        PAGE=PAGE, PRECISION="ieee" if qkv.dtype == torch.float32 else "tf32",
        **_prefill_options(heads.dim, qkv.element_size()),
    )  # fmt: skip
    return out
