"""Operations of generated programs: what they do, in English and in Python."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """A transformation of the variable `value`, of kind `takes`, to a value of kind `gives`.

    In `instruction` and `code`, `{k}` is replaced by a number from 2 to `max_k`, `{c}` and `{d}` by two different
    letters.
    """

    takes: str
    gives: str
    instruction: str  # an imperative sentence without its full stop
    code: tuple[str, ...]
    max_k: int = 9


def filter_by(test: str) -> tuple[str, ...]:
    return (f"value = [x for x in value if {test}]",)


def map_to(expression: str) -> tuple[str, ...]:
    return (f"value = [{expression} for x in value]",)
