"""SQLite index of episodes for listing, filtering and lookup. It is stored in the cache folder, not in run folders."""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any

from palestra.cache import cache_folder
from palestra.errors import BadValue
from palestra.viewer.facts import OUTCOMES, EpisodeFields
from palestra.viewer.lines import LinePosition

FORMAT = 3  # version of the format; an index with another version is rebuilt
PAGE = 50
COLUMNS = [item.name for item in fields(EpisodeFields)]
SORTS = {
    "first": "file, n",
    "last": "file DESC, n DESC",
    "return": "ret DESC, file, n",
    "-return": "ret, file, n",
    "turns": "turns DESC, file, n",
    "-turns": "turns, file, n",
    "tokens": "tokens DESC, file, n",
    "seconds": "seconds DESC, file, n",
}
_TOTALS = (
    "count(*) AS episodes, sum(outcome = 'solved') AS solved, sum(outcome = 'failed') AS failed, "
    "avg(CASE WHEN error IS NULL THEN ret END) AS mean_return, avg(turns) AS mean_turns"
)
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS files (
    run TEXT, file TEXT, inode INTEGER, size INTEGER, mtime INTEGER, head BLOB,
    done INTEGER, lines INTEGER, bad INTEGER, error TEXT, PRIMARY KEY (run, file)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS episodes (
    run TEXT, file TEXT, n INTEGER, offset INTEGER, inner INTEGER, length INTEGER,
    {", ".join(COLUMNS)}, PRIMARY KEY (run, file, n)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_task ON episodes (env, seed);
CREATE INDEX IF NOT EXISTS by_step ON episodes (run, step);
CREATE INDEX IF NOT EXISTS by_outcome ON episodes (run, outcome, env, turns, ret, error, ending);
PRAGMA user_version = {FORMAT};
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """Indexing state of a file."""

    inode: int
    size: int
    mtime: int
    head: bytes  # first bytes of the file, to detect that the file was replaced
    done: int
    lines: int
    bad: int = 0  # number of lines that do not contain a trajectory
    error: str | None = None


_of_facts = attrgetter(*COLUMNS)
_of_state = attrgetter(*(item.name for item in fields(FileState)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Filter for the episodes in a run."""

    env: str = ""
    outcome: str = ""
    error: str = ""  # "boundary: kind" of a failure, or "any"
    ending: str = ""
    seed: str = ""
    step: int | None = None
    min_turns: int | None = None
    max_turns: int | None = None

    def __post_init__(self) -> None:
        if self.outcome and self.outcome not in OUTCOMES:
            raise BadValue(f"`outcome` must be one of {', '.join(OUTCOMES)}; got {self.outcome!r}")

    def where(self, run: str) -> tuple[str, list[Any]]:
        """Return the SQL condition and its parameters."""
        parts, values = ["run = ?"], [run]
        exact = {"env": self.env, "outcome": self.outcome, "ending": self.ending, "seed": self.seed}
        conditions: list[tuple[str, Any]] = [(f"{name} = ?", value) for name, value in exact.items() if value]
        if self.error == "any":
            parts.append("error IS NOT NULL")
        elif self.error:
            conditions.append(("error = ?", self.error))
        if self.step is not None:
            conditions.append(("step = ?", self.step))
        if self.min_turns is not None:
            conditions.append(("turns >= ?", self.min_turns))
        if self.max_turns is not None:
            conditions.append(("turns <= ?", self.max_turns))
        return " AND ".join([*parts, *(part for part, _ in conditions)]), [*values, *(value for _, value in conditions)]


class Index:
    """Index database for a folder. Only one thread may write to it; any thread may read from it."""

    def __init__(self, folder: Path) -> None:
        key = hashlib.sha256(str(folder).encode()).hexdigest()[:20]
        self.path = _index_folder() / f"{key}.sqlite"
        self._facets: dict[str, tuple[tuple[Any, ...], dict[str, list[dict[str, Any]]]]] = {}
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        try:
            self._prepare()
        except sqlite3.DatabaseError:  # the database is corrupt and is rebuilt
            for name in (self.path, *(self.path.with_name(self.path.name + end) for end in ("-wal", "-shm"))):
                name.unlink(missing_ok=True)
            self._local = threading.local()
            self._prepare()

    def _prepare(self) -> None:
        db = self.db
        if db.execute("PRAGMA user_version").fetchone()[0] not in (0, FORMAT):
            db.executescript("DROP TABLE IF EXISTS files; DROP TABLE IF EXISTS episodes;")
        db.executescript(_SCHEMA)

    @property
    def db(self) -> sqlite3.Connection:
        """Database connection for the current thread."""
        connection: sqlite3.Connection | None = getattr(self._local, "db", None)
        if connection is None:
            connection = sqlite3.connect(self.path, timeout=30, check_same_thread=False, isolation_level=None)
            with self._lock:
                self._open.append(connection)
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA cache_size = -8000")  # 8000 KiB per connection
            self._local.db = connection
        return connection

    def close(self) -> None:
        with self._lock:
            while self._open:
                with suppress(sqlite3.Error):
                    self._open.pop().close()

    # Writing

    def state(self, run: str, file: str) -> FileState | None:
        row = self.db.execute("SELECT * FROM files WHERE run = ? AND file = ?", (run, file)).fetchone()
        return None if row is None else FileState(**{k: row[k] for k in row.keys() if k not in ("run", "file")})  # noqa: SIM118

    def add(
        self, run: str, file: str, state: FileState, rows: Iterable[tuple[int, LinePosition, EpisodeFields]]
    ) -> None:
        """Store the next episodes from a file and its state in one transaction."""
        db = self.db
        marks = ", ".join("?" * (6 + len(COLUMNS)))
        with _transaction(db):
            db.executemany(
                f"INSERT OR REPLACE INTO episodes VALUES ({marks})",  # noqa: S608  # `marks` contains only question marks
                ((run, file, n, spot.offset, spot.inner, spot.length, *_of_facts(facts)) for n, spot, facts in rows),
            )
            db.execute(
                "INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (run, file, *_of_state(state))
            )

    def remove(self, run: str, file: str | None = None) -> None:
        """Delete the entries for a run or for one of its files."""
        condition, values = ("run = ?", (run,)) if file is None else ("run = ? AND file = ?", (run, file))
        db = self.db
        with _transaction(db):
            for table in ("episodes", "files"):
                db.execute(f"DELETE FROM {table} WHERE {condition}", values)  # noqa: S608  # no user input in the statement

    def indexed_files(self) -> list[tuple[str, str]]:
        """Return (run, file name) for every indexed file."""
        return [(row[0], row[1]) for row in self.db.execute("SELECT run, file FROM files")]

    # Reading

    def progress(self, run: str) -> dict[str, Any]:
        """Return a run's indexing progress."""
        row = self.db.execute(
            "SELECT sum(lines - bad), sum(bad), sum(done), sum(size), count(*) FROM files WHERE run = ?", (run,)
        ).fetchone()
        errors = self.db.execute(
            "SELECT file, error FROM files WHERE run = ? AND error IS NOT NULL LIMIT 5", (run,)
        ).fetchall()
        names = ("episodes", "unreadable", "bytes_done", "bytes", "files")
        totals: dict[str, Any] = dict(zip(names, (value or 0 for value in row), strict=True))
        return totals | {"errors": [f"{file}: {error}" for file, error in errors]}

    def counts(self) -> dict[str, int]:
        """Return the number of episodes per run."""
        return {r[0]: r[1] for r in self.db.execute("SELECT run, sum(lines - bad) FROM files GROUP BY run")}

    def facets(self, run: str) -> dict[str, list[dict[str, Any]]]:
        """Return the available filter values for a run with their counts; cached until more episodes are indexed."""
        mark = tuple(self.db.execute("SELECT sum(lines), sum(done) FROM files WHERE run = ?", (run,)).fetchone())
        cached = self._facets.get(run)
        if cached is not None and cached[0] == mark:
            return cached[1]
        facets_by_name = {}
        for name in ("env", "outcome", "error", "ending"):
            rows = self.db.execute(
                f"SELECT {name}, count(*) FROM episodes WHERE run = ? AND {name} IS NOT NULL "  # noqa: S608  # no user input
                f"GROUP BY {name} ORDER BY count(*) DESC LIMIT 200",
                (run,),
            )
            facets_by_name[name] = [{"value": value, "count": count} for value, count in rows]
        self._facets[run] = (mark, facets_by_name)
        return facets_by_name

    def list(self, run: str, wanted: Filter, *, sort: str = "first", page: int = 0) -> dict[str, Any]:
        """Return one page of matching episodes, and totals over all matching episodes."""
        if sort not in SORTS:
            raise BadValue(f"`sort` must be one of {', '.join(SORTS)}; got {sort!r}")
        where, values = wanted.where(run)
        total = self.db.execute(
            f"SELECT {_TOTALS} FROM episodes WHERE {where}",  # noqa: S608  # values are passed as parameters
            values,
        ).fetchone()
        rows = self.db.execute(
            f"SELECT * FROM episodes WHERE {where} ORDER BY {SORTS[sort]} LIMIT ? OFFSET ?",  # noqa: S608
            [*values, PAGE, max(0, page) * PAGE],
        )
        pages = -(-total["episodes"] // PAGE)
        return {"total": dict(total), "page": page, "pages": pages, "rows": [_shown(row) for row in rows]}

    def spot(self, run: str, file: str, n: int) -> LinePosition | None:
        row = self.db.execute(
            "SELECT offset, inner, length FROM episodes WHERE run = ? AND file = ? AND n = ?", (run, file, n)
        ).fetchone()
        return None if row is None else LinePosition(*row)

    def neighbors(self, run: str, file: str, n: int, wanted: Filter) -> dict[str, str | None]:
        """Return the previous and the next matching episode."""
        where, values = wanted.where(run)
        result: dict[str, str | None] = {}
        for name, sign, order in (("before", "<", "DESC"), ("after", ">", "ASC")):
            row = self.db.execute(
                f"SELECT file, n FROM episodes WHERE {where} AND (file, n) {sign} (?, ?) "  # noqa: S608
                f"ORDER BY file {order}, n {order} LIMIT 1",
                [*values, file, n],
            ).fetchone()
            result[name] = None if row is None else f"{row[0]}:{row[1]}"
        return result

    def same_task(self, env: str, seed: str, *, most: int = 40) -> Sequence[dict[str, Any]]:
        """Return the episodes for one task in all runs."""
        rows = self.db.execute(
            "SELECT * FROM episodes WHERE env = ? AND seed = ? ORDER BY run, file, n LIMIT ?", (env, seed, most)
        )
        return [_shown(row) for row in rows]

    def attempts(self, run: str, env: str, seed: str) -> Sequence[dict[str, Any]]:
        """Return file, number and outcome of the attempts at a task in a run, in order."""
        rows = self.db.execute(
            "SELECT file, n, outcome FROM episodes WHERE run = ? AND env = ? AND seed = ? ORDER BY file, n",
            (run, env, seed),
        )
        return [dict(row) for row in rows]

    def batch(self, run: str, step: int) -> Sequence[Mapping[str, Any]]:
        """Return the finished episodes in a training step, in order."""
        rows = self.db.execute(
            "SELECT file, n, env, seed, grp, rewards FROM episodes "
            "WHERE run = ? AND step = ? AND turns > 0 AND error IS NULL AND outcome != 'unfinished' ORDER BY file, n",
            (run, step),
        )
        return [dict(row) for row in rows]


class _transaction:  # noqa: N801  # used as a context manager: `with _transaction(db)`
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")


def _shown(row: sqlite3.Row) -> dict[str, Any]:
    hidden = ("file", "n", "offset", "inner", "length", "rewards")
    return {"at": f"{row['file']}:{row['n']}", **{k: row[k] for k in row.keys() if k not in hidden}}  # noqa: SIM118


def _index_folder() -> Path:
    """Return the folder for the index: the cache folder if it is writable, otherwise a temporary folder."""
    folder = cache_folder() / "viewer"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".try-"):
            pass
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="palestra-viewer-"))
    return folder
