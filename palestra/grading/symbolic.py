"""Two expressions as LaTeX -> equal or not, by math-verify. For the workers alone: it may take any time and memory."""

from __future__ import annotations

import functools
import logging
import warnings
from typing import Any

import math_verify  # type: ignore[import-untyped]
import sympy  # type: ignore[import-untyped]
from latex2sympy2_extended.latex2sympy2 import (  # type: ignore[import-untyped]
    ConversionConfig,
    NormalizationConfig,
    latex2sympy,
    normalize_latex,
)
from math_verify.grader import should_treat_as_complex  # type: ignore[import-untyped]

logging.disable(logging.CRITICAL)  # it would warn that we watch the clock ourselves
warnings.simplefilter("ignore")

_NORMAL = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
)
_READING = ConversionConfig(lowercase_symbols=False)  # X is not x


@functools.lru_cache(maxsize=256)
def parsed(text: str) -> Any:
    """One expression as a sympy object; an exception where it is none. A gold is asked for many times."""
    latex = normalize_latex(text, _NORMAL)
    real = not should_treat_as_complex(latex)
    return latex2sympy(
        latex, is_real=real, convert_degrees=False, normalization_config=None, conversion_config=_READING
    )


def equal(gold: str, answer: str) -> bool:
    one, two = parsed(gold), parsed(answer)
    if _apart(one, two):
        return False
    return bool(math_verify.verify([one], [two], strict=True, float_rounding=6, timeout_seconds=None))


def _apart(gold: Any, answer: Any) -> bool:
    """Do two expressions differ at some point, or two numbers far behind the point?

    Simplifying what is not equal takes long, and of numbers math-verify looks at fifteen digits alone.
    """
    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return False
    if gold.has(sympy.Float) or answer.has(sympy.Float):
        return False
    names = sorted(gold.free_symbols | answer.free_symbols, key=str)
    try:
        if not names:
            gap, size = sympy.N(gold - answer, 30, maxn=400), abs(sympy.N(gold, 15))
            return bool(abs(gap) > max(1, size) * sympy.Float("1e-60", 30))
        if len(names) > 4 or any(not name.is_Symbol for name in names):
            return False
        point = {name: sympy.Rational(*value) for name, value in zip(names, _POINT, strict=False)}
        one, two = (complex(sympy.N(side.subs(point), 30)) for side in (gold, answer))
        return abs(one - two) > 1e-9 * max(1.0, abs(one), abs(two))
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        return False


_POINT = ((17, 23), (29, 13), (7, 31), (41, 37))  # where nothing of use happens to be the same
_WARM = (  # few: every process that grades pays for them once
    (r"\frac{\ln x}{2}", r"\ln(x)/2"),
    (r"e^{x+2}", r"e^{x} \cdot e^{2}"),
    (r"2\sin x\cos x", r"\sin(2x)"),
    (r"\sqrt[3]{2}", "2^{1/3}"),
)


def warm_up() -> None:
    """What the first comparisons would load, and the parser's tables, once for all forks."""
    for gold, answer in _WARM:
        equal(gold, answer)
