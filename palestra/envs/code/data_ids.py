"""Programming problems from data sets: ids are GEM's. Data only."""

from __future__ import annotations

from functools import partial

from palestra.envs.tasks.ids import data_set

code_set = partial(data_set, "palestra.envs.code.problems:CodeProblems", question="problem", tests="tests")

DATA = [
    code_set("code:CodeContest", "contest problems, read from standard input", dataset="axon-rl/CodeContest"),
    code_set("code:Taco8k", "contest problems of TACO", dataset="axon-rl/TACO-8k"),
    code_set("code:PrimeIntellect15k", "problems with verified tests", dataset="axon-rl/PrimeIntellect-15k"),
    code_set("code:File-v0", "problems with tests of your own: a file, a folder or any data set"),
]
