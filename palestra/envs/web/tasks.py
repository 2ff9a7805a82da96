"""Read the tasks for a user's site, and grade finished episodes."""

from __future__ import annotations

import json
import re
import sqlite3
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from palestra.errors import BadValue, DataMissing, EnvFailed

CRITERIA = ("answer", "url", "script", "sqlite")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebTask:
    """One task, which is solved if all of its criteria (`answer`, `url`, `script`, `sqlite`) are met at the end."""

    id: str
    intent: str  # the instruction for the agent
    start_url: str = "http://site.test/"
    answer: tuple[str, ...] = ()  # accepted answers in `stop [answer]`; "N/A" for an impossible task
    url: str = ""  # regular expression that must match the whole URL of the final page
    script: str = ""  # JavaScript expression that must be true on the final page
    sqlite: tuple[tuple[str, str, Any], ...] = ()  # database file, query and expected rows
    max_turns: int = 20


def read_tasks(path: str | Path) -> tuple[WebTask, ...]:
    """Read tasks from a JSON file that contains a list of objects, or one object per line."""
    file = Path(path)
    if not file.is_file():
        raise DataMissing(f"the task file {str(path)!r} does not exist")
    text = file.read_text(encoding="utf-8")
    try:
        rows = (
            json.loads(text) if text.lstrip().startswith("[") else [json.loads(row) for row in text.splitlines() if row]
        )
    except ValueError as err:
        raise BadValue(f"{path} is not JSON: {err}") from err
    if not rows:
        raise BadValue(f"{path} contains no tasks")
    return tuple(_task(row, number) for number, row in enumerate(rows, 1))


def _task(row: Any, number: int) -> WebTask:
    names = {field.name for field in fields(WebTask)}
    if not isinstance(row, dict) or not isinstance(row.get("intent"), str):
        raise BadValue(f'task {number} must be a JSON object with a string field "intent"')
    unknown = set(row) - names
    if unknown:
        raise BadValue(
            f"task {number} has unknown fields: {', '.join(sorted(unknown))}. Fields: {', '.join(sorted(names))}"
        )
    if not any(row.get(name) for name in CRITERIA):
        raise BadValue(f"task {number} needs at least one of the criteria {', '.join(CRITERIA)}")
    answer = row.get("answer") or ()
    checks = tuple((check["database"], check["query"], check["rows"]) for check in row.get("sqlite") or ())
    values = {**row, "id": str(row.get("id", number)), "sqlite": checks}
    values["answer"] = (answer,) if isinstance(answer, str) else tuple(map(str, answer))
    return WebTask(**values)


def accepts_answer(task: WebTask, answer: str) -> bool:
    """Return whether the answer is accepted, ignoring case, spaces, a final period and the formatting of numbers."""
    return not task.answer or any(same_answer(answer, accepted) for accepted in task.answer)


def same_answer(answer: str, accepted: str) -> bool:
    """Return whether two answers are equal, ignoring case, spaces, a final period and the formatting of numbers."""
    return _normal(answer) == _normal(accepted)


def _normal(text: str) -> str:
    text = " ".join(text.lower().split()).rstrip(".")
    number = re.fullmatch(r"[$€£]?\s?(-?[\d,]*\.?\d+)", text)
    return str(float(number[1].replace(",", ""))) if number else text


def accepts_databases(task: WebTask, folder: Path | None) -> bool:
    """Run the task's queries on the application's databases, and return whether all results are as expected."""
    for database, query, rows in task.sqlite:
        path = (folder or Path()) / database
        try:
            connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
            try:
                actual = [list(row) for row in connection.execute(query)]
            finally:
                connection.close()
        except sqlite3.Error as err:
            raise EnvFailed(f"task {task.id}: the query failed on {database}: {err}") from err
        if actual != rows:
            return False
    return True
