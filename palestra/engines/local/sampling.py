"""Sample one token per sequence from a batch of logits, with separate settings for each sequence."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from palestra.engines.base import Sampling


class SamplingTensors(NamedTuple):
    """The sampling settings for a batch, one element per sequence."""

    temperature: Tensor  # 1 for greedy sequences
    greedy: Tensor
    top_k: Tensor  # the vocabulary size if the filter is off
    top_p: Tensor
    min_p: Tensor
    logprob_temperature: Tensor  # the temperature at which log-probabilities are returned
    any_greedy: bool  # computed on the CPU to avoid a device synchronization
    any_top: bool
    any_min: bool
    any_tempered: bool  # whether any `logprob_temperature` is not 1


def is_unfiltered(sampling: Sampling) -> bool:
    """Return whether the settings leave the model's distribution unchanged."""
    return sampling.temperature == 1 and sampling.top_p == 1 and sampling.top_k == 0 and sampling.min_p == 0


SETTING_COUNT = 6


def settings_row(sampling: Sampling) -> tuple[float, ...]:
    """Return a sequence's settings as numbers: temperature, top-k, top-p, min-p, greedy, log-prob temperature."""
    temperature = sampling.temperature or 1.0
    greedy = float(sampling.temperature == 0)
    of_logprobs = temperature if sampling.tempered_logprobs else 1.0
    return temperature, sampling.top_k, sampling.top_p, sampling.min_p, greedy, of_logprobs


def sampling_tensors(rows: NDArray[np.float64], device_rows: Tensor, vocabulary: int) -> SamplingTensors:
    """Build the settings for a batch from `settings_row` columns; `device_rows` is the same array on the device."""
    _, top_k, top_p, min_p, greedy, of_logprobs = rows
    return SamplingTensors(
        temperature=device_rows[0].float(),
        greedy=device_rows[4] > 0,
        top_k=torch.where(device_rows[1] > 0, device_rows[1], vocabulary).clamp_(max=vocabulary).long(),
        top_p=device_rows[2],
        min_p=device_rows[3].float(),
        logprob_temperature=device_rows[5].float(),
        any_greedy=bool(greedy.any()),
        any_top=bool(((greedy == 0) & ((top_k > 0) | (top_p < 1))).any()),
        any_min=bool((min_p > 0).any()),
        any_tempered=bool((of_logprobs != 1).any()),
    )


def uniforms(seeds: NDArray[np.int64], positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return one number in [0, 1) per sequence, computed from its seed and the token's position (SplitMix64).

    The numbers do not depend on the rest of the batch, and a recomputed reply uses the same numbers.
    """
    x: Any = seeds.view(np.uint64) + (positions.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    numbers: NDArray[np.float64] = ((x ^ (x >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
    return numbers


def sample(logits: Tensor, uniforms: Tensor, settings: SamplingTensors | None) -> tuple[Tensor, Tensor]:
    """Return one token per row and its log-probability under the model without filters, at temperature 1.

    Rows whose settings have another `logprob_temperature` get the log-probability at that temperature.
    `uniforms` holds one number in [0, 1) per row; the same number and logits always yield the same token,
    regardless of the other rows. Filters apply in the order top-k, top-p, min-p, each to the result of the previous
    one. A row with non-finite logits has a NaN log-probability and a meaningless token.
    """
    logits = logits.float()
    maximum = logits.amax(-1, keepdim=True)
    centered = logits - maximum
    weights = centered.exp()
    if settings is None:
        cumulative = _cumulative(weights)
        ids = _inverse_transform(cumulative, uniforms)
        total = cumulative[:, -1]
    else:
        total = weights.sum(-1, dtype=torch.float64)
        cumulative = _cumulative(_filter((centered / settings.temperature[:, None]).exp_(), settings))
        ids = _inverse_transform(cumulative, uniforms)
        if settings.any_greedy:
            ids = torch.where(settings.greedy, logits.argmax(-1), ids)
        if settings.any_tempered:
            centered = centered / settings.logprob_temperature[:, None]
            total = centered.exp().sum(-1, dtype=torch.float64)
    return ids, centered.gather(1, ids[:, None])[:, 0] - total.log().float()


def _cumulative(weights: Tensor) -> Tensor:
    # In float32, rounding would remove the unlikely tokens in a large vocabulary from the cumulative sum.
    return weights.cumsum(-1, dtype=torch.float64)


def _inverse_transform(cumulative: Tensor, uniforms: Tensor) -> Tensor:
    """Return for each row the first token whose cumulative weight exceeds `uniforms` times the total weight."""
    share = uniforms[:, None] * cumulative[:, -1:]
    index = torch.searchsorted(cumulative, share, right=True)
    return index[:, 0].clamp_(max=cumulative.shape[1] - 1)  # out of range only if weights are NaN


def _filter(weights: Tensor, settings: SamplingTensors) -> Tensor:
    """Set the weights of excluded tokens to 0. The largest weight in each row is 1."""
    if settings.any_top:
        ordered = _sort_descending(weights)
        last = settings.top_k[:, None] - 1
        cumulative = ordered.cumsum(-1, dtype=torch.float64)
        # Top-p applies to the result of top-k: keep a token if the sum of the weights before it is less than `mass`.
        mass = settings.top_p[:, None] * cumulative.gather(1, last)
        reached = torch.searchsorted(cumulative, mass)
        # If top-p is off, also keep tokens that are too unlikely to change the cumulative sum.
        reached = torch.where(settings.top_p[:, None] < 1, reached, last)
        floor = ordered.gather(1, torch.minimum(reached, last))
        weights = weights.where(weights >= floor, 0.0)  # keep all ties, so that the result does not depend on order
    if settings.any_min:
        weights = weights.where(weights >= settings.min_p[:, None], 0.0)
    return weights


def _sort_descending(weights: Tensor) -> Tensor:
    if weights.device.type == "cpu":  # torch also sorts indices, which takes ten times as long
        ascending = weights.numpy().copy()
        ascending.sort(axis=-1)
        return torch.from_numpy(ascending).flip(-1)
    return weights.sort(-1, descending=True).values
