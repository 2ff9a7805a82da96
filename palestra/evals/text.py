"""Format summary tables for terminals, Markdown, HTML and CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from typing import Any

from palestra.evals.published import cells as published_cells
from palestra.evals.published import notes as published_notes

Row = Mapping[str, Any]


def percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def interval(row: Row, key: str, form: Callable[[float | None], str]) -> str:
    """Format a value with its interval, for example `50.0% (45.0% to 55.0%)`, or alone if it has no interval."""
    if row.get(key) is None:
        return "-"
    low, high = row.get(f"{key}_low"), row.get(f"{key}_high")
    edges = "" if low is None or high is None else f" ({form(low)} to {form(high)})"
    return f"{form(row[key])}{edges}"


def columns(rows: Sequence[Row]) -> list[tuple[str, Callable[[Row], str]]]:
    """Return the heading and the cell formatter of each column that has a value in at least one row."""
    result: list[tuple[str, Callable[[Row], str]]] = [
        ("", lambda row: str(row["name"])),
        ("episodes", lambda row: f"{row['episodes']}"),
        ("success", lambda row: interval(row, "success", percent)),
    ]
    if _any(rows, "distinct_tasks"):
        result.insert(2, ("distinct tasks", lambda row: str(row.get("distinct_tasks", "-"))))
    if _any(rows, "seen_in_training"):
        result.insert(3, ("seen in training", lambda row: percent(row.get("seen_in_training"))))
    if _any(rows, "normalised"):
        result.append(("random=0, expert=1", lambda row: interval(row, "normalised", number)))
    result.append(("return", lambda row: interval(row, "return", number)))
    if any(row.get("score") != row.get("success") for row in rows):
        result.append(("score", lambda row: interval(row, "score", number)))
    passes = {key for row in rows for key in row if key[:5] in ("pass@", "pass^") and key[5:].isdigit()}
    result += [
        (key, _pass_cell(key)) for key in sorted(passes, key=_way) if int(key[5:]) > 1
    ]  # pass@1 is omitted because it equals the success rate
    result.append(("turns", _plain_cell("turns", ".1f")))
    result += [(name, _plain_cell(key, form)) for name, key, form in _PLAIN if any(row.get(key) for row in rows)]
    if any(row["failed"] for row in rows):
        result.append(("failed", _failed))
    if any(row["missing"] for row in rows):
        result.append(("missing", lambda row: str(row["missing"])))
    return result


_PLAIN = (
    ("tokens read", "tokens_read", ",.0f"),
    ("written", "tokens_written", ",.0f"),
    ("tool calls", "tool_calls", ".2f"),
    ("truncated", "truncated", ".1%"),
    ("invalid", "invalid_actions", ".1%"),
    ("empty replies", "empty_replies", ".1%"),
    ("cost $", "cost", ".4f"),
)


def cells(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Return the column headings and the formatted rows."""
    selected = columns(rows)
    return [name for name, _ in selected], [[cell(row) for _, cell in selected] for row in rows]


def sections(table: Row) -> list[tuple[str, list[Row]]]:
    """Return the title and rows of each non-redundant section in a table."""
    parts = [("environment", list(table["envs"]))]
    for title, key in (("category", "categories"), ("level", "levels")):
        if len(table[key]) > 1:
            parts.append((title, list(table[key])))
    if len(table["envs"]) > 1:
        parts.append(("all environments", [table["total"]]))
    return parts


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]], width: int | None = None) -> str:
    """Align columns for a terminal; the first is left-aligned, the others right-aligned.

    Columns that do not fit into `width` are moved to further tables below, which repeat the first column.
    """
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    parts: list[list[int]] = [[]]
    for i, size in enumerate(widths[1:], 1):
        used = widths[0] + sum(widths[j] + 2 for j in parts[-1])
        if width is not None and parts[-1] and used + size + 2 > width:
            parts.append([])
        parts[-1].append(i)
    tables = []
    for part in parts:
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in part)]).rstrip()
            for row in [head, *rows]
        ]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table; the first column is left-aligned, the others right-aligned."""

    def line(row: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") or " " for cell in row) + " |"

    return "\n".join([line(head), "|" + "|".join(["---", *["---:"] * (len(head) - 1)]) + "|", *map(line, rows)])


def table_text(table: Row, width: int | None = None) -> str:
    """Format the whole table for a terminal with `width` characters per line (default: no limit)."""
    parts = []
    for title, rows in sections(table):
        head, body = cells(rows)
        parts.append(aligned([title, *head[1:]], body, width))
    published = table.get("published")
    if published:
        parts += [aligned(*published_cells(published), width), "\n".join(published_notes(published))]
    return "\n\n".join(parts)


def table_csv(table: Row) -> str:
    """Format all values of all rows as CSV; nested values are written as JSON."""
    rows = [{"part": "env", **row} for row in table["envs"]]
    for part, key in (("category", "categories"), ("level", "levels")):
        rows += [{"part": part, **row} for row in table[key]]
    rows.append({"part": "total", **table["total"]})
    out = StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: json.dumps(v) if isinstance(v, (dict, list)) else v for key, v in row.items()})
    return out.getvalue()


def _any(rows: Sequence[Row], key: str) -> bool:
    return any(row.get(key) is not None for row in rows)


def _way(key: str) -> tuple[str, int]:
    return key[4], int(key[5:])


def _pass_cell(key: str) -> Callable[[Row], str]:
    return lambda row: interval(row, key, percent)


def _plain_cell(key: str, form: str) -> Callable[[Row], str]:
    return lambda row: format(row[key], form) if row.get(key) is not None else "-"


def _failed(row: Row) -> str:
    causes = ", ".join(f"{count} {where}" for where, count in row["failed_by"].items())
    return f"{row['failed']} ({causes})" if causes else "0"
