"""GEM's functions for random generators; numpy is required."""

from __future__ import annotations

from typing import Any, cast

from palestra.compat.gem.base import seed_everything
from palestra.seeding import check_seed

set_seed = seed_everything


def np_random(seed: int | None = None) -> tuple[Any, int]:
    """Return numpy's default generator for a seed, and the seed."""
    import numpy as np

    sequence = np.random.SeedSequence(None if seed is None else check_seed(seed))
    return np.random.Generator(np.random.PCG64(sequence)), cast(int, sequence.entropy)
