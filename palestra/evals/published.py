"""Results from papers, printed next to an evaluation's results.

A suite file lists them in `[[published]]` tables. A key in `values` is an environment id, or a category in the
suite; values are between 0 and 1.

```toml
differences = ["The papers' prompts are not used."]   # printed below the table

[[published]]
model = "Qwen3-4B"
metric = "success"                                     # or "score" or "return"
source = "Example et al. 2025, table 2"
values = { "eval:AIME24" = 0.167, "mathematics" = 0.4 }
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from palestra.errors import BadValue

METRICS = ("success", "score", "return")
ALL = "all"  # key for the mean over all environments
_KEYS = ("model", "metric", "source", "values")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """Results for one model, from one source."""

    model: str
    source: str
    values: Mapping[str, float]  # results by environment id, category, or "all"
    metric: str = "success"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "values": dict(self.values)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """All published results listed in a suite, and how their evaluations differ from the suite."""

    rows: tuple[PublishedRow, ...] = ()
    differences: tuple[str, ...] = field(default=())

    def __bool__(self) -> bool:
        return bool(self.rows)

    def to_json(self) -> dict[str, Any]:
        return {"rows": [row.to_json() for row in self.rows], "differences": list(self.differences)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Published:
        rows = tuple(PublishedRow(**row) for row in data.get("rows", ()))
        return cls(rows=rows, differences=tuple(data.get("differences", ())))


def parse_published(rows: object, differences: object, known: Sequence[str], where: str) -> Published:
    """Validate a suite's `[[published]]` tables and `differences`; `known` lists its ids and categories."""
    if not isinstance(differences, list) or not all(isinstance(text, str) for text in differences):
        raise BadValue(f"{where}: differences must be a list of sentences, got {differences!r}")
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise BadValue(f"{where}: write published results as [[published]] tables")
    return Published(rows=tuple(_parse_row(row, known, where) for row in rows), differences=tuple(differences))


def _parse_row(row: Mapping[str, Any], known: Sequence[str], where: str) -> PublishedRow:
    place = f"{where}, [[published]]"
    unknown = sorted(set(row) - set(_KEYS))
    if unknown:
        raise BadValue(f"{place}: unknown setting {unknown[0]!r}; known settings: {', '.join(_KEYS)}")
    for key in ("model", "source"):
        if not isinstance(row.get(key), str) or not row[key]:
            raise BadValue(f"{place}: {key} must be text, got {row.get(key)!r}")
    metric = row.get("metric", "success")
    if metric not in METRICS:
        raise BadValue(f"{place}: metric must be one of {', '.join(METRICS)}; got {metric!r}")
    values = row.get("values")
    if not isinstance(values, Mapping) or not values:
        raise BadValue(f"{place}: values must be a table of results by environment id or category")
    for key, value in values.items():
        if key not in known and key != ALL:
            raise BadValue(f"{place}: {key!r} is neither an environment nor a category in the suite")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise BadValue(f"{place}: the value of {key} must be from 0 to 1, got {value!r}")
    return PublishedRow(model=row["model"], source=row["source"], values=dict(values), metric=metric)


def comparison(table: Mapping[str, Any], published: Published) -> dict[str, Any] | None:
    """Return the published values and ours under the same keys, as JSON-compatible data; None if none are published."""
    if not published:
        return None
    keys = list(dict.fromkeys(key for row in published.rows for key in row.values))
    metrics = {key: next(row.metric for row in published.rows if key in row.values) for key in keys}
    return {
        "keys": keys,
        "ours": {key: _our_value(table, key, metrics[key]) for key in keys},
        **published.to_json(),
    }


def _our_value(table: Mapping[str, Any], key: str, metric: str) -> float | None:
    if key == ALL:
        value = table["total"].get(metric)
    else:
        rows = [row for row in table["envs"] if row["env"] == key]
        if not rows:
            rows = [row for row in table["categories"] if row["name"] == key] or [
                row for row in table["envs"] if row["category"] == key
            ]
        values = [row.get(metric) for row in rows]
        value = sum(values) / len(values) if values and None not in values else None
    return None if value is None else float(value)


def cells(data: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Return the comparison's headings and rows, with one row per environment and one column per model."""
    head = ["published results", "this evaluation", *(row["model"] for row in data["rows"])]
    body = [
        [key, _percent(data["ours"][key]), *(_percent(row["values"].get(key)) for row in data["rows"])]
        for key in data["keys"]
    ]
    return head, body


def notes(data: Mapping[str, Any]) -> list[str]:
    """Return one line per source, followed by the differences from the published evaluations."""
    lines = [f"{row['model']}: {row['source']} ({row['metric']})" for row in data["rows"]]
    return [*lines, *(f"Difference: {text}" for text in data["differences"])]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
