"""List the generators of well-known programming problems. Each takes a random generator and returns a Program."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from palestra.envs.code import classics_lists as lists
from palestra.envs.code import classics_numbers as numbers
from palestra.envs.code import classics_simulation as simulation
from palestra.envs.code.programs import Program

ProblemKind = Callable[[Random], Program]

ON_NUMBERS: tuple[ProblemKind, ...] = (
    lists.pairs,
    lists.windows,
    lists.longest_run,
    lists.subsequence,
    lists.best_block,
    lists.majority,
)
OTHERS: tuple[ProblemKind, ...] = (
    numbers.coins,
    simulation.paths,
    simulation.automaton,
    numbers.recurrence,
    numbers.circle_game,
    simulation.robot,
    simulation.brackets,
    simulation.intervals,
    numbers.knapsack,
    simulation.matrix,
    simulation.word_counts,
    simulation.calculator,
    numbers.collatz,
)
