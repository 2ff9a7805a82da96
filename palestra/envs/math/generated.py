"""Mathematics made up on the spot: ids of the generators. Rates are measured by `benchmarks/rates.py`. Data only."""

from __future__ import annotations

from collections.abc import Mapping

from palestra.spec import EnvSpec

_GENERATORS: Mapping[str, tuple[str, str, Mapping[str, float]]] = {
    "Arithmetic": (
        "arithmetic:Arithmetic",
        "calculate an expression exactly",
        {"easy": 0.005, "hard": 0.002, "random": 0.003},
    ),
    "Algebra": (
        "algebra:Algebra",
        "equations, systems, polynomials",
        {"easy": 0.006, "hard": 0.001, "random": 0.002},
    ),
    "NumberTheory": (
        "number_theory:NumberTheory",
        "divisors, primes, remainders, congruences",
        {"easy": 0.005, "hard": 0.0, "random": 0.002},
    ),
    "WordProblems": (
        "word_problems:WordProblems",
        "stories of several steps with a number to find",
        {"easy": 0.007, "hard": 0.004, "random": 0.004},
    ),
    "Geometry": (
        "geometry:Geometry",
        "a drawn figure: a length, an angle or an area to find",
        {"easy": 0.01, "hard": 0.0, "random": 0.003},
    ),
}

GENERATED = [
    EnvSpec(
        id=f"math:{name}-v0-{level}",
        entry_point=f"palestra.envs.math.{entry}",
        kwargs={"level": level},
        summary=summary,
        reward_range=(-0.1, 1.0),
        expert_success=1.0,
        random_success=rate,
    )
    for name, (entry, summary, rates) in _GENERATORS.items()
    for level, rate in rates.items()
]
