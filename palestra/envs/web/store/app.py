"""The store: django-oscar on an episode's copy of a database, with the same pages for the same actions."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import threading
from datetime import timedelta
from functools import cache, lru_cache
from hashlib import sha3_256
from pathlib import Path
from urllib.parse import urlsplit

from palestra.browser.folders import LockedFolder, remove_stale
from palestra.browser.sites import HOP_HEADERS, Request, Response, SiteFailed
from palestra.cache import cache_folder
from palestra.envs.web.store import build, content, server
from palestra.envs.web.store.content import NOW
from palestra.envs.web.store.program import SERVER_PROCESS, find_oscar, version
from palestra.envs.web.store.summary import COMPARED, serialize, summarize
from palestra.envs.web.suite.app import App
from palestra.errors import EnvFailed

PREFIX = "palestra-store-"  # prefix of the folders with an episode's database
DATABASE = "store.sqlite3"
STATIC = "/static/"
# TinyMCE appears in steps whose number depends on real time, so texts are edited in plain fields.
EDITOR = "/static/oscar/js/tinymce/"
NO_EDITOR = b"jQuery.fn.tinymce = function () { return this; };"
_CLOSED = (  # beginnings of addresses that are not part of a task
    "/accounts/login",
    "/accounts/logout",
    "/accounts/password",
    "/accounts/change-password",
    "/accounts/profile/delete",
    "/dashboard/comms",
    "/dashboard/login",
    "/dashboard/logout",
    "/i18n",
    "/media",
    "/password-reset",
)
_FIRST = ("/", "/catalogue/")  # where an episode starts
_SENT = frozenset({"accept", "content-type", "referer", "x-requested-with"})  # the headers that the store receives
_DROPPED = HOP_HEADERS | {"set-cookie", "vary", "date"}
_KINDS = {".css": "text/css", ".js": "text/javascript", ".jpg": "image/jpeg", ".woff2": "font/woff2"}


class StoreApp(App):
    """django-oscar. A database is built once per data seed and kept in the cache folder; every episode copies it."""

    name = "store"
    compared = COMPARED

    @property
    def home(self) -> str:
        return f"{self.url}catalogue/"  # the address without a path redirects to it

    def require(self) -> None:
        find_oscar()

    def launch(self, data_seed: int) -> StoreSite:
        return StoreSite(data_seed, golden(data_seed))

    def original(self, data_seed: int) -> sqlite3.Connection:
        database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        database.deserialize(_summary(data_seed))
        return database

    def same_page(self, url: str, expected: str) -> bool:
        """Return whether two addresses show the same page; the query does not matter."""
        return urlsplit(url)[:3] == urlsplit(expected)[:3]


STORE = StoreApp()


@lru_cache(maxsize=16)
def _summary(data_seed: int) -> bytes:
    return serialize(golden(data_seed))


@cache
def _format() -> str:
    """Return a short hash of all that a database is built from."""
    sources = [Path(str(module.__file__)).read_bytes() for module in (build, content, server)]
    return sha3_256(b"\0".join([version().encode(), *sources])).hexdigest()[:12]


@lru_cache(maxsize=64)
def golden(data_seed: int) -> Path:
    """Return the path of the database for a data seed, which is built if it is not in the cache."""
    folder = cache_folder() / "store" / _format()
    path = folder / f"{data_seed}.sqlite3"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    empty = folder / "empty.sqlite3"
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as name:
        built = Path(name) / DATABASE
        command = {"database": str(built), "time": NOW.isoformat()}
        if empty.exists():
            shutil.copyfile(empty, built)
        else:
            SERVER_PROCESS.send({**command, "name": "create"})
            tables = Path(name) / "tables"
            shutil.copyfile(built, tables)
            tables.replace(empty)
        SERVER_PROCESS.send({**command, "name": "fill", "data_seed": data_seed})
        built.replace(path)
    return path


@cache
def _remove_stale_folders() -> None:
    """Delete the databases of processes that were killed, once per process."""
    remove_stale(PREFIX)


_FIRST_PAGES: dict[tuple[int, str], Response] = {}  # by data seed and path


@lru_cache(maxsize=256)
def _file(path: str) -> Response:
    """Return a file of django-oscar, such as a style sheet, which is the same in all episodes."""
    if path.startswith(EDITOR):
        reply, body = {"found": True}, NO_EDITOR if path.endswith("/jquery.tinymce.min.js") else b""
    else:
        reply, body = SERVER_PROCESS.send({"name": "static", "path": path, "time": NOW.isoformat()})
    kind = _KINDS.get(Path(path).suffix, "application/octet-stream")
    headers = (("Content-Type", kind), ("Cache-Control", "max-age=31536000, immutable"))
    return Response(status=200 if reply["found"] else 404, headers=headers, body=body)


class StoreSite:
    """The store during one episode. Its clock advances by a minute with every form that is sent."""

    quick = False

    def __init__(self, data_seed: int, original: Path) -> None:
        _remove_stale_folders()
        self.data_seed = data_seed
        self._folder = LockedFolder(PREFIX)
        self.path = self._folder.path / DATABASE
        shutil.copyfile(original, self.path)
        self._sent = 0
        self._lock = threading.Lock()

    def respond(self, request: Request) -> Response:
        address = urlsplit(request.url)
        path = address.path
        if path.startswith(_CLOSED):
            return Response(status=404, headers=(("Content-Type", "text/plain"),), body=b"This page is not available.")
        try:
            if path.startswith(STATIC):
                return _file(path)
            with self._lock:
                key = (self.data_seed, path)
                if self._sent or request.method != "GET" or path not in _FIRST or address.query:
                    return self._answer(request)
                if key not in _FIRST_PAGES:  # nothing was changed, so the page is the same in all episodes
                    _FIRST_PAGES[key] = self._answer(request)
                return _FIRST_PAGES[key]
        except EnvFailed as err:
            raise SiteFailed(f"{request.url}: {err}") from err

    def _answer(self, request: Request) -> Response:
        reply, body = SERVER_PROCESS.send(
            {
                "name": "answer",
                "database": str(self.path),
                "time": (NOW + timedelta(minutes=self._sent)).isoformat(),
                "number": self._sent,
                "method": request.method,
                "url": request.url,
                "headers": {name: value for name, value in request.headers.items() if name.lower() in _SENT},
            },
            request.body,
        )
        if request.method != "GET":
            self._sent += 1
        headers = tuple((name, value) for name, value in reply["headers"] if name.lower() not in _DROPPED)
        return Response(status=reply["status"], headers=headers, body=body)

    def database(self) -> sqlite3.Connection:
        with self._lock:
            return summarize(self.path)

    def stop(self) -> None:
        self._folder.remove()
