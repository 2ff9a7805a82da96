"""Operations in generated programs, each defined by an English instruction and Python code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation that transforms the variable `value` from the kind `takes` to the kind `gives`.

    In `instruction` and `code`, the placeholder `{k}` is replaced by a number from 2 to `max_k`, and `{c}` and `{d}`
    are replaced by two different letters.
    """

    takes: str
    gives: str
    instruction: str  # an imperative sentence without the final period
    code: tuple[str, ...]
    max_k: int = 9


def filter_by(test: str) -> tuple[str, ...]:
    return (f"value = [x for x in value if {test}]",)


def map_to(expression: str) -> tuple[str, ...]:
    return (f"value = [{expression} for x in value]",)
