"""Write the tables of docs/data/experiments.toml to docs/experiments.md, between their markers.

    python scripts/docs_tables.py

The results page of the docs site contains the same tables.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DATA = ROOT / "docs" / "data" / "experiments.toml"
PAGE = ROOT / "docs" / "experiments.md"


def tables() -> list[dict[str, Any]]:
    """Return the tables in the data file."""
    found: list[dict[str, Any]] = tomllib.loads(DATA.read_text())["table"]
    return found


def markdown(table: Mapping[str, Any]) -> str:
    """Format a table."""
    rows = [table["columns"], *table["rows"]]
    if any(len(row) != len(rows[0]) for row in rows):
        raise ValueError(f"{DATA.name}: the rows of {table['id']} have different lengths")
    lines = ["|" + "|".join(f" {cell} " if cell else " " for cell in row) + "|" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def with_tables(page: str) -> str:
    """Return a page in which the tables are replaced by those of the data file."""
    for table in tables():
        start, end = f"<!-- table {table['id']}: start -->", f"<!-- table {table['id']}: end -->"
        head, found, rest = page.partition(start)
        _, closed, tail = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"{PAGE.name}: there are no markers for the table {table['id']}")
        page = f"{head}{start}\n\n{markdown(table)}\n\n{end}{tail}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
