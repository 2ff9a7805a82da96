"""What stands between reasoning-gym and an agent's text, inside the worker.

Several of its scorers call `eval`, or sympy's parser, which evaluates, on the answer. Here `eval` reads literals alone,
the parser arithmetic and named functions with small exponents.
"""

from __future__ import annotations

import ast
import importlib
import re
from datetime import date
from fractions import Fraction
from random import Random
from typing import Any

_EVALUATING = (
    "algorithmic.string_insertion",
    "algorithmic.spiral_matrix",
    "algorithmic.binary_matrix",
    "games.n_queens",
)
_FUNCTIONS = frozenset(
    "exp,sin,cos,tan,cot,sec,csc,log,ln,sqrt,asin,acos,atan,sinh,cosh,tanh,asinh,acosh,atanh,Abs,pi,E,I,C".split(",")  # noqa: SIM905
)
_FORMULA = re.compile(r"[A-Za-z0-9_\s+\-*/().,]{1,20000}")
LARGEST_EXPONENT = 200
MOST_DRAWS = 200_000


def put_up() -> None:
    """Replace what evaluates, and what asks for today's date, in the modules of the package."""
    for name in _EVALUATING:
        _module(name).eval = _literal
    products = _module("algebra.polynomial_multiplication")
    products.sp = _Guarded(products.sp)
    for name in ("games.countdown", "games.puzzle24"):
        _module(name).parse_expr = exact_value
    _module("arithmetic.time_intervals").date = _OneDay
    _module("arc.arc_1d").Random = _Bounded  # some of its tasks look for what does not fit, for ever
    _module("cognition.rubiks_cube").RubiksCubeDataset.expand_moves = _turns


def _module(name: str) -> Any:
    return importlib.import_module(f"reasoning_gym.{name}")


class Endless(Exception):
    """An item's generator drew so often that it will not come to an end."""


class _Bounded(Random):
    """Raises after more draws than an item takes that comes to an end; a count is the same on every machine."""

    left = MOST_DRAWS

    def getrandbits(self, k: int, /) -> int:
        self.left -= 1
        if self.left < 0:
            raise Endless
        return super().getrandbits(k)


class _OneDay(date):
    """Times of a day are drawn on the same day whenever they are drawn."""

    @classmethod
    def today(cls) -> _OneDay:
        return cls(2024, 5, 15)


def _turns(_: Any, text: str) -> str:
    """Turns one by one: R2 is R R. The package drops those of inner layers (2R, 3Uw), which large cubes need."""
    found = [re.fullmatch(r"(\d?(?:[LRDUBF]w?|[XYZMES])'?)(\d{0,2})", turn) for turn in text.split()]
    if None in found:
        raise ValueError("that is no turn")
    return " ".join(turn[1] for turn in found if turn is not None for _ in range(int(turn[2] or 1)))


def _literal(text: str) -> Any:
    return ast.literal_eval(text.strip())


class _Guarded:
    """sympy with a parser that reads formulas only."""

    def __init__(self, sympy: Any) -> None:
        self._sympy = sympy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sympy, name)

    def parse_expr(self, text: str, local_dict: dict[str, Any] | None = None) -> Any:
        check_formula(text)
        return self._sympy.parse_expr(text, local_dict=local_dict)


def check_formula(text: str) -> None:
    """ValueError, or SyntaxError, unless `text` is a formula of harmless size."""
    if not _FORMULA.fullmatch(text):
        raise ValueError("that is no formula")
    for node in ast.walk(ast.parse(text.strip(), mode="eval")):
        if isinstance(node, ast.Name):
            if len(node.id) > 1 and node.id not in _FUNCTIONS:
                raise ValueError(f"{node.id} is no function that is known here")
        elif isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.keywords:
                raise ValueError("functions are called by name")
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            if _exponent(node.right) > LARGEST_EXPONENT or _powers(node.left) > 2:
                raise ValueError("an exponent is too large")
        elif isinstance(node, ast.Constant) and not isinstance(node.value, int | float):
            raise ValueError("constants are numbers")
        elif isinstance(node, ast.Attribute | ast.Subscript | ast.Lambda | ast.Compare | ast.BoolOp | ast.IfExp):
            raise ValueError("that is no formula")


def _powers(node: ast.AST) -> int:
    return sum(isinstance(inner, ast.Pow) for inner in ast.walk(node))


def _exponent(node: ast.AST) -> Fraction:
    """How large an exponent is: its value, or the largest number in it where it has variables."""
    inside = list(ast.walk(node))
    if not any(isinstance(part, ast.Name) for part in inside):
        return abs(_arithmetic(node))
    numbers = [part.value for part in inside if isinstance(part, ast.Constant)]
    return max((Fraction(abs(number)) for number in numbers if isinstance(number, int | float)), default=Fraction(1))


def exact_value(text: str) -> Fraction:
    """Arithmetic on whole numbers, exactly: what countdown and puzzle24 allow."""
    if len(text) > 1_000:
        raise ValueError("too long")
    return _arithmetic(ast.parse(text.strip(), mode="eval").body)


def _arithmetic(node: ast.AST) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        inner = _arithmetic(node.operand)
        return -inner if isinstance(node.op, ast.USub) else inner
    if isinstance(node, ast.BinOp):
        left, right = _arithmetic(node.left), _arithmetic(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Div):
            return left / right
    raise ValueError("whole numbers, + - * / and brackets are allowed")
