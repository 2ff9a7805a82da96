"""Environment with the questions and databases from BIRD. Spider's files have the same format and can also be used.

    questions    dev.json, train.json, mini_dev_sqlite.json: rows with db_id, question, evidence, SQL, difficulty
    databases    dev_databases or train_databases: one folder DB_ID per database, containing DB_ID.sqlite

BIRD compares results on the original database only, so it accepts queries with hard-coded results. In this environment,
the query must also be correct on two copies: one with at most half of the rows in every table, and one without rows.
"""

from __future__ import annotations

import json
import sqlite3
from functools import lru_cache
from pathlib import Path
from typing import Any, Unpack

from palestra.core import Reset
from palestra.envs.multi_turn import MultiTurnOptions
from palestra.envs.sql.domain import Question
from palestra.envs.sql.env import SqlEnv
from palestra.envs.sql.guard import Database, File, Image, Limits
from palestra.envs.tasks.order import position_of, row_at
from palestra.errors import BadValue, DataMissing
from palestra.spec import fingerprint, split_of

LIMITS = Limits(steps=200_000_000, length=1_000_000, rows=100_000)  # a query may run for a few seconds
COPY_ROWS = 5_000  # maximum number of rows per table in the smaller copy
_DIFFICULTIES = ("simple", "moderate", "challenging")


class Bird(SqlEnv):
    """Answer questions from the BIRD benchmark.

    `questions` is BIRD's JSON file (dev.json or train.json; there is no separate argument for BIRD's own splits),
    `databases` is the folder with its databases, and `difficulty` restricts the questions to one difficulty. `split`
    selects seven eighths ("train") or one eighth ("test") of the questions in the file. `evidence` adds BIRD's hints to
    the prompt. As in BIRD, results are compared as sets of rows. A seed is a position in the shuffled list of the
    selected questions, and `reset(options={"index": 7})` selects question 7 of them. The expert submits BIRD's query.
    """

    inline = False  # a query may take seconds
    filters_tasks = False  # the constructor selects the questions in the split
    compare = "set"

    def __init__(
        self,
        *,
        questions: str = "",
        databases: str = "",
        difficulty: str | None = None,
        evidence: bool = True,
        show_schema: bool = True,
        show_rows: int = 10,
        limits: Limits | None = None,
        max_turns: int = 8,
        **options: Unpack[MultiTurnOptions],
    ) -> None:
        super().__init__(
            show_schema=show_schema, show_rows=show_rows, limits=limits or LIMITS, max_turns=max_turns, **options
        )
        if not questions or not databases:
            raise DataMissing(
                "sql:BIRD requires BIRD's files. Download them from bird-bench.github.io and pass their paths: "
                'make("sql:BIRD", questions="dev.json", databases="dev_databases")'
            )
        if difficulty is not None and difficulty not in _DIFFICULTIES:
            raise BadValue(f"`difficulty` must be one of {', '.join(_DIFFICULTIES)}, or None; got {difficulty!r}")
        self.evidence = bool(evidence)
        self._folder = str(Path(databases).expanduser().resolve())
        rows = (row for row in _read(questions) if difficulty in (None, row.get("difficulty")))
        self._rows = tuple(row for row in rows if self.split in (None, split_of(fingerprint(_key(row)))))
        if not self._rows:
            raise DataMissing(f"{questions} contains no questions of difficulty {difficulty!r}, split {self.split!r}")
        self.num_tasks = len(self._rows)

    shared = SqlEnv.shared | {"_rows"}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        if seed is None and options and "index" in options:
            seed = position_of(self._checked(options["index"]), len(self._rows), seed=0, epoch=0)
        return super().reset(seed, options)

    def setup(self, options: dict[str, Any]) -> None:
        requested = options.pop("index", None)
        epoch, position = divmod(self.seed, len(self._rows))
        if requested is None:
            self.index = row_at(position, len(self._rows), seed=0, epoch=epoch)
        else:
            self.index = self._checked(requested)
        row = self._rows[self.index]
        hint = f"\nHint: {row['evidence']}" if self.evidence and row.get("evidence") else ""
        self.question = Question(
            text=f"{row['question']}{hint}",
            gold=str(row.get("SQL") or row["query"]),
            level=str(row.get("difficulty", "")),
        )
        name = str(row["db_id"])
        self.about = f"The database is named {name}."
        path = Path(self._folder, name, f"{name}.sqlite")
        if not path.is_file():
            raise DataMissing(f"{path} does not exist; the `databases` folder must contain one folder per database")
        self.databases = (File(str(path)), *_copies(str(path), path.stat().st_mtime_ns))
        self.read_schema()

    def task_key(self) -> object:
        return _key(self._rows[self.index])

    def _checked(self, index: object) -> int:
        if isinstance(index, int) and 0 <= index < len(self._rows):
            return index
        raise BadValue(f"the reset option `index` must be from 0 to {len(self._rows) - 1}, got {index!r}")

    def reset_info(self) -> dict[str, Any]:
        return {**super().reset_info(), "index": self.index, "db_id": self._rows[self.index]["db_id"]}


def _key(row: dict[str, Any]) -> tuple[str, str]:
    return str(row["db_id"]), str(row["question"])


def _read(questions: str) -> list[dict[str, Any]]:
    path = Path(questions).expanduser()
    if not path.is_file():
        raise DataMissing(f"the questions file {questions!r} does not exist (current directory: {Path.cwd()})")
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as err:
        raise BadValue(f"{questions} is not valid JSON: {err}") from err
    if not isinstance(rows, list):
        raise BadValue(f"{questions} must contain a list of questions, got a {type(rows).__name__}")
    for number, row in enumerate(rows):
        if not (isinstance(row, dict) and "db_id" in row and "question" in row and ("SQL" in row or "query" in row)):
            raise BadValue(f"{questions}: row {number} must have the fields db_id, question and SQL (or query)")
    return rows


@lru_cache(maxsize=16)
def _copies(path: str, stamp: int) -> tuple[Database, ...]:  # noqa: ARG001  # `stamp` is part of the cache key
    return smaller_copy(File(path), COPY_ROWS), smaller_copy(File(path), 0)


def smaller_copy(database: Database, most: int) -> Image:
    """Copy the tables and views with every other row, up to `most` rows per table."""
    source = database.connect()
    source.text_factory = lambda raw: raw.decode("utf-8", "replace")  # real tables contain invalid UTF-8
    copy = sqlite3.connect(":memory:")
    try:
        definitions = (
            "SELECT name, sql FROM sqlite_master WHERE type = ? AND sql IS NOT NULL AND name NOT LIKE 'sqlite_%'"
        )
        for name, sql in source.execute(definitions, ("table",)).fetchall():
            if not sql.upper().startswith("CREATE VIRTUAL"):
                copy.execute(sql)
                _copy_rows(source, copy, name, most)
        for _, sql in source.execute(definitions, ("view",)).fetchall():
            copy.execute(sql)
        copy.commit()
        return Image(copy.serialize())
    finally:
        source.close()
        copy.close()


def _copy_rows(source: sqlite3.Connection, copy: sqlite3.Connection, table: str, most: int) -> None:
    if most == 0:
        return
    quoted = _quoted(table)
    columns = [row[1] for row in source.execute(f"PRAGMA table_info({quoted})")]
    listed, marks = ", ".join(map(_quoted, columns)), ", ".join("?" * len(columns))
    rows = source.execute(f"SELECT {listed} FROM {quoted} LIMIT ?", (2 * most,))  # noqa: S608  # names are quoted
    every_other = (row for number, row in enumerate(rows) if number % 2)
    copy.executemany(f"INSERT OR IGNORE INTO {quoted} ({listed}) VALUES ({marks})", every_other)  # noqa: S608


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
