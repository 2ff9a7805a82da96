"""Turn the logits of many rows into one sampled token each, every row by its own settings."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from palestra.engines.base import Sampling


class Settings(NamedTuple):
    """The settings of a batch, a row each."""

    temperature: Tensor  # 1 where greedy
    greedy: Tensor
    top_k: Tensor  # the vocabulary's size where off
    top_p: Tensor
    min_p: Tensor
    any_greedy: bool  # known without asking the device
    any_top: bool
    any_min: bool


def is_plain(sampling: Sampling) -> bool:
    """Whether it samples the model as it is."""
    return sampling.temperature == 1 and sampling.top_p == 1 and sampling.top_k == 0 and sampling.min_p == 0


NUMBERS = 5


def numbers_of(sampling: Sampling) -> tuple[float, ...]:
    """The settings of a row as numbers: temperature, top-k, top-p, min-p and whether it is greedy."""
    return (
        sampling.temperature or 1.0, sampling.top_k, sampling.top_p, sampling.min_p, float(sampling.temperature == 0)
    )  # fmt: skip


def settings(numbers: NDArray[np.float64], there: Tensor, vocabulary: int) -> Settings:
    """The settings of rows from their `numbers_of`, a column each; `there` is the same on the device."""
    _, top_k, top_p, min_p, greedy = numbers
    return Settings(
        temperature=there[0].float(),
        greedy=there[4] > 0,
        top_k=torch.where(there[1] > 0, there[1], vocabulary).clamp_(max=vocabulary).long(),
        top_p=there[2],
        min_p=there[3].float(),
        any_greedy=bool(greedy.any()),
        any_top=bool(((greedy == 0) & ((top_k > 0) | (top_p < 1))).any()),
        any_min=bool((min_p > 0).any()),
    )


def seed_of(seed: int) -> int:
    """A number of 64 bits, with its sign, for a seed of any size; near seeds have nothing in common."""
    return int.from_bytes(blake2b(str(seed).encode(), digest_size=8).digest(), "big", signed=True)


def uniforms(seeds: NDArray[np.int64], places: NDArray[np.int64]) -> NDArray[np.float64]:
    """A number in [0, 1) for each row, from its seed and which of its draws this is, and nothing else (SplitMix64).

    So neither the other rows nor their number change what is drawn, and a reply that starts over draws the same again.
    """
    x: Any = seeds.view(np.uint64) + (places.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: NDArray[np.float64] = ((x ^ (x >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
    return found


def sample(logits: Tensor, uniforms: Tensor, by: Settings | None) -> tuple[Tensor, Tensor]:
    """A token for each row and its log-probability under the model itself: temperature 1, no filter.

    `uniforms` has a number in [0, 1) for each row; the same number and logits give the same token, whatever the other
    rows are. The filters apply in the order top-k, top-p, min-p, each to what the one before left. Where a row's logits
    are not finite its log-probability is NaN, and its token means nothing.
    """
    logits = logits.float()
    best = logits.amax(-1, keepdim=True)
    centred = logits - best
    weights = centred.exp()
    if by is None:
        line = _line(weights)
        ids = _first_above(line, uniforms)
        total = line[:, -1]
    else:
        total = weights.sum(-1, dtype=torch.float64)
        line = _line(_filtered((centred / by.temperature[:, None]).exp_(), by))
        ids = _first_above(line, uniforms)
        if by.any_greedy:
            ids = torch.where(by.greedy, logits.argmax(-1), ids)
    return ids, centred.gather(1, ids[:, None])[:, 0] - total.log().float()


def _line(weights: Tensor) -> Tensor:
    # float32 would lose the unlikely end of a large vocabulary
    return weights.cumsum(-1, dtype=torch.float64)


def _first_above(line: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse transform sampling: the first token whose sum of weights is above the row's share of the total."""
    share = uniforms[:, None] * line[:, -1:]
    found = torch.searchsorted(line, share, right=True)
    return found[:, 0].clamp_(max=line.shape[1] - 1)  # beyond the end only where the weights are NaN


def _filtered(weights: Tensor, by: Settings) -> Tensor:
    """The weights, 0 for what the filters leave out. The largest weight of a row is 1."""
    if by.any_top:
        ordered = _descending(weights)
        last = by.top_k[:, None] - 1
        line = ordered.cumsum(-1, dtype=torch.float64)
        # top-p counts what top-k left; a token stays if those before it do not reach the mass yet
        mass = by.top_p[:, None] * line.gather(1, last)
        reached = torch.searchsorted(line, mass)
        reached = torch.where(by.top_p[:, None] < 1, reached, last)  # off: also what is too small to move the sum stays
        floor = ordered.gather(1, torch.minimum(reached, last))
        weights = weights.where(weights >= floor, 0.0)  # equals stay together, so that chance does not pick the set
    if by.any_min:
        weights = weights.where(weights >= by.min_p[:, None], 0.0)
    return weights


def _descending(weights: Tensor) -> Tensor:
    if weights.device.type == "cpu":  # torch sorts indices along, which takes it ten times as long
        ascending = weights.numpy().copy()
        ascending.sort(axis=-1)
        return torch.from_numpy(ascending).flip(-1)
    return weights.sort(-1, descending=True).values
