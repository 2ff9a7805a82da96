r"""A mathematical answer and its golds -> a Grade.

Most answers are numbers, fractions, roots, polynomials, or lists and intervals of them: those are decided here, by
exact arithmetic, in microseconds (`reading`, `matching`, `exact`). What is left goes to math-verify in worker processes
under limits (`workers`), so that `\ln 10^{10^{10}}` costs its own time and nothing else. Equality is of value, not of
form: `\frac{1}{2}`, `0.5`, `50\%` and `x = 1/2` are one answer. A decimal stands for what it is the correct rounding of
where it shows six decimals or more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from palestra.errors import BadValue
from palestra.grading.base import Grade
from palestra.grading.exact import TooLarge
from palestra.grading.matching import Matcher
from palestra.grading.reading import Group, Leaf, Node, cleaned, read, split_commas
from palestra.parsing import clip

if TYPE_CHECKING:
    from palestra.grading.workers import Workers

LONGEST = 4_000  # characters of an answer that are read
PATIENCE = 5.0  # times `seconds`: wall-clock time on a machine that has other work as well

_SETS = re.compile(r"\\(?:setminus|cap|mathbb|begin\{[vV]matrix|det|bigcup|bigcap|subset)")  # structures not read here
_FAILURES = {
    "time": "comparing it took longer than {seconds:g} s",
    "memory": "comparing it took too much memory",
    "nesting": "it is nested too deeply",
    "crash": "comparing it crashed the algebra system, twice",
}


class _Broke(Exception):
    """A question to the workers broke a limit."""


def grade_math(
    answer: str,
    gold: str | float | Sequence[str | float],
    *,
    tolerance: float | None = None,
    seconds: float = 2.0,
    workers: Workers | None = None,
) -> Grade:
    """Correct where the answer equals the gold, or one of several.

    `tolerance`: relative, within which numbers count as equal; none unless asked. `seconds`: processor time for what
    needs the algebra system; where that does not do, the answer is not correct. EnvFailed where its workers cannot run.
    """
    golds = [gold] if isinstance(gold, str | int | float) else list(gold) if isinstance(gold, Sequence) else []
    if not golds or not all(isinstance(one, str | int | float) for one in golds):
        raise BadValue(f"a gold answer is a string, or several, got {gold!r}")
    if not isinstance(answer, str):
        raise BadValue(f"an answer is a string, got {type(answer).__name__}")
    if seconds <= 0 or (tolerance is not None and tolerance < 0):
        raise BadValue(f"seconds is above 0 and tolerance at least 0, got {seconds!r} and {tolerance!r}")
    if not answer.strip():
        return _wrong("the answer is empty")
    texts = [str(one) for one in golds]
    if any(answer.strip() == text.strip() for text in texts):
        return _right(answer, answer)
    if len(answer) > LONGEST:
        return _wrong(f"an answer of {len(answer)} characters is longer than any that is read")
    judge = _Judge(seconds, workers)
    matcher = Matcher(judge.ask, tolerance=tolerance)
    reasons: list[str] = []
    for text in texts:
        try:
            if _same(text, answer, matcher):
                return _right(answer, text)
            reasons.append(f"{clip(answer)!r} is not {clip(text)!r}")
        except TooLarge as err:
            reasons.append(f"{clip(answer)!r} is not {clip(text)!r}: {err}")
        except _Broke as err:
            reasons.append(f"{clip(answer)!r} against {clip(text)!r}: {err}")
    return _wrong("; ".join(reasons[:3]))


def _same(gold: str, answer: str, matcher: Matcher) -> bool:
    wanted, said = cleaned(gold), cleaned(answer)
    one, two = read(wanted), read(said)
    if matcher.same(one, two):
        return True
    if isinstance(one, Group) and isinstance(two, Leaf) and "," in said:  # 100,200,300: a number, or three of them
        return matcher.same(one, _as_list(said))
    if isinstance(two, Group) and isinstance(one, Leaf) and "," in wanted:
        return matcher.same(_as_list(wanted), two)
    return _SETS.search(wanted + said) is not None and matcher.ask(wanted, said)


def _as_list(text: str) -> Node:
    return Group("", tuple(read(piece) for piece in split_commas(text)))


class _Judge:
    """Asks the workers within one budget of time for all questions of a grade."""

    def __init__(self, seconds: float, workers: Workers | None) -> None:
        self._seconds = seconds
        self._workers = workers
        self._end: float | None = None

    def ask(self, gold: str, answer: str) -> bool:
        from palestra.grading.workers import shared_workers  # not before it is needed: it is most of the import

        pool = self._workers or shared_workers()
        now = monotonic()
        if self._end is None:
            self._end = now + PATIENCE * self._seconds
        if now >= self._end:
            raise _Broke(_FAILURES["time"].format(seconds=self._seconds))
        said = pool.ask(gold, answer, cpu=self._seconds, wall=PATIENCE * self._seconds)
        if isinstance(said, bool):
            return said
        raise _Broke(_FAILURES[said].format(seconds=self._seconds))


def _right(answer: str, gold: str) -> Grade:
    return Grade(correct=True, score=1.0, why=f"{clip(answer)!r} equals {clip(gold)!r}")


def _wrong(why: str) -> Grade:
    return Grade(correct=False, score=0.0, why=why)
