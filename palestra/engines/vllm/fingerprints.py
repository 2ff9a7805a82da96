"""Fingerprints of weights: a few numbers per parameter, computed by the learner and by a vLLM worker.

A worker may store a weight in a packed form that cannot be read back, so a fingerprint describes what a layer computes:
the product of the weight with a fixed vector. It therefore also covers a packed copy that an update did not replace.
This module is imported in the server's environment, so it uses only torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

TIED = "lm_head.weight"  # name under which a worker reports the output layer, whether or not it is tied
SIZE = 4  # numbers per fingerprint: three projections and the norm
TOLERANCES = {torch.float32: 1e-3, torch.bfloat16: 5e-2, torch.float16: 1e-2}


def direction(size: int, index: int = 0) -> torch.Tensor:
    """Return a fixed vector with `size` float32 elements between -1 and 1; `index` selects one of several vectors."""
    return torch.cos(torch.arange(size, dtype=torch.float64) * (0.7 + 0.37 * index) + 0.3).float()


def summary(output: torch.Tensor) -> list[float]:
    """Return the fingerprint for the product of a weight with `direction`."""
    vector = output.detach().float().flatten().cpu()
    projections = [float(vector @ direction(len(vector), index + 1)) for index in range(SIZE - 1)]
    return [*projections, float(vector.norm())]


def fingerprint(weight: torch.Tensor) -> list[float]:
    """Return the fingerprint of a weight: a matrix [out, in] or a vector."""
    weight = weight.detach().float()
    if weight.dim() == 1:
        return summary(weight)
    return summary(weight.flatten(1) @ direction(weight[0].numel()).to(weight.device))


def learner_fingerprints(weights: Mapping[str, Any], *, tied: str | None) -> dict[str, list[float]]:
    """Return the fingerprint of every weight; `tied` names the weight that the output layer shares, if any."""
    fingerprints = {name: fingerprint(tensor) for name, tensor in weights.items()}
    if tied is not None and tied in fingerprints:
        fingerprints.setdefault(TIED, fingerprints[tied])
    return fingerprints


def differences(
    learner: Mapping[str, Sequence[float]], worker: Mapping[str, Sequence[float]], dtype: torch.dtype
) -> list[str]:
    """Return the names of the parameters whose fingerprints differ, those with the largest difference first."""
    tolerance = TOLERANCES.get(dtype, max(TOLERANCES.values()))
    errors = {name: _error(learner[name], worker[name]) for name in learner.keys() & worker.keys()}
    wrong = [name for name, error in errors.items() if not error <= tolerance]  # NaN is also a difference
    return sorted(wrong, key=lambda name: (-errors[name], name))


def _error(expected: Sequence[float], actual: Sequence[float]) -> float:
    """Return the largest difference relative to the norm."""
    scale = max(abs(expected[-1]), abs(actual[-1]), 1e-12)
    error = max(abs(a - b) for a, b in zip(expected, actual, strict=True)) / scale
    return error if error == error else float("inf")
