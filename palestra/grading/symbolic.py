"""Compare two LaTeX expressions with math-verify.

Comparisons may take unbounded time and memory, so only worker processes with resource limits may import this module.
"""

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

logging.disable(logging.CRITICAL)  # math-verify warns when its own timeout is disabled
warnings.simplefilter("ignore")

_NORMALIZATION = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
)
_CONVERSION = ConversionConfig(lowercase_symbols=False)  # X and x are different variables


@functools.lru_cache(maxsize=256)
def parse(text: str) -> Any:
    """Parse an expression into a sympy object. Cached, because a gold answer is compared many times."""
    latex = normalize_latex(text, _NORMALIZATION)
    real = not should_treat_as_complex(latex)
    return latex2sympy(
        latex, is_real=real, convert_degrees=False, normalization_config=None, conversion_config=_CONVERSION
    )


def equal(gold: str, answer: str) -> bool:
    gold_expr, answer_expr = parse(gold), parse(answer)
    if _differ(gold_expr, answer_expr):
        return False
    return bool(math_verify.verify([gold_expr], [answer_expr], strict=True, float_rounding=6, timeout_seconds=None))


def _differ(gold: Any, answer: Any) -> bool:
    """Return whether two expressions differ at a test point, or two numbers differ in their first 60 digits.

    Simplifying the difference of unequal expressions takes a long time, and math-verify compares only 15 digits.
    """
    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return False
    if gold.has(sympy.Float) or answer.has(sympy.Float):
        return False
    names = sorted(gold.free_symbols | answer.free_symbols, key=str)
    try:
        if not names:
            difference, size = sympy.N(gold - answer, 30, maxn=400), abs(sympy.N(gold, 15))
            return bool(abs(difference) > max(1, size) * sympy.Float("1e-60", 30))
        if len(names) > 4 or any(not name.is_Symbol for name in names):
            return False
        point = {name: sympy.Rational(*value) for name, value in zip(names, _POINT, strict=False)}
        one, two = (complex(sympy.N(side.subs(point), 30)) for side in (gold, answer))
        return abs(one - two) > 1e-9 * max(1.0, abs(one), abs(two))
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        return False


_POINT = ((17, 23), (29, 13), (7, 31), (41, 37))  # test point at which different expressions are unlikely to agree
_WARM_UP = (  # there are only a few examples, because they delay the start of the template
    (r"\frac{\ln x}{2}", r"\ln(x)/2"),
    (r"e^{x+2}", r"e^{x} \cdot e^{2}"),
    (r"2\sin x\cos x", r"\sin(2x)"),
    (r"\sqrt[3]{2}", "2^{1/3}"),
)


def warm_up() -> None:
    """Load the modules and parser tables that comparisons need, so that forks inherit them."""
    for gold, answer in _WARM_UP:
        equal(gold, answer)
