"""Specs for the `code` environments: GEM's datasets and program generators."""

from __future__ import annotations

from functools import partial

from palestra.envs.tasks.ids import data_spec
from palestra.spec import EnvSpec

code_data = partial(data_spec, "palestra.envs.code.problems:CodeProblems", question="problem", tests="tests")

_DATA_SPECS = [
    code_data("code:CodeContest", "contest problems that read standard input", dataset="axon-rl/CodeContest"),
    code_data("code:Taco8k", "contest problems from TACO", dataset="axon-rl/TACO-8k"),
    code_data("code:PrimeIntellect15k", "problems with verified tests", dataset="axon-rl/PrimeIntellect-15k"),
    code_data("code:File-v0", "your own problems with tests, from a file, a folder or any dataset"),
]

_GENERATORS = {
    "Puzzles": ("puzzles:Puzzles", "write a function from its description, graded by hidden tests"),
    "Algorithms": ("algorithms:Algorithms", "solve an algorithmic problem within a time limit, graded by hidden tests"),
    "Repair": ("repair:Repair", "fix the bugs in a program, graded by hidden tests"),
}

# Repair's random player adds another bug, which sometimes fixes the first one.
_RANDOM = {("Repair", "easy"): 0.13, ("Repair", "random"): 0.05}
_CONSTANT = {("Algorithms", "hard"): 0.004}  # the same problem occurs twice in a few hundred episodes

_GENERATED_SPECS = [
    EnvSpec(
        id=f"code:{name}-v0-{level}",
        entry_point=f"palestra.envs.code.{entry}",
        kwargs={"level": level},
        summary=summary,
        reward_range=(-0.1, 1.0),
        expert_success=1.0,
        random_success=_RANDOM.get((name, level), 0.0),
        echo_success=0.0,
        constant_success=_CONSTANT.get((name, level), 0.0),
        splits=("train", "test"),
    )
    for name, (entry, summary) in _GENERATORS.items()
    for level in ("easy", "hard", "random")
]

SPECS = [*_DATA_SPECS, *_GENERATED_SPECS]
