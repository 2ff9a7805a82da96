"""Web applications whose content is generated from a seed, and which are graded by comparing their databases.

A small application is a `SqlApp`: an SQLite schema, a function that fills it, and one handler per address. Its content
is generated once per data seed and kept as bytes in memory; every episode works on a copy of them. Requests are
answered in this process, so there is nothing to start.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from palestra.browser.sites import Request, Response, SiteFailed
from palestra.envs.web.suite.markup import Html, page

Tables = dict[str, list[tuple[Any, ...]]]  # the rows of each table, sorted
_HTML = (("Content-Type", "text/html; charset=utf-8"), ("Cache-Control", "no-store"))


class Change(NamedTuple):
    """A change that a task asks for, as an SQL statement on the database of an application."""

    app: str
    sql: str
    values: tuple[Any, ...] = ()


class RunningApp(Protocol):
    """An application during one episode: a site, and the database that it changes."""

    quick: bool

    def respond(self, request: Request) -> Response: ...

    def database(self) -> sqlite3.Connection:
        """Return a copy of the content as an SQLite database, which the caller closes."""

    def stop(self) -> None: ...


class App(ABC):
    """An application. `compared` names the tables that are graded, and their columns."""

    name: str
    compared: Mapping[str, str]

    @property
    def host(self) -> str:
        return f"{self.name}.test"

    @property
    def url(self) -> str:
        return f"http://{self.host}/"

    @property
    def home(self) -> str:
        """Address of the page on which an episode starts."""
        return self.url

    def require(self) -> None:
        """Raise MissingExtra with an install command if a program that the application needs is missing."""

    def same_page(self, url: str, expected: str) -> bool:
        """Return whether an address shows the expected page."""
        return url == expected

    @abstractmethod
    def launch(self, data_seed: int) -> RunningApp:
        """Return the application with the unchanged content of a data seed."""

    @abstractmethod
    def original(self, data_seed: int) -> sqlite3.Connection:
        """Return the unchanged content as an SQLite database, which the caller closes."""

    def has_changes(self, running: RunningApp, data_seed: int, changes: Iterable[Change]) -> bool:
        """Return whether an application was changed exactly as `changes` would have changed it."""
        with closing(self.original(data_seed)) as expected, closing(running.database()) as actual:
            for change in changes:
                if change.app == self.name:
                    expected.execute(change.sql, change.values)
            return self._tables(expected) == self._tables(actual)

    def _tables(self, database: sqlite3.Connection) -> Tables:
        return {
            table: sorted(database.execute(f"SELECT {columns} FROM {table}"), key=repr)  # noqa: S608  # constants
            for table, columns in self.compared.items()
        }


class Call:
    """A request to a handler: the fields of its form or query, the content, and the database."""

    def __init__(self, database: sqlite3.Connection, content: Any, fields: Mapping[str, str]) -> None:
        self.database = database
        self.content = content
        self.fields = fields

    def field(self, name: str, default: str = "") -> str:
        return self.fields.get(name, default).replace("\r\n", "\n").strip()

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.database.execute(sql, values).fetchall()

    def value(self, sql: str, *values: Any) -> Any:
        """Return the first column of the first row, or None."""
        row = self.database.execute(sql, values).fetchone()
        return None if row is None else row[0]


class Redirect(NamedTuple):
    path: str


Reply = Html | Redirect | Response | None  # None means that there is no such page
Handler = Callable[..., Reply]


class SqlApp(App):
    """A small application in this process. Handlers are registered with `get` and `post`."""

    def __init__(
        self, name: str, schema: str, fill: Callable[[sqlite3.Connection, Any], None], content: Callable[[int], Any]
    ) -> None:
        self.name = name
        self.schema, self.fill, self.content = schema, fill, content
        self.compared = {}
        self.routes: list[tuple[str, re.Pattern[str], Handler]] = []
        self._golden = lru_cache(maxsize=16)(self._build)

    def _build(self, data_seed: int) -> bytes:
        with closing(sqlite3.connect(":memory:")) as database:
            database.executescript(self.schema)
            self.fill(database, self.content(data_seed))
            database.commit()
            return database.serialize()

    def original(self, data_seed: int) -> sqlite3.Connection:
        database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        database.deserialize(self._golden(data_seed))
        return database

    def launch(self, data_seed: int) -> SqlSite:
        return SqlSite(self, self.original(data_seed), self.content(data_seed))

    def get(self, path: str) -> Callable[[Handler], Handler]:
        """Register a handler for an address such as "/place/<name>"."""
        return self._route("GET", path)

    def post(self, path: str) -> Callable[[Handler], Handler]:
        return self._route("POST", path)

    def _route(self, method: str, path: str) -> Callable[[Handler], Handler]:
        pattern = re.compile(re.sub(r"<(\w+)>", r"(?P<\1>[^/]+)", path))

        def register(handler: Handler) -> Handler:
            self.routes.append((method, pattern, handler))
            return handler

        return register

    def answer(self, method: str, path: str, call: Call) -> Reply:
        for expected, pattern, handler in self.routes:
            match = pattern.fullmatch(path)
            if match is not None and expected == method:
                return handler(call, **{name: unquote(value) for name, value in match.groupdict().items()})
        return None


class SqlSite:
    """A `SqlApp` during one episode."""

    quick = True

    def __init__(self, app: SqlApp, database: sqlite3.Connection, content: Any) -> None:
        self.app, self.content = app, content
        self._database = database
        self._lock = threading.Lock()

    def respond(self, request: Request) -> Response:
        parts = urlsplit(request.url)
        encoded = request.body.decode("utf-8", "replace") if request.method == "POST" else parts.query
        call = Call(self._database, self.content, dict(parse_qsl(encoded, keep_blank_values=True)))
        try:
            with self._lock:
                reply = self.app.answer(request.method, parts.path, call)
        except sqlite3.Error as err:
            raise SiteFailed(f"{request.url}: {err}") from err
        if isinstance(reply, Response):
            return reply
        if isinstance(reply, Redirect):
            return Response(status=303, headers=(("Location", reply.path),))
        if reply is None:
            body = page("Not found", Html("<h1>Not found</h1><p>There is no such page.</p>"))
            return Response(status=404, headers=_HTML, body=body.encode())
        return Response(status=200, headers=_HTML, body=reply.encode())

    def database(self) -> sqlite3.Connection:
        copy = sqlite3.connect(":memory:")
        with self._lock:
            copy.deserialize(self._database.serialize())
        return copy

    def stop(self) -> None:
        with self._lock:
            self._database.close()


def insert(database: sqlite3.Connection, table: str, rows: Iterable[Sequence[Any]]) -> None:
    """Insert rows with a value for every column."""
    rows = list(rows)
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608  # constants
