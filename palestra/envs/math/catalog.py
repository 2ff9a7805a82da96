"""Catalog of the `math` family (data only): GEM's datasets and generated tasks.

`benchmarks/rates.py` measures the success rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from palestra.envs.tasks.ids import data_spec
from palestra.spec import EnvSpec

math_data = partial(data_spec, "palestra.envs.math.problems:MathProblems", question="problem", answer="answer")

_DATA_SPECS = [
    math_data("math:ASDiv2K", "grade-school word problems", dataset="axon-rl/ASDIV-2k"),
    math_data("math:GSM8K", "grade-school word problems with several steps", dataset="axon-rl/GSM-8k"),
    math_data("math:Math12K", "competition problems, all levels", dataset="axon-rl/MATH-12k"),
    math_data("math:Math8K-3to5", "competition problems, levels 3 to 5", dataset="axon-rl/MATH-lvl3to5-8k"),
    math_data("math:Orz57K", "problems from Open-Reasoner-Zero", dataset="axon-rl/ORZ-57k"),
    math_data("math:DeepScaleR40K", "competition problems from DeepScaleR", dataset="axon-rl/DeepScaleR-40K"),
    math_data("math:Geometry3K", "geometry problems with figures", dataset="axon-rl/geometry3k", images="images"),
    math_data("math:File-v0", "your own problems from a file, a folder or any dataset"),
]

# Maps each name to (entry point, summary, success rates of the random, echo and constant player by level).
_GENERATORS: Mapping[str, tuple[str, str, Mapping[str, tuple[float, float, float]]]] = {
    "Arithmetic": (
        "arithmetic:Arithmetic",
        "evaluate an expression exactly",
        {"easy": (0.005, 0.03, 0.005), "hard": (0.002, 0.0, 0.006), "random": (0.003, 0.007, 0.006)},
    ),
    "Algebra": (
        "algebra:Algebra",
        "solve equations and systems, and compute with polynomials",
        {"easy": (0.006, 0.01, 0.02), "hard": (0.001, 0.0, 0.017), "random": (0.002, 0.01, 0.022)},
    ),
    "NumberTheory": (
        "number_theory:NumberTheory",
        "divisors, primes, remainders, congruences",
        {"easy": (0.005, 0.023, 0.09), "hard": (0.0, 0.033, 0.067), "random": (0.002, 0.023, 0.057)},
    ),
    "WordProblems": (
        "word_problems:WordProblems",
        "word problems with several steps",
        {"easy": (0.005, 0.017, 0.016), "hard": (0.001, 0.009, 0.009), "random": (0.003, 0.015, 0.022)},
    ),
    "Geometry": (
        "geometry:Geometry",
        "find a length, an angle or an area in a drawn figure",
        {"easy": (0.01, 0.015, 0.029), "hard": (0.0, 0.0, 0.0), "random": (0.003, 0.0, 0.0)},
    ),
}

_GENERATED_SPECS = [
    EnvSpec(
        id=f"math:{name}-v0-{level}",
        entry_point=f"palestra.envs.math.{entry}",
        kwargs={"level": level},
        summary=summary,
        reward_range=(-0.1, 1.0),
        expert_success=1.0,
        random_success=random,
        echo_success=echo,
        constant_success=constant,
        splits=("train", "test"),
        extra="math" if name == "Geometry" else None,
    )
    for name, (entry, summary, rates) in _GENERATORS.items()
    for level, (random, echo, constant) in rates.items()
]

SPECS = [*_DATA_SPECS, *_GENERATED_SPECS]
