"""Read the values in a dataset row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palestra.errors import BadValue

_ABSENT = object()


def get_cell(row: Mapping[str, Any], column: str) -> Any:
    """Return the value of a column; a dotted name accesses nested values (`reward_model.ground_truth`, `answers.0`)."""
    if column in row:
        return row[column]
    value: Any = row
    for name in column.split("."):
        if isinstance(value, Mapping):
            value = value.get(name, _ABSENT)
        elif isinstance(value, Sequence) and not isinstance(value, str) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            value = _ABSENT
        if value is _ABSENT:
            raise BadValue(f"the row has no column {column!r}; its columns are {', '.join(map(str, row))}")
    return value


def cell_text(value: Any) -> str:
    """Return the text of a question, which may be a string, a number or a list of chat messages."""
    if isinstance(value, str):
        return value
    if isinstance(value, Sequence) and value and all(isinstance(m, Mapping) and "content" in m for m in value):
        return "\n\n".join(cell_text(message["content"]) for message in value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise BadValue(f"a question must be text, got {type(value).__name__}; select another column with question=")


def cell_texts(value: Any) -> list[str]:
    """Return the accepted answers in a cell: text, a number, a list, or an object with aliases as in TriviaQA."""
    if isinstance(value, Mapping):
        candidates = [value.get(key) for key in ("value", "text", "aliases", "answer", "answers")]
        return list(
            dict.fromkeys(text for candidate in candidates if candidate is not None for text in cell_texts(candidate))
        )
    if isinstance(value, str):
        return [value]
    if isinstance(value, Sequence):
        return list(dict.fromkeys(text for element in value for text in cell_texts(element)))
    if value is None:
        return []
    return [str(value)]
