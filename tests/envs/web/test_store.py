"""The store without a browser: the same pages in every episode, its grading, and a lost process."""

from __future__ import annotations

import json
import os
import re
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

import palestra
from palestra.browser.sites import Request, Response, SiteFailed
from palestra.envs.web.store import program
from palestra.envs.web.store.app import PREFIX, STORE, StoreSite
from palestra.envs.web.store.content import store
from palestra.envs.web.suite.app import Change
from palestra.errors import MissingExtra

SEED = 3
NOTE = Change(STORE.name, "INSERT INTO note VALUES ('4003', 'Call first.', '')")


@pytest.fixture
def site() -> Iterator[StoreSite]:
    running = STORE.launch(SEED)
    yield running
    running.stop()


def visit(site: StoreSite, path: str, fields: dict[str, str] | None = None) -> Response:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    method = "GET" if fields is None else "POST"
    body = urlencode(fields or {}).encode()
    return site.respond(Request(method=method, url=STORE.url + path, headers=headers, body=body))


def add_note(site: StoreSite) -> list[bytes]:
    """Add a note to an order and return the pages."""
    address = "dashboard/orders/4003/"
    form = visit(site, address).body
    sent = visit(site, address, {"order_action": "save_note", "message": "Call first."})
    assert sent.status == 302
    return [form, visit(site, address).body]


def test_pages_and_grading_are_the_same_in_every_episode(site: StoreSite) -> None:
    content = store(SEED)
    pages = add_note(site)
    assert b"Call first." in pages[1]
    assert b"March 2, 2026, 9 a.m." in pages[1]
    assert re.search(rb'name="csrfmiddlewaretoken" value="\w{64}"', pages[0])
    other = STORE.launch(SEED)
    assert STORE.has_changes(other, SEED, ())  # another episode has its own database
    assert add_note(other) == pages
    assert STORE.has_changes(site, SEED, (NOTE,))
    assert not STORE.has_changes(site, SEED, ())
    other.stop()
    assert content.products[0].title.encode() in visit(site, "catalogue/").body
    found = visit(site, "search/?" + urlencode({"q": content.products[7].title, "sort_by": "price-asc"}))
    assert content.products[7].title.encode() in found.body
    assert visit(site, "static/oscar/js/tinymce/tinymce.min.js").body == b""  # a form is the same at all times
    for path in ("accounts/logout/", "dashboard/login/", "dashboard/comms/", "nowhere/", "static/../__init__.py"):
        assert visit(site, path).status == 404


def test_a_lost_process_is_started_again(site: StoreSite) -> None:
    visit(site, "accounts/profile/")
    process = program.SERVER_PROCESS.pid
    assert process is not None
    os.kill(process, signal.SIGKILL)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    assert visit(site, "accounts/profile/").status == 200
    assert program.SERVER_PROCESS.pid not in (None, process)
    folder = site.path.parent
    assert folder.name.startswith(PREFIX)
    site.stop()
    assert not folder.exists()


def test_a_reply_that_stops_in_the_middle_ends_the_process(site: StoreSite, monkeypatch: pytest.MonkeyPatch) -> None:
    visit(site, "accounts/profile/")
    process = program.SERVER_PROCESS._process
    assert process is not None
    assert process.stdin is not None
    assert process.stdout is not None
    command = {"name": "static", "path": "/static/oscar/js/jquery/jquery.min.js", "time": "2026-03-02T09:00:00+00:00"}
    process.stdin.write(json.dumps(command).encode() + b"\n")  # the reply does not fit into the pipe
    process.stdin.flush()
    select.select([process.stdout], [], [])
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    with monkeypatch.context() as patched:
        patched.setattr(program, "SECONDS", 0.1)
        with pytest.raises(SiteFailed, match=r"did not finish its reply within 0\.1 s"):
            visit(site, "accounts/profile/")
    assert process.returncode == -signal.SIGKILL
    assert visit(site, "accounts/profile/").status == 200


def test_missing_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(program.FOLDER, str(tmp_path))
    monkeypatch.setattr(program, "PACKAGES", ("no_such_package",))
    with pytest.raises(MissingExtra, match=r"pip install .*store"):
        palestra.make("web:Store-v0")
