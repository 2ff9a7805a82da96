"""Interquartile mean over runs, with stratified bootstrap intervals (Agarwal et al., 2021; the rliable library).

Scores are grouped by task: `scores["task"]` has one score per run. Runs are resampled within each task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Scores = Mapping[str, Sequence[float]]
RESAMPLES = 2000


def iqm(scores: Scores) -> float:
    """Return the mean of all scores without the lowest and the highest quarter, both rounded down."""
    return float(_trimmed_mean(np.concatenate([np.asarray(values, dtype=float) for values in scores.values()])))


def interval(scores: Scores, *, confidence: float = 0.95, resamples: int = RESAMPLES, seed: int = 0) -> list[float]:
    """Return the lower and the upper bound of the percentile bootstrap interval for `iqm(scores)`."""
    rng = np.random.RandomState(seed)  # its numbers are the same in every version of NumPy
    drawn = []
    for values in scores.values():
        array = np.asarray(values, dtype=float)
        drawn.append(array[rng.randint(len(array), size=(resamples, len(array)))])
    tail = 50 * (1 - confidence)
    low, high = np.percentile(_trimmed_mean(np.concatenate(drawn, axis=1)), [tail, 100 - tail])
    return [float(low), float(high)]


def _trimmed_mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the interquartile mean of the last axis."""
    count = values.shape[-1]
    if count == 0:
        raise ValueError("the interquartile mean needs at least one score")
    cut = count // 4
    mean: NDArray[np.float64] = np.sort(values, axis=-1)[..., cut : count - cut].mean(axis=-1)
    return mean
