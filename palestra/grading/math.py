r"""Grade a mathematical answer.

Most answers are numbers, fractions, roots, polynomials, or lists and intervals of them. These are compared by exact
arithmetic in microseconds (`answer_parser`, `matching`, `exact`). Other answers are compared by math-verify in worker
processes with resource limits (`symbolic_pool`), so that `\ln 10^{10^{10}}` does not block other answers. The notation
of a value does not matter: `\frac{1}{2}`, `0.5`, `50\%` and `x = 1/2` are equal. A number with six or more decimals
equals every value that rounds to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from palestra.errors import BadValue
from palestra.grading.answer_parser import Group, Leaf, Node, normalize, parse_answer, split_commas
from palestra.grading.base import Grade
from palestra.grading.evaluated import is_evaluated
from palestra.grading.exact import TooLarge
from palestra.grading.matching import Matcher
from palestra.grading.notations import rewrite, same_set, without_modulus
from palestra.parsing import clip

if TYPE_CHECKING:
    from palestra.grading.symbolic_pool import SymbolicPool

MAX_CHARS = 4_000  # maximum answer length; longer answers are not graded
CPU_FACTOR = 5.0  # total CPU time limit for an answer's comparisons, as a multiple of `seconds`
WALL_FACTOR = 30.0  # wall-clock limit per comparison as a multiple of `seconds`, to allow for busy machines

_SETS = re.compile(
    r"\\(?:setminus|cap|mathbb|begin\{[vV]matrix|det|bigcup|bigcap|subset)"
)  # structures that answer_parser does not support
_FAILURES = {
    "time": "the comparison took longer than {seconds:g} s",
    "memory": "the comparison needed too much memory",
    "nesting": "the answer is nested too deeply",
    "crash": "the comparison crashed the algebra system twice",
}


class _LimitExceeded(Exception):
    """A comparison in the symbolic pool exceeded a limit."""


def grade_math(
    answer: str,
    gold: str | float | Sequence[str | float],
    *,
    tolerance: float | None = None,
    evaluated: bool = False,
    seconds: float = 2.0,
    pool: SymbolicPool | None = None,
) -> Grade:
    """Grade a mathematical answer: it is correct if it equals the gold answer, or one of several gold answers.

    Numbers count as equal up to the relative difference `tolerance`. With `evaluated`, the answer must be fully
    evaluated, so that `4 + 99 - 7` is incorrect although it equals 96 (see `palestra.grading.evaluated`). `seconds` is
    the CPU time limit for symbolic comparisons; an answer that needs more time counts as incorrect. Raises EnvFailed if
    the workers cannot run.
    """
    golds = [gold] if isinstance(gold, str | int | float) else list(gold) if isinstance(gold, Sequence) else []
    if not golds or not all(isinstance(value, str | int | float) for value in golds):
        raise BadValue(f"`gold` must be a string or number, or a sequence of them, got {gold!r}")
    if not isinstance(answer, str):
        raise BadValue(f"`answer` must be a string, got {type(answer).__name__}")
    if seconds <= 0 or (tolerance is not None and tolerance < 0):
        raise BadValue(f"`seconds` must be above 0 and `tolerance` at least 0, got {seconds!r} and {tolerance!r}")
    if not answer.strip():
        return _wrong("the answer is empty")
    texts = [str(value) for value in golds]
    if any(answer.strip() == text.strip() for text in texts):
        return _correct(answer, answer)
    if len(answer) > MAX_CHARS:
        return _wrong(f"the answer has {len(answer)} characters; the maximum is {MAX_CHARS}")
    if evaluated and not is_evaluated(without_modulus(answer)):
        why = f"{clip(answer)!r} is a calculation, but this task requires its result"
        return Grade(correct=False, score=0.0, why=why, hint="Give the result, not a calculation.")
    comparer = _SymbolicComparer(seconds, pool)
    matcher = Matcher(comparer.equal, tolerance=tolerance)
    reasons: list[str] = []
    for text in texts:
        try:
            if _same(text, answer, matcher):
                return _correct(answer, text)
            reasons.append(f"{clip(answer)!r} is not {clip(text)!r}")
        except TooLarge as err:
            reasons.append(f"{clip(answer)!r} is not {clip(text)!r}: {err}")
        except _LimitExceeded as err:
            reasons.append(f"{clip(answer)!r} could not be compared with {clip(text)!r}: {err}")
    return _wrong("; ".join(reasons[:3]))


def _same(gold: str, answer: str, matcher: Matcher) -> bool:
    gold, answer = normalize(gold), normalize(answer)
    if same_set(gold, answer, matcher.same):
        return True
    gold_node, answer_node = parse_answer(gold), parse_answer(answer)
    if matcher.same(gold_node, answer_node):
        return True
    plain_gold, plain_answer = rewrite(gold), rewrite(answer)
    if (plain_gold, plain_answer) != (gold, answer) and matcher.same(
        parse_answer(plain_gold), parse_answer(plain_answer)
    ):
        return True
    if isinstance(gold_node, Group) and isinstance(answer_node, Leaf) and "," in answer:  # 100,200,300 may be a list
        return matcher.same(gold_node, _as_list(answer))
    if isinstance(answer_node, Group) and isinstance(gold_node, Leaf) and "," in gold:
        return matcher.same(_as_list(gold), answer_node)
    return _SETS.search(gold + answer) is not None and matcher.compare_symbolically(gold, answer)


def _as_list(text: str) -> Node:
    return Group("", tuple(parse_answer(piece) for piece in split_commas(text)))


class _SymbolicComparer:
    """Compare expressions in the symbolic pool, with a total CPU time limit per answer."""

    def __init__(self, seconds: float, pool: SymbolicPool | None) -> None:
        self._seconds = seconds
        self._pool = pool
        self._left = CPU_FACTOR * seconds

    def equal(self, gold: str, answer: str) -> bool:
        from palestra.grading.symbolic_pool import shared_pool  # the module is slow to import and rarely needed

        pool = self._pool or shared_pool()
        if self._left <= 0:
            raise _LimitExceeded(_FAILURES["time"].format(seconds=self._seconds))
        wall = WALL_FACTOR * self._seconds
        result, used = pool.timed_compare(gold, answer, cpu=self._seconds, wall=wall)
        self._left -= used
        if isinstance(result, bool):
            return result
        raise _LimitExceeded(_FAILURES[result].format(seconds=self._seconds))


def _correct(answer: str, gold: str) -> Grade:
    return Grade(correct=True, score=1.0, why=f"{clip(answer)!r} equals {clip(gold)!r}")


def _wrong(why: str) -> Grade:
    return Grade(correct=False, score=0.0, why=why)
