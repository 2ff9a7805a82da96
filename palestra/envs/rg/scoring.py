"""Score answers with the package's scorers, or with replacements for unsound scorers.

Scorers that accept wrong answers or may take minutes are replaced. Answers that would make a scorer raise are rejected
before it is called.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from palestra.envs.rg.overrides import check_formula, exact_value


def score(name: str, dataset: Any, answer: str, entry: dict[str, Any]) -> float:
    """Return the score for an answer to the item `entry`."""
    is_valid = _VALIDATORS.get(name)
    if is_valid is not None and not is_valid(answer):
        return 0.0
    replacement = _REPLACEMENTS.get(name)
    if replacement is not None:
        return replacement(answer, entry)
    return float(dataset.score_answer(answer=answer, entry=entry))


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.S)
    return lambda answer: compiled.fullmatch(answer) is not None


def _is_grid(answer: str) -> bool:
    """Return whether the answer is a JSON list of lists."""
    grid = _from_json(answer)
    return isinstance(grid, list) and all(isinstance(row, list) for row in grid)


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# Checks that reject answers for which the package's scorer would raise or take unbounded time.
_VALIDATORS: dict[str, Callable[[str], bool]] = {
    # Reject nan and inf, because the scorer does not handle comparisons with nan, which are always false.
    "complex_arithmetic": lambda answer: "n" not in answer.lower(),
    "game_of_life": _is_grid,
    "prime_factorization": _matches("\\s*[0-9]{1,40}(?:\\s*\u00d7\\s*[0-9]{1,40}){0,200}\\s*"),
    "rubiks_cube": _matches(r"(?:(?!\d{3}).){0,4000}"),
    "rush_hour": _matches(r"(?:(?!\d{3}).)*"),
}


def _score_24(answer: str, entry: dict[str, Any]) -> float:
    """Require the result 24 and exactly the given numbers; the package accepts any four numbers and 24.9."""
    try:
        used = [int(number) for number in re.findall(r"\d+", answer)]
        correct = exact_value(answer) == 24 and sorted(used) == sorted(entry["metadata"]["numbers"])
    except (ValueError, SyntaxError, ZeroDivisionError, RecursionError, MemoryError):
        correct = False
    return 1.0 if correct else 0.01


def _score_integral(answer: str, entry: dict[str, Any]) -> float:
    """Compare the derivative of the answer with the integrand at twelve points, to 20 digits.

    The package's scorer simplifies symbolically, which can take minutes. It also accepts an unevaluated `Integral` if
    the package could not solve the problem itself.
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
        comparisons = [_agree(derivative, integrand, x, sympy.Rational(*point)) for point in _POINTS]
    except (ArithmeticError, AttributeError, RecursionError, SyntaxError, TypeError, ValueError):
        return 0.0
    defined = [agree for agree in comparisons if agree is not None]  # ignore poles and branch cuts
    return float(len(defined) >= 3 and all(defined))


_POINTS = [(3, 10), (7, 9), (11, 8), (19, 7), (29, 9), (-3, 11), (-8, 7), (-17, 9), (1, 23), (-1, 19), (41, 6), (5, 17)]


def _agree(one: Any, other: Any, x: Any, point: Any) -> bool | None:
    """Return whether two formulas have the same value at a point, or None if the second is undefined there."""
    expected = other.subs(x, point).evalf(30)
    if not expected.is_number or not expected.is_finite:
        return None
    actual = one.subs(x, point).evalf(30)
    if not actual.is_number or not actual.is_finite:
        return False
    return bool(abs(actual - expected) <= abs(expected) * 10**-20 + 10**-20)


def _score_halting(answer: str, entry: dict[str, Any]) -> float:
    """Compare the answer with the correct answer; the package only tests whether the answer is empty."""
    return float(answer.strip().strip(".").lower() == str(entry["answer"]).lower())


def _score_coins(answer: str, entry: dict[str, Any]) -> float:
    """Accept a probability with an error of at most 0.0001; the package accepts any prefix of the digits, even 0."""
    text = answer.replace(",", "").strip()
    if not re.fullmatch(r"[0-9./eE+-]{1,60}", text) or re.search(r"[eE][+-]?\d{3}", text):
        return 0.0
    try:
        return float(abs(Fraction(text) - Fraction(str(entry["answer"]))) <= Fraction(1, 10_000))
    except (ValueError, ZeroDivisionError):
        return 0.0


def _score_candidate(answer: str, entry: dict[str, Any]) -> float:
    """Accept an error of at most 0.0005; the package accepts 0.01, although candidates may differ by only 0.001."""
    text = answer.replace(",", "").strip()
    if not re.fullmatch(r"[0-9.eE+-]{1,60}", text) or re.search(r"[eE][+-]?\d{3}", text):
        return 0.0
    try:
        return float(abs(Fraction(text) - Fraction(entry["metadata"]["solution"])) <= Fraction(1, 2_000))
    except ValueError:
        return 0.0


def _score_boxes(answer: str, entry: dict[str, Any]) -> float:
    """Return the fraction of boxes moved to their targets (at least 0.05); as in the package, skip impossible moves."""
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
        destination = state.get(f"{row}_{column}")
        if destination is not None and abs(float(here[1]) - float(row)) + abs(float(here[2]) - float(column)) == 1:
            items.remove(box)
            destination.append(box)
    left = sum(item.startswith("box_") for items in state.values() for item in items)
    return float(max(0.05, (total - left) / total))


_SQUARE = r"(\d{1,3}\.5),\s*(\d{1,3}\.5)"
_REPLACEMENTS: dict[str, Callable[[str, dict[str, Any]], float]] = {
    "boxnet": _score_boxes,
    "coin_flip": _score_coins,
    "game_of_life_halting": _score_halting,
    "intermediate_integration": _score_integral,
    "number_format": _score_candidate,
    "puzzle24": _score_24,
    "simple_integration": _score_integral,
}
