"""An answer to an item -> its score: the package's own scorer where that is sound and can read the answer.

Replaced are those that take wrong answers for right ones, or simplify for minutes; what others would raise on is wrong
before it gets to them.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from palestra.envs.rg.shields import check_formula, exact_value


def score(name: str, dataset: Any, answer: str, entry: dict[str, Any]) -> float:
    """What the data set's scorer says of an answer that it can read; what takes its place where it is unsound."""
    readable = _READABLE.get(name)
    if readable is not None and not readable(answer):
        return 0.0
    own = _SOUND.get(name)
    if own is not None:
        return own(answer, entry)
    return float(dataset.score_answer(answer=answer, entry=entry))


def _fits(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.S)
    return lambda answer: compiled.fullmatch(answer) is not None


def _is_grid(answer: str) -> bool:
    """JSON of a list of lists."""
    grid = _from_json(answer)
    return isinstance(grid, list) and all(isinstance(row, list) for row in grid)


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# What these scorers raise on, or read without a look at how much it asks for, is wrong before it gets there.
_READABLE: dict[str, Callable[[str], bool]] = {
    "complex_arithmetic": lambda answer: "n" not in answer.lower(),  # nan, inf: no distance is larger than that to nan
    "game_of_life": _is_grid,
    "prime_factorization": _fits("\\s*[0-9]{1,40}(?:\\s*\u00d7\\s*[0-9]{1,40}){0,200}\\s*"),
    "rubiks_cube": _fits(r"(?:(?!\d{3}).){0,4000}"),
    "rush_hour": _fits(r"(?:(?!\d{3}).)*"),
}


def _score_24(answer: str, entry: dict[str, Any]) -> float:
    """24 exactly, from exactly the four numbers; the package takes any four numbers, and 24.9."""
    try:
        used = [int(number) for number in re.findall(r"\d+", answer)]
        good = exact_value(answer) == 24 and sorted(used) == sorted(entry["metadata"]["numbers"])
    except (ValueError, SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
        good = False
    return 1.0 if good else 0.01


def _score_integral(answer: str, entry: dict[str, Any]) -> float:
    """The answer's derivative is the integrand at twelve points, to 20 digits; the package simplifies, for minutes.

    An `Integral` is not taken for an answer, which the package does where it could not solve one itself.
    """
    sympy: Any = importlib.import_module("sympy")
    metadata = entry["metadata"]
    x = sympy.Symbol(metadata["variable"])
    names = {metadata["variable"]: x, "C": sympy.Symbol("C")}
    integrand = sympy.parse_expr(metadata["integrand"], local_dict=dict(names))
    try:
        check_formula(answer)
        formula = sympy.parse_expr(answer, local_dict=dict(names))
        if not formula.free_symbols <= set(names.values()):
            return 0.0
        derivative = sympy.diff(formula, x)
        compared = [_agree(derivative, integrand, x, sympy.Rational(*point)) for point in _POINTS]
    except (ArithmeticError, AttributeError, RecursionError, SyntaxError, TypeError, ValueError):
        return 0.0
    known = [agree for agree in compared if agree is not None]  # a pole, or a branch that is cut there, says nothing
    return float(len(known) >= 3 and all(known))


_POINTS = [(3, 10), (7, 9), (11, 8), (19, 7), (29, 9), (-3, 11), (-8, 7), (-17, 9), (1, 23), (-1, 19), (41, 6), (5, 17)]


def _agree(one: Any, other: Any, x: Any, point: Any) -> bool | None:
    """Whether two formulas have the same value at a point; None where the second has none."""
    wanted = other.subs(x, point).evalf(30)
    if not wanted.is_number or not wanted.is_finite:
        return None
    found = one.subs(x, point).evalf(30)
    if not found.is_number or not found.is_finite:
        return False
    return bool(abs(found - wanted) <= abs(wanted) * 10**-20 + 10**-20)


def _score_halting(answer: str, entry: dict[str, Any]) -> float:
    """The package asks whether the answer is empty."""
    return float(answer.strip().strip(".").lower() == str(entry["answer"]).lower())


def _score_coins(answer: str, entry: dict[str, Any]) -> float:
    """A probability within 0.0001; the package takes any beginning of the right decimals, 0 among them."""
    text = answer.replace(",", "").strip()
    if not re.fullmatch(r"[0-9./eE+-]{1,60}", text) or re.search(r"[eE][+-]?\d{3}", text):
        return 0.0
    try:
        return float(abs(Fraction(text) - Fraction(str(entry["answer"]))) <= Fraction(1, 10_000))
    except (ValueError, ZeroDivisionError):
        return 0.0


def _score_boxes(answer: str, entry: dict[str, Any]) -> float:
    """The share of boxes that plans bring to their targets; a move that cannot be made is left out, as there."""
    plans = _from_json(answer)
    if not isinstance(plans, list) or not all(isinstance(plan, dict) for plan in plans):
        return 0.0
    state = {place: list(items) for place, items in entry["metadata"]["initial_state"].items()}
    total = sum(item.startswith("box_") for items in state.values() for item in items)
    for agent, action in (pair for plan in plans for pair in plan.items()):
        here = re.fullmatch(rf"Agent\[{_SQUARE}\]", agent)
        move = re.fullmatch(rf"move\((box_\w+),\s*(?:square\[{_SQUARE}\]|(target_\w+))\)", str(action).strip())
        if here is None or move is None:
            continue
        items = state.get(f"{here[1]}_{here[2]}", [])
        box, row, column, target = move.groups()
        if box not in items:
            continue
        if target is not None:
            if target in items and target[7:] == box[4:]:
                items.remove(box)
                items.remove(target)
            continue
        there = state.get(f"{row}_{column}")
        if there is not None and abs(float(here[1]) - float(row)) + abs(float(here[2]) - float(column)) == 1:
            items.remove(box)
            there.append(box)
    left = sum(item.startswith("box_") for items in state.values() for item in items)
    return float(max(0.05, (total - left) / total))


_SQUARE = r"(\d{1,3}\.5),\s*(\d{1,3}\.5)"
_SOUND: dict[str, Callable[[str, dict[str, Any]], float]] = {
    "boxnet": _score_boxes,
    "coin_flip": _score_coins,
    "game_of_life_halting": _score_halting,
    "intermediate_integration": _score_integral,
    "puzzle24": _score_24,
    "simple_integration": _score_integral,
}
