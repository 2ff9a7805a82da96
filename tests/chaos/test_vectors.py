"""Chaos in vectors: envs in worker processes raise, hang, exit and return invalid rewards at random."""

from __future__ import annotations

from typing import Any

from palestra.vector import make_vec
from tests.chaos.rounds import rounds
from tests.vector.envs import Trouble
from tests.vector.test_faults import soak

FAULTS = ["raise", "quit", "exit", "kill", "lambda", "four", "reward nan", "reward none", "reward text", "sleep 0.02"]


def test_vectors() -> None:
    """Check that every env's results equal those of a run without faults, except for the requested failures."""
    for rng in rounds("vectors"):
        rates = {word: rng.uniform(0.0, 0.03) for word in rng.sample(FAULTS, 5)}
        options: dict[str, Any] = {
            "num_envs": rng.randint(4, 12),
            "workers": rng.randint(1, 3),
            "threads": rng.choice([1, None]),
            "autoreset": rng.choice(["same_step", "next_step"]),
            "seed": rng.getrandbits(32),
        }
        print(options, rates)
        with make_vec(Trouble, backend="process", step_timeout=2.0, max_restarts=1000, **options) as vec:
            soak(vec, 150, {**rates, "hang": 0.004}, seed=rng.getrandbits(32))
