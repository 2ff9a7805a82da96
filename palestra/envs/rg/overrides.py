"""Safe replacements for parts of reasoning-gym, installed in the worker process.

Several scorers pass the agent's answer to `eval` or to sympy's parser, which also executes code. The replacements
restrict `eval` to literals, and the parser to arithmetic and named functions with small exponents. Generators that
depend on the current date are made deterministic, and generators that may not terminate are stopped. The Game of Life
is simulated with numpy, and knight swaps are searched for among tuples, which gives the same items faster. A number
sequence ends at the first term that is too large.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections import deque
from collections.abc import Callable
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
MAX_EXPONENT = 200
MAX_DRAWS = 200_000
MAX_TERM = 1_000  # number_sequence rejects sequences with a larger term


def install() -> None:
    """Replace the unsafe functions and classes in the package's modules."""
    for name in _EVALUATING:
        _module(name).eval = _literal
    products = _module("algebra.polynomial_multiplication")
    products.sp = _SafeSympy(products.sp)
    for name in ("games.countdown", "games.puzzle24"):
        _module(name).parse_expr = exact_value
    _module("arithmetic.time_intervals").date = _FixedDate
    _module("arc.arc_1d").Random = _BoundedRandom  # some generators in this module may never finish
    life = _module("algorithmic.game_of_life")
    life.cpl = _FastLife(life.cpl)
    _module("cognition.rubiks_cube").RubiksCubeDataset.expand_moves = _expand_moves
    _module("games.knight_swap").KnightSwapLogic.solve_swap = staticmethod(_solve_swap)
    rule = _module("cognition.number_sequences").PatternRule
    rule.apply = _bounded_rule(rule.apply)


def _module(name: str) -> Any:
    return importlib.import_module(f"reasoning_gym.{name}")


class TooManyDraws(Exception):
    """Raised if a generator uses so many random numbers that it probably does not terminate."""


class _BoundedRandom(Random):
    """Random generator that raises TooManyDraws after MAX_DRAWS calls, which is more than any item needs.

    Unlike a time limit, this limit does not depend on the speed of the machine.
    """

    left = MAX_DRAWS

    def getrandbits(self, k: int, /) -> int:
        self.left -= 1
        if self.left < 0:
            raise TooManyDraws
        return super().getrandbits(k)


class _FixedDate(date):
    """Date class whose `today` always returns the same date."""

    @classmethod
    def today(cls) -> _FixedDate:
        return cls(2024, 5, 15)


def _expand_moves(_: Any, text: str) -> str:
    """Expand repeated turns (R2 becomes R R), including turns of inner layers (2R, 3Uw), which the package ignores."""
    matches = [re.fullmatch(r"(\d?(?:[LRDUBF]w?|[XYZMES])'?)(\d{0,2})", turn) for turn in text.split()]
    if None in matches:
        raise ValueError("not a sequence of turns")
    return " ".join(match[1] for match in matches if match is not None for _ in range(int(match[2] or 1)))


def _solve_swap(
    board: dict[str, list[str]], pieces: dict[str, str | None], start_turn: str = "w"
) -> list[tuple[str, str, str]] | None:
    """Return the shortest sequence of moves that swaps the knights, or None.

    The package does the same with a data class for each state, whose hash takes most of the time. The order in which
    states are visited, and so the solution, is the same.
    """
    white = frozenset(square for square, piece in pieces.items() if piece == "w")
    black = frozenset(square for square, piece in pieces.items() if piece == "B")
    start = (white, black, start_turn)
    before: dict[Any, Any] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        if state[0] == black and state[1] == white:
            moves = []
            while before[state] is not None:
                state, move = before[state]
                moves.append(move)
            return moves[::-1]
        whites, blacks, turn = state
        moving, other = (whites, "B") if turn == "w" else (blacks, "w")
        for square in moving:
            for target in board[square]:
                if target in whites or target in blacks:
                    continue
                moved = frozenset(place if place != square else target for place in moving)
                after = (moved, blacks, other) if turn == "w" else (whites, moved, other)
                if after not in before:
                    before[after] = (state, (turn, square, target))
                    queue.append(after)
    return None


def _bounded_rule(apply: Callable[[Any, list[int], int], int]) -> Callable[[Any, list[int], int], int]:
    """Return `PatternRule.apply` that raises OverflowError after a term that is too large.

    The package catches the error and draws another rule, as it does for every sequence with such a term. Without it,
    the package first computes all terms, and the result of repeated squaring has up to 2**48 digits.
    """

    def bounded(rule: Any, sequence: list[int], position: int) -> int:
        if abs(sequence[position]) > MAX_TERM:
            raise OverflowError("the sequence has a term that is too large")
        return apply(rule, sequence, position)

    return bounded


def _literal(text: str) -> Any:
    return ast.literal_eval(text.strip())


class _SafeSympy:
    """Proxy for sympy whose parser accepts only formulas."""

    def __init__(self, sympy: Any) -> None:
        self._sympy = sympy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sympy, name)

    def parse_expr(self, text: str, local_dict: dict[str, Any] | None = None) -> Any:
        check_formula(text)
        return self._sympy.parse_expr(text, local_dict=local_dict)


class _FastLife:
    """Proxy for cellpylib with a faster Game of Life; the package takes seconds for a board with 50 by 50 cells."""

    def __init__(self, cellpylib: Any) -> None:
        self._cellpylib = cellpylib

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cellpylib, name)

    def evolve2d(self, cells: Any, *, timesteps: int, apply_rule: Any, memoize: Any) -> Any:
        """Return the boards at all time steps; the neighborhood wraps around at the edges."""
        import numpy as np

        del apply_rule, memoize  # the only caller uses Conway's rule
        shifts = [(dx, dy) for dx in (-1, 0, 1) for dy in (-1, 0, 1) if (dx, dy) != (0, 0)]
        boards = [cells[-1]]
        while len(boards) < timesteps:
            board = boards[-1]
            neighbors = sum(np.roll(board, shift, (0, 1)) for shift in shifts)
            boards.append(((neighbors == 3) | ((board == 1) & (neighbors == 2))).astype(board.dtype))
        return np.array(boards)


def check_formula(text: str) -> None:
    """Raise ValueError or SyntaxError unless `text` is a formula that can be evaluated in bounded time."""
    if not _FORMULA.fullmatch(text):
        raise ValueError("not a formula")
    for node in ast.walk(ast.parse(text.strip(), mode="eval")):
        if isinstance(node, ast.Name):
            if len(node.id) > 1 and node.id not in _FUNCTIONS:
                raise ValueError(f"unknown function {node.id}")
        elif isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.keywords:
                raise ValueError("a function call must use a function name and no keyword arguments")
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            if _exponent(node.right) > MAX_EXPONENT or _powers(node.left) > 2:
                raise ValueError("exponent too large")
        elif isinstance(node, ast.Constant) and not isinstance(node.value, int | float):
            raise ValueError("constants must be numbers")
        elif isinstance(node, ast.Attribute | ast.Subscript | ast.Lambda | ast.Compare | ast.BoolOp | ast.IfExp):
            raise ValueError("not a formula")


def _powers(node: ast.AST) -> int:
    return sum(isinstance(inner, ast.Pow) for inner in ast.walk(node))


def _exponent(node: ast.AST) -> Fraction:
    """Return the absolute value of an exponent, or the largest number in it if it contains variables."""
    parts = list(ast.walk(node))
    if not any(isinstance(part, ast.Name) for part in parts):
        return abs(_arithmetic(node))
    numbers = [part.value for part in parts if isinstance(part, ast.Constant)]
    return max((Fraction(abs(number)) for number in numbers if isinstance(number, int | float)), default=Fraction(1))


def exact_value(text: str) -> Fraction:
    """Return the exact value of an arithmetic expression over integers, for countdown and puzzle24."""
    if len(text) > 1_000:
        raise ValueError("expression too long")
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
    raise ValueError("only whole numbers, + - * / and brackets are allowed")
