"""Environment in which the agent solves an algorithmic problem within a time limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, ClassVar, Unpack

from palestra.envs.code import (
    algorithms_blocks,
    algorithms_graphs,
    algorithms_grids,
    algorithms_numbers,
    algorithms_sequences,
    algorithms_structures,
    algorithms_text,
)
from palestra.envs.code.algorithm_parts import Algorithm, add_constraint, add_form
from palestra.envs.code.base import CodeTask
from palestra.envs.code.programs import FUNCTION, Args, compile_function, format_call
from palestra.envs.code.puzzles import choose_examples
from palestra.envs.tasks.base import Item, TaskOptions
from palestra.envs.tasks.generated import Levels, check_bool, check_int, check_subset
from palestra.grading import CallTest

SMALL_TESTS, LARGE_TESTS = 40, 2  # hidden tests per problem in addition to its edge cases
_FUNCTIONS: tuple[Callable[[Random], Algorithm], ...] = (
    algorithms_sequences.subsequence,
    algorithms_sequences.target_sum,
    algorithms_sequences.budget,
    algorithms_blocks.block,
    algorithms_blocks.split,
    algorithms_sequences.apart,
    algorithms_sequences.trades,
    algorithms_sequences.jumps,
    algorithms_blocks.blocks_counted,
    algorithms_blocks.inversions,
    algorithms_sequences.ends_game,
    algorithms_text.alignment,
    algorithms_text.palindromes,
    algorithms_text.segmentation,
    algorithms_text.digit_split,
    algorithms_text.expression,
    algorithms_text.repetition,
    algorithms_text.bracket_repair,
    algorithms_graphs.shortest_path,
    algorithms_grids.grid_steps,
    algorithms_graphs.groups,
    algorithms_graphs.ordering,
    algorithms_graphs.spanning_tree,
    algorithms_graphs.tree,
    algorithms_grids.islands,
    algorithms_structures.meetings,
    algorithms_structures.next_greater,
    algorithms_structures.histogram,
    algorithms_structures.cache,
    algorithms_structures.counters,
    algorithms_structures.medians,
    algorithms_structures.merging,
    algorithms_numbers.digit_count,
    algorithms_numbers.multiples,
    algorithms_numbers.smooth_numbers,
    algorithms_numbers.stones,
    algorithms_numbers.dice,
    algorithms_numbers.power_cycle,
)
KINDS: Mapping[str, Callable[[Random], Algorithm]] = {function.__name__: function for function in _FUNCTIONS}
EASY = (
    *("block", "blocks_counted", "bracket_repair", "cache", "counters", "groups", "histogram", "inversions", "islands"),
    *("medians", "meetings", "next_greater", "repetition", "apart", "jumps", "tree", "grid_steps", "merging"),
)


class Algorithms(CodeTask):
    """Solve an algorithmic problem on sequences, strings, graphs, grids, intervals, data structures or numbers.

    `kinds` is a subset of KINDS. Each kind has several variants with random constants. With `constraints`, some
    problems on lists change the list before the problem is solved, and with `forms`, some results are returned in
    another form. The prompt contains up to `examples` calls. The hidden tests consist of edge cases, small inputs and
    inputs on which a solution that takes exponential time exceeds the time limit.
    """

    levels: ClassVar[Levels] = {
        "easy": {"kinds": EASY, "constraints": True, "forms": True, "examples": 4},
        "medium": {"kinds": tuple(KINDS), "constraints": True, "forms": True, "examples": 3},
        "hard": {
            "kinds": tuple(kind for kind in KINDS if kind not in EASY),
            "constraints": True,
            "forms": True,
            "examples": 2,
        },
    }

    def __init__(
        self,
        *,
        level: str = "easy",
        kinds: tuple[str, ...] | None = None,
        constraints: bool | None = None,
        forms: bool | None = None,
        examples: int | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        overrides = {"kinds": kinds, "constraints": constraints, "forms": forms, "examples": examples}
        super().__init__(level, overrides, **options)

    @classmethod
    def check(cls, *, kinds: Any, constraints: Any, forms: Any, examples: Any) -> None:
        check_subset("kinds", kinds, KINDS)
        check_bool("constraints", constraints)
        check_bool("forms", forms)
        check_int("examples", examples, 1, 10)

    @classmethod
    def draw_program(
        cls,
        rng: Random,
        *,
        kinds: tuple[str, ...],
        constraints: bool,
        forms: bool,
        **settings: Any,  # noqa: ARG003
    ) -> Algorithm:
        problem = KINDS[rng.choice(kinds)](rng)
        if constraints and rng.random() < 0.6:
            problem = add_constraint(rng, problem)
        return add_form(rng, problem) if forms and rng.random() < 0.7 else problem

    @classmethod
    def make_item(cls, rng: Random, draft: Algorithm, *, examples: int, **settings: Any) -> Item | None:  # noqa: ARG003
        cases = [*_run(draft, draft.edges), *_run(draft, [draft.small(rng) for _ in range(SMALL_TESTS)])]
        if len({repr(output) for _, output in cases}) < 3:
            return None
        shown = choose_examples(rng, cases, examples)
        lines = [f"{format_call(args)} returns {output!r}" for args, output in shown]
        question = f"Write {draft.heading}. {draft.task}\n\n{_SPEED_NOTE}\n\nExamples:\n" + "\n".join(lines)
        cases += _run(draft, [draft.large(rng) for _ in range(LARGE_TESTS)])
        tests = {repr(args): CallTest(function=FUNCTION, args=args, expected=(out,)) for args, out in cases}
        return Item(question=question, answer=draft.source, gold=tuple(tests.values()), key=draft.kind)

    def random_answer(self) -> str:
        values: tuple[Any, ...] = (0, 1, -1, [], "0", self.player_rng.randint(2, 9))
        value = self.player_rng.choice(values)
        return f"def {FUNCTION}(*args):\n    return {value!r}"


_SPEED_NOTE = "Some hidden inputs are so large that trying all possibilities takes too long."


def _run(problem: Algorithm, inputs: list[Args] | tuple[Args, ...]) -> list[tuple[Args, Any]]:
    function = compile_function(problem.source)
    return [(args, function(*args)) for args in inputs]
