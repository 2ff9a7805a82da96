"""The forge: Fossil on an episode's copy of a repository, with the same pages for the same actions.

Fossil chooses the ids of new tickets at random, and the hashes of their artifacts depend on them. The browser never
receives these ids: in every reply, each id that was created in the episode is replaced with one that depends only on
the order of creation, and requests are translated back.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
import threading
from contextlib import closing
from datetime import timedelta
from functools import cache, lru_cache
from hashlib import sha3_256
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from palestra.browser.folders import LockedFolder, remove_stale
from palestra.browser.sites import Request, Response
from palestra.cache import cache_folder
from palestra.envs.web.forge import artifacts, content
from palestra.envs.web.forge.content import NOW, USER, project
from palestra.envs.web.forge.program import REPOSITORY, answer, find_clock, find_fossil, run, version
from palestra.envs.web.forge.summary import COMPARED, summarize
from palestra.envs.web.suite.app import App

PREFIX = "palestra-forge-"  # prefix of the folders with an episode's repository
NOBODY = 65534
_HASH = re.compile(rb"(?<![0-9a-f])[0-9a-f]{8,64}(?![0-9a-f])")
_SUGGESTION = re.compile(rb"(Password suggestion: )\w+")  # a random one
_CLOSED = (
    "login",
    "logout",
    "register",
    "chat",
    "captcha",
    "test",
)  # path prefixes of pages outside all tasks
_STATIC = ("/style.css", "/builtin/", "/favicon.ico", "/logo", "/background")


class ForgeApp(App):
    """Fossil. A repository is built once per data seed and kept in the cache folder; every episode copies it."""

    name = "forge"
    compared = COMPARED

    def require(self) -> None:
        find_fossil()
        find_clock()

    def launch(self, data_seed: int) -> ForgeSite:
        return ForgeSite(data_seed, repository(data_seed))

    def original(self, data_seed: int) -> sqlite3.Connection:
        database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        database.deserialize(_summary(data_seed))
        return database

    def same_page(self, url: str, expected: str) -> bool:
        """Return whether two addresses show the same page; Fossil accepts several forms of most addresses."""
        return _page(url) == _page(expected)


FORGE = ForgeApp()


def _page(url: str) -> tuple[str, ...]:
    """Return what an address shows: the kind of page, and its name."""
    parts = urlsplit(url)
    kind, _, name = parts.path.strip("/").partition("/")
    query = parse_qs(parts.query)
    name = name or next(iter(query.get("name", [""])), "")
    if kind in ("info", "tktview", "forumpost", "forumthread"):
        return ("item", name[:10])
    return (kind, name.replace("+", " ").replace("%20", " "))


@lru_cache(maxsize=16)
def _summary(data_seed: int) -> bytes:
    with closing(summarize(repository(data_seed), _ticket_ids(data_seed))) as database:
        return database.serialize()


@lru_cache(maxsize=16)
def _ticket_ids(data_seed: int) -> frozenset[str]:
    return frozenset(ticket.id for ticket in project(data_seed).tickets)


@cache
def _format() -> str:
    """Return a short hash of everything that a repository is built from."""
    sources = [Path(str(module.__file__)).read_bytes() for module in (artifacts, content)]
    return sha3_256(b"\0".join([version().encode(), *sources])).hexdigest()[:12]


@lru_cache(maxsize=64)
def repository(data_seed: int) -> Path:
    """Return the path of the repository for a data seed, which is built if it is not in the cache."""
    folder = cache_folder() / "forge" / _format()
    path = folder / f"{data_seed}.fossil"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as name:
        built = Path(name) / REPOSITORY
        run("new", "--admin-user", "owner", REPOSITORY, folder=Path(name))
        with closing(sqlite3.connect(built)) as database:
            artifacts.write(database, project(data_seed))
            database.commit()
        run("rebuild", REPOSITORY, folder=Path(name))
        built.replace(path)
    return path


@cache
def _remove_stale_folders() -> None:
    """Delete the repositories of processes that were killed, once per process."""
    remove_stale(PREFIX)


_STATIC_REPLIES: dict[str, Response] = {}  # Fossil's own files, which are the same in all episodes


class ForgeSite:
    """The forge during one episode. Its clock advances by one minute with every submitted form."""

    quick = False

    def __init__(self, data_seed: int, golden: Path) -> None:
        _remove_stale_folders()
        self.data_seed = data_seed
        self._folder = LockedFolder(PREFIX)
        self.repository = self._folder.path / REPOSITORY
        shutil.copyfile(golden, self.repository)
        if os.geteuid() == 0:  # Fossil changes to the owner of the repository
            os.chown(self._folder.path, NOBODY, NOBODY)
            os.chown(self.repository, NOBODY, NOBODY)
        self._sent = 0
        self._lock = threading.Lock()
        self._last = self._last_ids()
        self._shown: dict[str, str] = {}  # ids that the browser receives, by Fossil's ids
        self._actual: dict[str, str] = {}

    def respond(self, request: Request) -> Response:
        path = urlsplit(request.url).path
        if path.lstrip("/").startswith(_CLOSED):
            return Response(status=404, headers=(("Content-Type", "text/plain"),), body=b"This page is not available.")
        if request.method == "GET" and path.startswith(_STATIC):
            return self._cached(request)
        if request.method == "GET":
            return self._answer(request)
        with self._lock:
            reply = self._answer(request)
            self._sent += 1
            return reply

    def _cached(self, request: Request) -> Response:
        key = request.url
        if key not in _STATIC_REPLIES:
            _STATIC_REPLIES[key] = answer(self._folder.path, request, user=USER, when=NOW)
        return _STATIC_REPLIES[key]

    def _answer(self, request: Request) -> Response:
        url = self._translate(request.url.encode(), self._actual).decode()
        body = self._translate(request.body, self._actual)
        sent = Request(method=request.method, url=url, headers=request.headers, body=body)
        when = NOW + timedelta(minutes=self._sent)
        reply = answer(self._folder.path, sent, user=USER, when=when)
        if request.method != "GET":
            self._add_ids()
        headers = tuple(
            (name, self._translate(value.encode("latin-1"), self._shown).decode("latin-1"))
            for name, value in reply.headers
        )
        page = _SUGGESTION.sub(rb"\1welcome-to-the-forge", self._translate(reply.body, self._shown))
        return Response(status=reply.status, headers=headers, body=page)

    def _translate(self, text: bytes, ids: dict[str, str]) -> bytes:
        """Replace ids, and the first or last digits of ids."""
        if not ids:
            return text

        def replaced(match: re.Match[bytes]) -> bytes:
            digits = match[0].decode()
            for old, new in ids.items():
                if old.startswith(digits):
                    return new[: len(digits)].encode()
                if old.endswith(digits):
                    return new[-len(digits) :].encode()
            return match[0]

        return _HASH.sub(replaced, text)

    def _last_ids(self) -> tuple[int, int]:
        with closing(self._open()) as database:
            blob = database.execute("SELECT max(rid) FROM blob").fetchone()[0]
            return blob, database.execute("SELECT max(tkt_id) FROM ticket").fetchone()[0]

    def _add_ids(self) -> None:
        """Choose ids for the tickets and artifacts that were created since the last call."""
        known = _ticket_ids(self.data_seed)
        with closing(self._open()) as database:
            blobs = database.execute("SELECT uuid FROM blob WHERE rid > ? ORDER BY rid", self._last[:1]).fetchall()
            tickets = database.execute("SELECT tkt_uuid FROM ticket WHERE tkt_id > ?", self._last[1:]).fetchall()
        for (actual,) in (*blobs, *tickets):
            if actual not in self._shown and actual not in known:  # an edited ticket also gets a new row
                shown = sha3_256(f"{self.data_seed}/{len(self._shown)}".encode()).hexdigest()[: len(actual)]
                self._shown[actual], self._actual[shown] = shown, actual

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self.repository}?mode=ro", uri=True)

    def database(self) -> sqlite3.Connection:
        return summarize(self.repository, _ticket_ids(self.data_seed))

    def stop(self) -> None:
        self._folder.remove()
