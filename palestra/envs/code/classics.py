"""Well-known problems with parameters of their own. Each maker draws its parameters and gives a whole Program."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from palestra.envs.code import classics_lists as lists
from palestra.envs.code import classics_numbers as numbers
from palestra.envs.code import classics_worlds as worlds
from palestra.envs.code.programs import Program

Maker = Callable[[Random], Program]

ON_NUMBERS: tuple[Maker, ...] = (
    lists.pairs,
    lists.windows,
    lists.longest_run,
    lists.subsequence,
    lists.best_block,
    lists.majority,
)
OTHERS: tuple[Maker, ...] = (
    numbers.coins,
    worlds.paths,
    worlds.automaton,
    numbers.recurrence,
    numbers.circle_game,
    worlds.robot,
    worlds.brackets,
    worlds.intervals,
    numbers.knapsack,
    worlds.matrix,
    worlds.word_counts,
    worlds.calculator,
    numbers.walk,
)
