"""Divide the rows in a dataset into splits by content, so that all copies of a question are in the same split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palestra.envs.tasks.cells import get_cell
from palestra.errors import BadValue
from palestra.spec import fingerprint

MAX_HELD_OUT = 1_000  # questions
MIN_QUESTIONS = 16  # datasets with fewer distinct questions are not split


def row_fingerprint(row: Mapping[str, Any], columns: Sequence[str]) -> str:
    """Return the fingerprint of a row's question; capitalization and whitespace are ignored."""
    return fingerprint([_normalized(row, column) for column in columns])


def split_rows(fingerprints: Sequence[str], split: str) -> Sequence[int]:
    """Return the numbers of the rows in a split, in ascending order.

    The questions with the smallest fingerprints are held out: one eighth, but at most 1,000.
    """
    questions = sorted(set(fingerprints))
    if len(questions) < MIN_QUESTIONS:
        return range(len(fingerprints))
    bound = questions[min(len(questions) // 8, MAX_HELD_OUT)]
    return [number for number, key in enumerate(fingerprints) if (key < bound) == (split == "test")]


def _normalized(row: Mapping[str, Any], column: str) -> Any:
    try:
        cell = get_cell(row, column)
    except BadValue:
        return None  # an error is raised when this row is used
    return " ".join(cell.split()).casefold() if isinstance(cell, str) else cell
