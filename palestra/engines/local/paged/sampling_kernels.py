"""Triton kernels that sample one token per row in one pass over the logits, without sorting the vocabulary.

Tokens are sampled with the Gumbel-max trick: divide each logit by the temperature, add a random number that depends
only on the seed, the position in the reply and the token, and take the largest sum. `reference.sample` has the same
results.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from palestra.engines.local.paged.layout import (
    LAST_TOKEN,
    LENGTH,
    LOGPROB_TEMPERATURE,
    MIN_P,
    SAMPLED,
    SEED_HIGH,
    SEED_LOW,
    STATE_WIDTH,
    TEMPERATURE,
    TOP_K,
    TOP_P,
)  # fmt: skip

try:
    import triton
    import triton.language as tl

    jit: Any = triton.jit
except ModuleNotFoundError:  # CPU builds of torch do not include Triton

    def jit(function: Any) -> Any:
        return function


BLOCK = 2048
SPLITS = 8  # programs per row


@jit
def _mix(x):
    """Apply MurmurHash3's 32-bit finalizer."""
    x = x ^ (x >> 16)
    x = x * 0x85EBCA6B
    x = x ^ (x >> 13)
    x = x * 0xC2B2AE35
    return x ^ (x >> 16)


@jit
def _ordered(x, SHIFT: tl.constexpr):
    """Map float32 values to integers in the same order; SHIFT drops low bits that are always the same."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits) >> SHIFT


@jit
def _thresholds(
    logits, rows, state, thresholds, vocabulary,
    WIDTH: tl.constexpr, TEMPERATURE: tl.constexpr, TOP_K: tl.constexpr, TOP_P: tl.constexpr, MIN_P: tl.constexpr,
    SHIFT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Find for each row the smallest logit that top-k, top-p and min-p keep, by bisection over the possible values."""
    row = tl.program_id(0).to(tl.int64)
    settings = state + tl.load(rows + row).to(tl.int64) * WIDTH
    temperature = tl.load(settings + TEMPERATURE).to(tl.float32, bitcast=True)
    top_k = tl.load(settings + TOP_K)
    top_p = tl.load(settings + TOP_P).to(tl.float32, bitcast=True)
    min_p = tl.load(settings + MIN_P).to(tl.float32, bitcast=True)
    if (top_k <= 0) | (top_k > vocabulary):
        top_k = vocabulary
    threshold = float("-inf")
    if (temperature > 0) & ((top_k < vocabulary) | (top_p < 1) | (min_p > 0)):
        logits += row * vocabulary
        lane = tl.arange(0, BLOCK)
        largest = tl.full([BLOCK], float("-inf"), tl.float32)
        smallest = tl.full([BLOCK], float("inf"), tl.float32)
        for at in range(0, vocabulary, BLOCK):
            x = tl.load(logits + at + lane, mask=at + lane < vocabulary, other=float("nan")).to(tl.float32)
            largest = tl.maximum(largest, x)
            smallest = tl.minimum(smallest, x)
        maximum = tl.max(largest, 0)
        low = _ordered(tl.min(smallest, 0), SHIFT).to(tl.int64)  # satisfies the condition
        top = _ordered(maximum, SHIFT).to(tl.int64) + 1  # does not
        if top_k < vocabulary:
            high = top
            while high - low > 1:
                middle = (low + high) // 2
                count = tl.zeros([BLOCK], tl.int32)
                for at in range(0, vocabulary, BLOCK):
                    mask = at + lane < vocabulary
                    x = tl.load(logits + at + lane, mask=mask, other=0.0).to(tl.float32)
                    count += (mask & (_ordered(x, SHIFT) >= middle)).to(tl.int32)
                if tl.sum(count, 0) >= top_k:
                    low = middle
                else:
                    high = middle
        if top_p < 1:
            mass = tl.zeros([BLOCK], tl.float32)
            for at in range(0, vocabulary, BLOCK):
                x = tl.load(logits + at + lane, mask=at + lane < vocabulary, other=float("-inf")).to(tl.float32)
                mass += tl.where(_ordered(x, SHIFT) >= low, tl.exp((x - maximum) / temperature), 0.0)
            wanted = top_p * tl.sum(mass, 0)
            high = top
            while high - low > 1:
                middle = (low + high) // 2
                mass = tl.zeros([BLOCK], tl.float32)
                for at in range(0, vocabulary, BLOCK):
                    x = tl.load(logits + at + lane, mask=at + lane < vocabulary, other=float("-inf")).to(tl.float32)
                    mass += tl.where(_ordered(x, SHIFT) >= middle, tl.exp((x - maximum) / temperature), 0.0)
                if tl.sum(mass, 0) >= wanted:
                    low = middle
                else:
                    high = middle
        if (top_k < vocabulary) | (top_p < 1):
            bits = (low << SHIFT).to(tl.int32)
            threshold = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.float32, bitcast=True)
        if min_p > 0:
            threshold = tl.maximum(threshold, maximum + temperature * tl.log(min_p))
    tl.store(thresholds + row, threshold)


@jit
def _sample_splits(
    logits, rows, state, thresholds, partial, partial_ids, vocabulary,
    WIDTH: tl.constexpr, TEMPERATURE: tl.constexpr, SAMPLED: tl.constexpr, SEED_LOW: tl.constexpr,
    SEED_HIGH: tl.constexpr, LOGPROB_TEMPERATURE: tl.constexpr, SPLITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    settings = state + tl.load(rows + row).to(tl.int64) * WIDTH
    temperature = tl.load(settings + TEMPERATURE).to(tl.float32, bitcast=True)
    greedy = temperature == 0
    inverse = 1.0 / tl.where(greedy, 1.0, temperature)
    scale = 1.0 / tl.load(settings + LOGPROB_TEMPERATURE).to(tl.float32, bitcast=True)
    sampled = tl.load(settings + SAMPLED).to(tl.uint32, bitcast=True)
    low = tl.load(settings + SEED_LOW).to(tl.uint32, bitcast=True)
    high = tl.load(settings + SEED_HIGH).to(tl.uint32, bitcast=True)
    first_key = _mix(low ^ _mix(sampled + 0x9E3779B9))
    second_key = _mix(high + _mix(first_key ^ 0x5BD1E995))
    threshold = tl.load(thresholds + row)
    share = tl.cdiv(tl.cdiv(vocabulary, SPLITS), BLOCK) * BLOCK
    start = split * share
    end = tl.minimum(start + share, vocabulary)
    lane = tl.arange(0, BLOCK)
    maximum = tl.full([BLOCK], -1e30, tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    best_id = tl.zeros([BLOCK], tl.int32)
    for at in range(start, end, BLOCK):
        token = at + lane
        x = tl.load(logits + row * vocabulary + token, mask=token < end, other=float("-inf")).to(tl.float32)
        largest = tl.maximum(maximum, x * scale)
        total = total * tl.exp(maximum - largest) + tl.exp(x * scale - largest)
        maximum = largest
        noise = _mix(_mix(token.to(tl.uint32) + first_key) ^ second_key)
        u = (noise.to(tl.float32) + 0.5) * 2.3283064365386963e-10
        # An exponential random number. Small `u` select unlikely tokens, but the logarithm would round them to 0.
        exponential = tl.where(u < 1e-3, u + 0.5 * u * u, -tl.log(tl.maximum(1.0 - u, 2.9802322387695312e-08)))
        score = tl.where(greedy, x, x * inverse - tl.log(exponential))
        score = tl.where(x >= threshold, score, float("-inf"))
        better = score > best
        best = tl.where(better, score, best)
        best_id = tl.where(better, token, best_id)
    row_maximum = tl.max(maximum, 0)
    row_total = tl.sum(total * tl.exp(maximum - row_maximum), 0)
    row_best = tl.max(best, 0)
    row_id = tl.min(tl.where(best == row_best, best_id, 2147483647), 0)
    at = row * SPLITS + split
    count = tl.num_programs(0).to(tl.int64) * SPLITS
    tl.store(partial + at, row_maximum)
    tl.store(partial + count + at, row_total)
    tl.store(partial + 2 * count + at, row_best)
    tl.store(partial_ids + at, row_id)


@jit
def _finish_sample(
    logits, rows, state, partial, partial_ids, tokens, logprobs, vocabulary, padding_slot,
    WIDTH: tl.constexpr, LENGTH: tl.constexpr, LAST_TOKEN: tl.constexpr, SAMPLED: tl.constexpr,
    LOGPROB_TEMPERATURE: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    count = tl.num_programs(0).to(tl.int64) * SPLITS
    at = row * SPLITS + tl.arange(0, SPLITS)
    maximum = tl.load(partial + at)
    largest = tl.max(maximum, 0)
    total = tl.sum(tl.load(partial + count + at) * tl.exp(maximum - largest), 0)
    best = tl.load(partial + 2 * count + at)
    token = tl.min(tl.where(best == tl.max(best, 0), tl.load(partial_ids + at), 2147483647), 0)
    token = tl.minimum(token, vocabulary - 1)
    logit = tl.load(logits + row * vocabulary + token).to(tl.float32)
    slot = tl.load(rows + row).to(tl.int64)
    settings = state + slot * WIDTH
    scale = 1.0 / tl.load(settings + LOGPROB_TEMPERATURE).to(tl.float32, bitcast=True)
    tl.store(tokens + row, token)
    tl.store(logprobs + row, logit * scale - largest - tl.log(total))
    if slot != padding_slot:
        tl.store(settings + LENGTH, tl.load(settings + LENGTH) + 1)
        tl.store(settings + LAST_TOKEN, token)
        tl.store(settings + SAMPLED, tl.load(settings + SAMPLED) + 1)


def sample(logits: Tensor, rows: Tensor, state: Tensor, tokens: Tensor, logprobs: Tensor) -> None:
    """Sample a token for each slot in `rows`, and advance the slots' state.

    Writes to `tokens` and, as float32, to `logprobs`: the log-probability without filters, at the temperature in the
    slot's state. A row with non-finite logits has a NaN log-probability and a meaningless token.
    """
    count, vocabulary = logits.shape
    thresholds = torch.empty(count, dtype=torch.float32, device=logits.device)
    partial = torch.empty((3, count, SPLITS), dtype=torch.float32, device=logits.device)
    partial_ids = torch.empty((count, SPLITS), dtype=torch.int32, device=logits.device)
    _thresholds[(count,)](
        logits, rows, state, thresholds, vocabulary, WIDTH=STATE_WIDTH, TEMPERATURE=TEMPERATURE, TOP_K=TOP_K,
        TOP_P=TOP_P, MIN_P=MIN_P, SHIFT=16 if logits.dtype == torch.bfloat16 else 0, BLOCK=4096, num_warps=8,
    )  # fmt: skip
    _sample_splits[(count, SPLITS)](
        logits, rows, state, thresholds, partial, partial_ids, vocabulary, WIDTH=STATE_WIDTH, TEMPERATURE=TEMPERATURE,
        SAMPLED=SAMPLED, SEED_LOW=SEED_LOW, SEED_HIGH=SEED_HIGH,
        LOGPROB_TEMPERATURE=LOGPROB_TEMPERATURE, SPLITS=SPLITS, BLOCK=BLOCK, num_warps=8,
    )  # fmt: skip
    _finish_sample[(count,)](
        logits, rows, state, partial, partial_ids, tokens, logprobs, vocabulary, len(state) - 1, WIDTH=STATE_WIDTH,
        LENGTH=LENGTH, LAST_TOKEN=LAST_TOKEN, SAMPLED=SAMPLED, LOGPROB_TEMPERATURE=LOGPROB_TEMPERATURE,
        SPLITS=SPLITS, num_warps=1,
    )  # fmt: skip
