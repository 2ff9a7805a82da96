"""Run untrusted queries with read-only access and resource limits, and return the same results on every machine.

- Each query has its own connection to a copy in memory or to a file opened read-only. An authorizer permits only reads,
  pragmas that describe tables, and an allowlist of functions.
- Work is limited in steps of SQLite's virtual machine, not in seconds, so a query is stopped at the same point on every
  machine. The length of strings and rows is limited. Sorting and temporary tables use disk, not memory.
- Queries cannot use random numbers or read the clock: `random()` is not on the allowlist, and 'now' is replaced by NOW.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import quote

from palestra.errors import EnvFailed

NOW = "2025-06-30 12:00:00"  # value of 'now' and CURRENT_TIMESTAMP

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits for one query."""

    steps: int = 2_000_000  # steps of SQLite's virtual machine; 2,000,000 take 0.1 to 0.2 seconds
    length: int = 4_000  # bytes per string, blob or row
    rows: int = 10_000
    text: int = 20_000  # maximum number of characters in the query


class Database(Protocol):
    """A database that can be opened any number of times."""

    def connect(self) -> sqlite3.Connection: ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Image:
    """A database held in memory as bytes."""

    data: bytes

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        connection.deserialize(self.data)
        return connection


@dataclass(frozen=True, slots=True)
class File:
    """A database file, which must not change while it is in use."""

    path: str

    def connect(self) -> sqlite3.Connection:
        uri = f"file:{quote(self.path)}?mode=ro&immutable=1"
        try:
            return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        except sqlite3.OperationalError as err:
            raise EnvFailed(f"cannot open {self.path}: {err}") from err


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Rows returned by a query, or the error message if it failed."""

    columns: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    more: bool = False  # whether the query has more rows than were returned
    error: str = ""


def run(database: Database, query: str, limits: Limits, *, rows: int | None = None) -> Result:
    """Execute one query and return at most `rows` rows. Raise EnvFailed if the database itself is broken."""
    if len(query) > limits.text:
        return Result(error=f"the query has {len(query)} characters; at most {limits.text} are allowed")
    most = limits.rows if rows is None else rows
    connection = database.connect()
    try:
        _prepare(connection, limits)
        cursor = connection.execute(query)
        if cursor.description is None:
            return Result(error="this is not a query; write a SELECT")
        fetched = cursor.fetchmany(most + 1)
        names = tuple(str(column[0]) for column in cursor.description)
        return Result(columns=names, rows=tuple(fetched[:most]), more=len(fetched) > most)
    except sqlite3.Error as err:
        if getattr(err, "sqlite_errorcode", 0) & 0xFF in _BROKEN:
            raise EnvFailed(f"the database is broken: {err}") from err
        return Result(error=_why(err, limits))
    except MemoryError as err:
        raise EnvFailed("SQLite ran out of memory") from err
    except (sqlite3.Warning, UnicodeError, ValueError, OverflowError) as err:
        return Result(error=f"the query cannot be parsed: {err}")
    finally:
        connection.close()


# SQLite error codes for failures that are caused by the file or the machine, not by the query.
_BROKEN = frozenset({
    sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOTADB,
})  # fmt: skip

_PRAGMAS = frozenset({"table_info", "table_xinfo", "table_list", "foreign_key_list", "index_list", "index_info"})
_FUNCTION_TEXT = (
    # scalars, aggregates and windows
    "abs avg ceil ceiling char coalesce concat concat_ws count cume_dist dense_rank exp first_value floor format "
    "glob group_concat hex if ifnull iif instr lag last_value lead length like likelihood likely ln log log10 log2 "
    "lower ltrim max min mod nth_value ntile nullif octet_length percent_rank pi pow power printf quote rank replace "
    "round row_number rtrim sign soundex sqrt string_agg substr substring sum total trim trunc typeof unhex unicode "
    "unlikely upper "
    # dates
    "current_date current_time current_timestamp date datetime julianday strftime time timediff unixepoch "
    # JSON
    "-> ->> json json_array json_array_length json_each json_extract json_group_array json_group_object json_object "
    "json_tree json_type json_valid"
)
_FUNCTIONS = frozenset(_FUNCTION_TEXT.split())


def _prepare(connection: sqlite3.Connection, limits: Limits) -> None:
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.execute("PRAGMA temp_store = FILE")
    connection.execute("PRAGMA query_only = ON")
    for name, make in _DATE_FUNCTIONS.items():
        connection.create_function(name, -1, make, deterministic=True)
    for name, value in _CONSTANTS.items():
        connection.create_function(name, 0, lambda value=value: value, deterministic=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.length)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, limits.text * 4)
    # Matching a pattern takes time proportional to its length times the length of the text.
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200)
    connection.setlimit(sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 200)
    connection.setlimit(sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 60)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0)
    connection.set_authorizer(_allowed)
    connection.set_progress_handler(_counter(limits.steps), _STRIDE)


_STRIDE = 1_000


def _counter(steps: int) -> Callable[[], int]:
    left = max(1, steps // _STRIDE)

    def tick() -> int:
        nonlocal left
        left -= 1
        return left < 0  # True stops the query

    return tick


def _allowed(action: int, one: str | None, two: str | None, *_: Any) -> int:
    if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE):
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and two is not None and two.lower() in _FUNCTIONS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA and one is not None and one.lower() in _PRAGMAS:
        return sqlite3.SQLITE_OK
    # SQLite requests permission for this action to set up table-valued functions such as pragma_table_info(). SQLite
    # itself rejects actual writes to the schema.
    if action == sqlite3.SQLITE_UPDATE and one == "sqlite_master":
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _why(err: sqlite3.Error, limits: Limits) -> str:
    code = getattr(err, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_INTERRUPT:
        return f"the query was stopped after {limits.steps:,} steps; join on keys and filter early"
    if code in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY) or "authoriz" in str(err) or "may not be" in str(err):
        return f"{err}: only read access is allowed, with SELECT, WITH or PRAGMA table_info(...)"
    if code == sqlite3.SQLITE_TOOBIG:
        return f"{err}: values may have at most {limits.length:,} bytes"
    return str(err)


# Clock

_ZONES = ("localtime", "utc")  # modifiers whose effect depends on the machine's time zone
_helper = sqlite3.connect(":memory:", check_same_thread=False)  # used only to call SQLite's date functions on constants
_helper_lock = threading.Lock()


@lru_cache(maxsize=16_384)
def _evaluate(name: str, *values: Any) -> Any:
    marks = ", ".join("?" * len(values))
    with _helper_lock:
        # The function names are constants of this module.
        return _helper.execute(f"SELECT {name}({marks})", values).fetchone()[0]


def _with_fixed_clock(name: str, first: int) -> Callable[..., Any]:
    """Wrap an SQLite date function so that it uses NOW for 'now'. `first` is the index of its time argument."""

    def function(*values: Any) -> Any:
        if len(values) == first + 1 and str(values[first])[:1].isdigit():
            return _evaluate(name, *values)  # a date without modifiers
        head, arguments = values[:first], list(values[first:])
        if not arguments or str(arguments[0]).strip().lower() in ("now", "subsec", "subsecond"):
            arguments[:1] = [NOW]
        arguments = [value for value in arguments if str(value).strip().lower() not in _ZONES]
        return _evaluate(name, *head, *arguments)

    return function


_DATE_FUNCTIONS = {
    name: _with_fixed_clock(name, first)
    for name, first in (("date", 0), ("time", 0), ("datetime", 0), ("julianday", 0), ("strftime", 1), ("unixepoch", 0))
}
_CONSTANTS = {"current_timestamp": NOW, "current_date": NOW[:10], "current_time": NOW[11:]}
