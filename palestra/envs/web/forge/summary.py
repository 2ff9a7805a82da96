"""Read a Fossil repository as a small database for grading, without hashes, times and earlier versions."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from palestra.envs.web.suite.app import insert
from palestra.errors import EnvFailed

SCHEMA = """
CREATE TABLE ticket (id TEXT, title TEXT, type TEXT, status TEXT, subsystem TEXT, priority TEXT, severity TEXT,
    foundin TEXT, resolution TEXT, contact TEXT);
CREATE TABLE remark (ticket TEXT, author TEXT, text TEXT);
CREATE TABLE page (title TEXT PRIMARY KEY, text TEXT);
CREATE TABLE post (thread TEXT, author TEXT, text TEXT, reply_to TEXT);
CREATE TABLE member (login TEXT PRIMARY KEY, rights TEXT, name TEXT);
CREATE TABLE check_in (original TEXT PRIMARY KEY, comment TEXT, author TEXT);
CREATE TABLE tagging (check_in TEXT, tag TEXT);
CREATE TABLE report (title TEXT, sql TEXT);
CREATE TABLE attachment (target TEXT, filename TEXT);
"""
COMPARED = {
    "ticket": "id, title, type, status, subsystem, priority, severity, foundin, resolution, contact",
    "remark": "ticket, author, text",
    "page": "title, text",
    "post": "thread, author, text, reply_to",
    "member": "login, rights, name",
    "check_in": "original, comment, author",
    "tagging": "check_in, tag",
    "report": "title, sql",
    "attachment": "target, filename",
}
NEW = "new"  # id of a ticket that was filed in the episode
TICKETS = """SELECT tkt_uuid, title, type, status, subsystem, priority, severity, foundin, resolution, private_contact
    FROM ticket"""
REMARKS = """SELECT tkt_uuid, coalesce(login, tkt_user), icomment FROM ticketchng JOIN ticket USING (tkt_id)"""
PAGES = """SELECT substr(tagname, 6), rid, max(tagxref.mtime) FROM tag JOIN tagxref USING (tagid)
    WHERE tagname GLOB 'wiki-*' GROUP BY tagid"""
POSTS = (
    """SELECT fpid, froot, firt FROM forumpost WHERE fpid NOT IN (SELECT fprev FROM forumpost WHERE fprev NOTNULL)"""
)
TAGS = """SELECT event.comment, substr(tagname, 5) FROM tagxref JOIN tag USING (tagid) JOIN event ON objid = rid
    WHERE tagname GLOB 'sym-*' AND tagtype > 0 AND event.type = 'ci'"""


def summarize(repository: Path, known: Collection[str]) -> sqlite3.Connection:
    """Return the content of a repository as a database in memory; `known` are the ids of the original tickets."""
    target = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    target.executescript(SCHEMA)
    with closing(sqlite3.connect(f"file:{repository}?mode=ro", uri=True)) as source:
        rows = source.execute
        tickets = [[row[0] if row[0] in known else NEW, *(value or "" for value in row[1:])] for row in rows(TICKETS)]
        insert(target, "ticket", tickets)
        remarks = [(ticket if ticket in known else NEW, login, _clean(text)) for ticket, login, text in rows(REMARKS)]
        insert(target, "remark", (remark for remark in remarks if remark[2]))
        texts = ((title, _clean(_artifact(source, rid).text)) for title, rid, _ in rows(PAGES))
        insert(target, "page", ((title, text) for title, text in texts if text))
        insert(target, "post", _posts(source))
        users = rows("SELECT login, cap, info FROM user").fetchall()
        insert(target, "member", ((login, "".join(sorted(set(rights or ""))), name) for login, rights, name in users))
        events = "SELECT comment, coalesce(ecomment, comment), coalesce(euser, user) FROM event WHERE type = 'ci'"
        insert(target, "check_in", rows(events))
        insert(target, "tagging", rows(TAGS))
        insert(target, "report", rows("SELECT title, sqlcode FROM reportfmt"))
        insert(target, "attachment", rows("SELECT target, filename FROM attachment WHERE isLatest"))
    return target


def _posts(source: sqlite3.Connection) -> Iterator[tuple[str, str, str, str]]:
    if source.execute("SELECT 1 FROM sqlite_master WHERE name = 'forumpost'").fetchone() is None:
        return
    for post, root, parent in source.execute(POSTS).fetchall():
        written, first = _artifact(source, post), _artifact(source, root)
        reply_to = "" if parent is None else _clean(_artifact(source, parent).text)
        yield first.title, written.author, _clean(written.text), reply_to


class _Artifact(NamedTuple):
    title: str
    author: str
    text: str


def _artifact(source: sqlite3.Connection, rid: int) -> _Artifact:
    """Return the title, author and text of a wiki page or post."""
    content = _content(source, rid)
    header, _, rest = content.partition(b"\nW ")
    size, _, rest = rest.partition(b"\n")
    cards = dict(line.split(" ", 1) for line in header.decode().split("\n"))
    title = cards.get("H", "").replace("\\s", " ").replace("\\n", "\n").replace("\\\\", "\\")
    return _Artifact(title, cards["U"], rest[: int(size)].decode("utf-8", "replace"))


def _content(source: sqlite3.Connection, rid: int) -> bytes:
    """Return a stored file. Earlier versions, which Fossil stores as deltas, raise an error."""
    stored, difference = source.execute(
        "SELECT content, EXISTS (SELECT 1 FROM delta WHERE delta.rid = blob.rid) FROM blob WHERE rid = ?", (rid,)
    ).fetchone()
    if difference:
        raise EnvFailed(f"the forge's artifact {rid} is stored as a delta, which cannot be graded")
    return zlib.decompress(stored[4:])


def _clean(text: str | None) -> str:
    return (text or "").replace("\r\n", "\n").strip()
