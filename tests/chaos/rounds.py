"""Repeat a scenario with different random numbers until its share of the time is used up."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random, SystemRandom
from time import monotonic

SCENARIOS = 6  # number of callers of `rounds`, which share PALESTRA_CHAOS_SECONDS equally
SEED = int(os.environ.get("PALESTRA_CHAOS_SEED") or (0 if "CI" in os.environ else SystemRandom().randrange(10**6)))
SECONDS = float(os.environ.get("PALESTRA_CHAOS_SECONDS") or 0)  # 0: one round of every scenario


def rounds(name: str) -> Iterator[Random]:
    """Yield one random generator per round. pytest shows the printed seed if a round fails."""
    end = monotonic() + SECONDS / SCENARIOS
    number = 0
    while number == 0 or monotonic() < end:
        print(f"{name}, round {number}; repeat with PALESTRA_CHAOS_SEED={SEED}")
        yield Random(f"{SEED} {name} {number}")
        number += 1
