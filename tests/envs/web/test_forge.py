"""Test the forge without a browser: content, pages, deterministic ids and grading."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

import pytest

import palestra
from palestra.browser.sites import Request, Response
from palestra.cache import CACHE
from palestra.envs.web.forge import program
from palestra.envs.web.forge.app import FORGE, PREFIX, ForgeSite, repository
from palestra.envs.web.forge.content import USER, project
from palestra.envs.web.suite.app import Change
from palestra.errors import MissingExtra

SEED = 3
NONCE = re.compile(rb"nonce.[\"']?[0-9a-f]{32,}")
TICKET = {
    "csrf": "",
    "title": "Crash on Sunday",
    "type": "Incident",
    "severity": "Minor",
    "mutype": "Plain Text",
    "icomment": "Every time.",
    "submit": "Submit",
}


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A new cache folder, so that the repository is built by this version of the code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE, str(tmp_path_factory.mktemp("cache")))
        repository.cache_clear()
        yield repository(SEED)
    repository.cache_clear()


@pytest.fixture
def site(golden: Path) -> Iterator[ForgeSite]:
    running = ForgeSite(SEED, golden)
    yield running
    running.stop()


def visit(site: ForgeSite, path: str, fields: dict[str, str] | None = None) -> Response:
    headers = {"Referer": FORGE.url, "Content-Type": "application/x-www-form-urlencoded"}
    method = "GET" if fields is None else "POST"
    body = urlencode(fields or {}).encode()
    return site.respond(Request(method=method, url=FORGE.url + path, headers=headers, body=body))


def file_ticket(site: ForgeSite) -> tuple[str, list[bytes]]:
    """File a ticket, and return its address and the pages that show its id."""
    filed = visit(site, "tktnew", TICKET)
    address = dict(filed.headers)["Location"].removeprefix(FORGE.url)
    pages = [visit(site, path) for path in (address, address.replace("tktview", "tkthistory"), "timeline?y=t")]
    assert [page.status for page in pages] == [200, 200, 200]
    return address, [NONCE.sub(b"", page.body) for page in pages]


def test_ids_and_times_of_new_tickets_are_the_same_in_every_episode(site: ForgeSite, golden: Path) -> None:
    address, pages = file_ticket(site)
    other = ForgeSite(SEED, golden)
    assert file_ticket(other) == (address, pages)
    with closing(sqlite3.connect(site.repository)) as first, closing(sqlite3.connect(other.repository)) as second:
        actual = [
            base.execute("SELECT tkt_uuid FROM ticket ORDER BY tkt_id DESC").fetchone() for base in (first, second)
        ]
    assert actual[0] != actual[1]
    assert actual[0][0].encode() not in b"".join(pages)
    assert b"2026-03-02 09:0" in pages[0]
    other.stop()


def test_grading_compares_tickets_and_remarks(site: ForgeSite) -> None:
    values = ("new", "Crash on Sunday", "Incident", "Open", "", "", "Minor", "", "", "")
    filed = Change(FORGE.name, f"INSERT INTO ticket VALUES ({', '.join('?' * 10)})", values)
    remark = Change(FORGE.name, "INSERT INTO remark VALUES ('new', ?, 'Every time.')", (USER,))
    assert FORGE.has_changes(site, SEED, ())
    file_ticket(site)
    assert FORGE.has_changes(site, SEED, (filed, remark))
    assert not FORGE.has_changes(site, SEED, ())
    assert not FORGE.has_changes(site, SEED, (filed,))


def test_edits_of_existing_tickets_keep_their_id(site: ForgeSite) -> None:
    ticket = project(SEED).tickets[0]
    fields = {"csrf": "", "name": ticket.id, "title": "Shorter", "submit": "Submit"}
    assert dict(visit(site, "tktedit", fields).headers)["Location"].endswith(ticket.id)
    renamed = Change(FORGE.name, "UPDATE ticket SET title = 'Shorter' WHERE id = ?", (ticket.id,))
    assert FORGE.has_changes(site, SEED, (renamed,))


def test_pages(site: ForgeSite) -> None:
    content = project(SEED)
    assert content.tickets[0].title in visit(site, "rptview?rn=1").body.decode()
    assert content.threads[0].title in visit(site, "forum").body.decode()
    for path in ("login", "logout", "chat", "test_env", "nowhere", "setup_config", "admin_sql", "%00", "wiki?name=%27"):
        reply = visit(site, path)
        assert reply.status in (200, 302, 404)
        assert b"REMOTE_USER" not in reply.body
    assert b"welcome-to-the-forge" in visit(site, "setup_uedit").body
    assert visit(site, "style.css") is visit(site, "style.css")


def test_addresses_of_the_same_page() -> None:
    ticket = project(SEED).tickets[0].id
    assert FORGE.same_page(f"http://forge.test/tktview?name={ticket}", f"http://forge.test/tktview/{ticket[:10]}")
    assert FORGE.same_page("http://forge.test/wiki/Style%20guide", "http://forge.test/wiki?name=Style+guide")
    assert not FORGE.same_page("http://forge.test/wikiedit?name=Roadmap", "http://forge.test/wiki?name=Roadmap")
    assert not FORGE.same_page("http://forge.test/wiki?name=Roadmap", "http://forge.test/wiki?name=Contacts")


def test_missing_programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for find, name, value in (
        (program.find_fossil, "PATH", str(tmp_path)),
        (program.find_clock, "CLOCK_FOLDERS", (str(tmp_path),)),
    ):
        with monkeypatch.context() as patch:
            find.cache_clear()
            if name == "PATH":
                patch.setenv(name, str(value))
            else:
                patch.setattr(program, name, value)
            with pytest.raises(MissingExtra, match="apt-get install fossil faketime"):
                palestra.make("web:Forge-v0")
        find.cache_clear()


def test_folders_are_removed(site: ForgeSite) -> None:
    folder = site.repository.parent
    assert folder.name.startswith(PREFIX)
    site.stop()
    assert not folder.exists()
