"""Test properties of all generators: levels, settings, correct answers, and the number of different items."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import palestra
from palestra.envs.code.algorithms import Algorithms
from palestra.envs.code.compose import draw_program
from palestra.envs.code.puzzles import Puzzles
from palestra.envs.code.repair import Repair
from palestra.envs.logic.rules import Rules
from palestra.envs.math.algebra import Algebra
from palestra.envs.math.arithmetic import Arithmetic
from palestra.envs.math.geometry import _UNITS, KINDS, Geometry
from palestra.envs.math.number_theory import NumberTheory
from palestra.envs.math.word_problems import WordProblems
from palestra.envs.tasks.generated import GeneratedTask
from palestra.errors import BadValue, UnknownKeyword
from palestra.types import text_of

MATH: tuple[type[GeneratedTask], ...] = (Arithmetic, Algebra, NumberTheory, WordProblems)
ALL: tuple[type[Any], ...] = (*MATH, Geometry, Puzzles, Repair, Algorithms)
DRAWS = 10_000  # number of generated hard questions; tests for slow generators use fewer


def assert_diverse(keys: list[Any], items: int) -> None:
    """Check with the birthday bound that `keys` are sampled from at least `items` different items.

    The margin is four standard deviations of the number of repeated keys.
    """
    repeated = len(keys) - len(set(keys))
    expected = len(keys) ** 2 / 2 / items
    assert repeated <= expected + 4 * expected**0.5, f"{repeated} of {len(keys)} items are repeated"


@pytest.mark.parametrize(
    ("kind", "level", "items"),
    [
        *((kind, "hard", 1_000_000) for kind in MATH),
        *((kind, "medium", 1_000_000) for kind in MATH),
        (Arithmetic, "easy", 500_000),
        *((kind, "easy", 100_000) for kind in (Algebra, NumberTheory, WordProblems)),
    ],
)
def test_millions_of_questions(kind: type[GeneratedTask], level: str, items: int) -> None:
    rng = Random(0)
    draws = DRAWS if level == "hard" else DRAWS // 2
    assert_diverse([kind.generate(rng, **kind.levels[level]).question for _ in range(draws)], items)


@pytest.mark.parametrize(("level", "items"), [("easy", 100_000), ("medium", 1_000_000), ("hard", 1_000_000)])
def test_millions_of_figures(level: str, items: int) -> None:
    """Verify the number of different figures; figures that differ only in their rotation count as equal."""
    rng, settings = Random(0), Geometry.levels[level]
    keys = []
    for _ in range(DRAWS // 2):
        figure = KINDS[rng.choice(settings["kinds"])](rng, settings["size"])
        has_lengths = any(measure.kind == "length" for measure in figure.given)
        keys.append((figure.question, figure.given, figure.target, rng.choice(_UNITS) if has_lengths else ""))
    assert_diverse(keys, items)


@pytest.mark.parametrize(("level", "items"), [("easy", 30_000), ("medium", 1_000_000), ("hard", 1_000_000)])
def test_millions_of_programs(level: str, items: int) -> None:
    """Verify the number of different programs; programs that differ only in their examples count as equal."""
    rng = Random(0)
    settings = Puzzles.levels[level]
    assert_diverse([draw_program(rng, **settings).program.task for _ in range(DRAWS // 2)], items)


def test_millions_of_theories() -> None:
    for depth in (0, 5):
        env = Rules(depth=depth)
        assert_diverse([env.reset(seed=seed)[0] for seed in range(500)], 1_000_000)


@pytest.mark.parametrize("kind", MATH)
def test_own_answers_are_correct_and_others_wrong(kind: type[GeneratedTask]) -> None:
    env: Any = kind(level="random")  # type: ignore[call-arg]
    for seed in range(100):
        env.reset(seed=seed)
        assert env.step(env.expert_action()).reward == 1.0
        env.reset(seed=seed)
        answer = env.item.answer
        wrong = answer.replace(")", ", 5)") if "," in answer else f"{answer} + 1" if "x" in answer else f"{answer}7"
        assert env.step(env.write(wrong)).info["success"] is False, (answer, wrong)


@pytest.mark.parametrize("kind", ALL)
def test_levels(kind: type[Any]) -> None:
    assert list(kind.levels) == ["easy", "medium", "hard"]
    assert kind().level == "easy"
    for level in (*kind.levels, "random"):
        text_of(kind(level=level).reset(seed=1)[0])
    with pytest.raises(BadValue, match="easy, medium, hard, random"):
        kind(level="extreme")
    with pytest.raises(UnknownKeyword):
        kind(levle="hard")


def test_random_draws_every_level() -> None:
    env = Arithmetic(level="random")
    lengths = set()
    for seed in range(60):
        question, _ = env.reset(seed=seed)
        lengths.add(sum(str(question).partition("Write")[0].count(sign) for sign in "+-*/\u00d7·÷"))
    assert len(lengths) > 4


def test_arguments_override_the_level() -> None:
    env = palestra.make("math:Arithmetic-v0-random", operations="+", digits=1, terms=2, brackets=False)
    for seed in range(20):
        env.reset(seed=seed)
        assert float(env.unwrapped.item.answer.partition("/")[0]) < 2000  # type: ignore[attr-defined]
    stories = palestra.make("math:WordProblems-v0-hard", kinds=["ages"])
    assert stories.reset(seed=1)[1]["item"] == "ages"


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        (Arithmetic, {"operations": "+%"}, "operations must be a subset of"),
        (Arithmetic, {"operations": "^"}, "at least one other than \\^"),
        (Arithmetic, {"digits": 0}, "digits must be a whole number from 1 to 12"),
        (Arithmetic, {"terms": 2.0}, "terms must be a whole number"),
        (Arithmetic, {"brackets": 1}, "brackets must be True or False"),
        (Arithmetic, {"numbers": []}, "integers, decimals, fractions"),
        (Algebra, {"kinds": ("cubic",)}, "linear, quadratic"),
        (Algebra, {"steps": True}, "steps must be a whole number from 1 to 3"),
        (NumberTheory, {"kinds": "gcd"}, "kinds must be a non-empty list of names from gcd"),
        (WordProblems, {"distractors": 7}, "distractors must be a whole number from 0 to 6"),
        (Geometry, {"size": 3}, "size must be a whole number from 10"),
        (Puzzles, {"steps": 9}, "steps must be a whole number from 1 to 8"),
        (Algorithms, {"kinds": ["chess"]}, "kinds must be a non-empty list of names from subsequence"),
        (Algorithms, {"examples": 0}, "examples must be a whole number from 1 to 10"),
        (Repair, {"bugs": 0}, "bugs must be a whole number from 1 to 3"),
        (Repair, {"level": "random", "classics": "yes"}, "classics must be True or False"),
    ],
)
def test_bad_values_are_rejected_with_the_accepted_ones(kind: type[Any], wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        kind(**wrong)


def test_extreme_settings_work() -> None:
    rng = Random(3)
    extremes: list[tuple[type[Any], dict[str, Any]]] = [
        (Arithmetic, {"operations": "/", "digits": 12, "terms": 20}),
        (Arithmetic, {"operations": "-^", "digits": 1, "terms": 20, "numbers": ("fractions",)}),
        (Algebra, {"size": 5, "unknowns": 4, "degree": 8}),
        (Algebra, {"size": 1_000_000, "unknowns": 2, "degree": 2, "steps": 1}),
        (
            NumberTheory,
            {"digits": 2, "kinds": tuple(kind for level in NumberTheory.levels.values() for kind in level["kinds"])},
        ),
        (
            NumberTheory,
            {"digits": 30, "kinds": tuple(kind for level in NumberTheory.levels.values() for kind in level["kinds"])},
        ),
        (WordProblems, {"steps": 12, "size": 10, "distractors": 6}),
        (WordProblems, {"steps": 1, "size": 1_000_000, "distractors": 0}),
        (Puzzles, {"steps": 8}),
        (Puzzles, {"steps": 1, "classics": True}),
    ]
    for kind, changed in extremes:
        for _ in range(40 if kind is not Puzzles else 10):
            assert kind.generate(rng, **{**kind.levels["hard"], **changed}).answer
    for size in (10, 100_000):
        for draw in KINDS.values():
            assert all(draw(rng, size).target.value > 0 for _ in range(20))
