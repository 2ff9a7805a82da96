"""What all generators promise: levels, keywords, answers that are right, and enough different items."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import palestra
from palestra.envs.code.compose import _draw
from palestra.envs.code.puzzles import Puzzles
from palestra.envs.code.repair import Repair
from palestra.envs.logic.rules import Rules
from palestra.envs.math.algebra import Algebra
from palestra.envs.math.arithmetic import Arithmetic
from palestra.envs.math.geometry import _UNITS, Geometry
from palestra.envs.math.geometry_kinds import KINDS
from palestra.envs.math.number_theory import NumberTheory
from palestra.envs.math.word_problems import WordProblems
from palestra.envs.tasks.generated import GeneratedTask
from palestra.errors import BadValue, UnknownKeyword
from palestra.types import text_of

MATH: tuple[type[GeneratedTask], ...] = (Arithmetic, Algebra, NumberTheory, WordProblems)
ALL: tuple[type[Any], ...] = (*MATH, Geometry, Puzzles, Repair)
DRAWS = 20_000  # of the hard questions; fewer where drawing takes longer


def enough(keys: list[Any], items: int) -> None:
    """Draws from at least so many items: the birthday bound on how many meet, and four deviations more."""
    met = len(keys) - len(set(keys))
    expected = len(keys) ** 2 / 2 / items
    assert met <= expected + 4 * expected**0.5, f"{met} of {len(keys)} draws repeat one"


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
    draws = DRAWS if level == "hard" else DRAWS // 4
    enough([kind.generate(rng, **kind.levels[level]).question for _ in range(draws)], items)


@pytest.mark.parametrize(("level", "items"), [("easy", 100_000), ("medium", 1_000_000), ("hard", 1_000_000)])
def test_millions_of_figures(level: str, items: int) -> None:
    """Counted by what is said and measured, however it is turned."""
    rng, settings = Random(0), Geometry.levels[level]
    keys = []
    for _ in range(DRAWS // 2):
        figure = KINDS[rng.choice(settings["kinds"])](rng, settings["size"])
        metric = any(measure.kind == "length" for measure in figure.given)
        keys.append((figure.question, figure.given, figure.asked, rng.choice(_UNITS) if metric else ""))
    enough(keys, items)


@pytest.mark.parametrize(("level", "items"), [("easy", 30_000), ("medium", 1_000_000), ("hard", 1_000_000)])
def test_millions_of_programs(level: str, items: int) -> None:
    """Counted by their task alone, without the examples."""
    rng = Random(0)
    settings = Puzzles.levels[level]
    enough([_draw(rng, settings["steps"], settings["classics"])[0].task for _ in range(DRAWS // 4)], items)


def test_millions_of_theories() -> None:
    for depth in (0, 5):
        env = Rules(depth=depth)
        enough([env.reset(seed=seed)[0] for seed in range(500)], 1_000_000)


@pytest.mark.parametrize("kind", MATH)
def test_own_answers_are_right_and_others_wrong(kind: type[GeneratedTask]) -> None:
    env: Any = kind(level="random")  # type: ignore[call-arg]
    for seed in range(250):
        env.reset(seed=seed)
        assert env.step(env.expert_action()).reward == 1.0
        env.reset(seed=seed)
        answer = env.item.answer
        near = answer.replace(")", ", 5)") if "," in answer else f"{answer} + 1" if "x" in answer else f"{answer}7"
        assert env.step(env.write(near)).info["success"] is False, (answer, near)


@pytest.mark.parametrize("kind", ALL)
def test_levels(kind: type[Any]) -> None:
    assert list(kind.levels) == ["easy", "medium", "hard"]
    assert kind().level == "easy"
    for level in (*kind.levels, "random"):
        text_of(kind(level=level).reset(seed=1)[0])
    with pytest.raises(BadValue, match="easy, medium, hard or random"):
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


def test_what_is_given_wins_over_the_level() -> None:
    env = palestra.make("math:Arithmetic-v0-random", operations="+", digits=1, terms=2, brackets=False)
    for seed in range(20):
        env.reset(seed=seed)
        assert float(env.unwrapped.item.answer.partition("/")[0]) < 2000  # type: ignore[attr-defined]
    stories = palestra.make("math:WordProblems-v0-hard", kinds=["ages"])
    assert stories.reset(seed=1)[1]["item"] == "ages"


@pytest.mark.parametrize(
    ("kind", "wrong", "says"),
    [
        (Arithmetic, {"operations": "+%"}, "operations are some of"),
        (Arithmetic, {"operations": "^"}, "not \\^ alone"),
        (Arithmetic, {"digits": 0}, "digits is a whole number from 1 to 12"),
        (Arithmetic, {"terms": 2.0}, "terms is a whole number"),
        (Arithmetic, {"brackets": 1}, "brackets is True or False"),
        (Arithmetic, {"numbers": []}, "integers, decimals, fractions"),
        (Algebra, {"kinds": ("cubic",)}, "linear, quadratic"),
        (Algebra, {"steps": True}, "steps is a whole number from 1 to 3"),
        (NumberTheory, {"kinds": "gcd"}, "kinds is a list of some of gcd"),
        (WordProblems, {"distractors": 7}, "distractors is a whole number from 0 to 6"),
        (Geometry, {"size": 3}, "size is a whole number from 10"),
        (Puzzles, {"steps": 9}, "steps is a whole number from 1 to 8"),
        (Repair, {"bugs": 0}, "bugs is a whole number from 1 to 3"),
        (Repair, {"level": "random", "classics": "yes"}, "classics is True or False"),
    ],
)
def test_bad_keywords_name_the_good_ones(kind: type[Any], wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(BadValue, match=says):
        kind(**wrong)


def test_extreme_keywords_work() -> None:
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
        for maker in KINDS.values():
            assert all(maker(rng, size).asked.value > 0 for _ in range(20))
