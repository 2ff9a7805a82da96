"""Write a project as artifacts in a Fossil repository.

Fossil stores all content as text files with one line ("card") per property; `fossil rebuild` derives its tables from
them. Writing the artifacts directly is much faster than the corresponding commands, and makes their timestamps fixed.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import md5, sha3_256

from palestra.envs.web.forge.content import (
    PEOPLE,
    PRIORITIES,
    README,
    RESOLUTIONS,
    SEVERITIES,
    START,
    STATUSES,
    SUBSYSTEMS,
    TYPES,
    USER,
    CheckIn,
    Project,
    Ticket,
)

MARKDOWN = "text/x-markdown"
ROLES = {"developer": "v2345", "reader": "u234", "agent": "abcdefghijklmnoqrtuvwz23456"}  # Fossil's capabilities
FOOTER = "</div><div class='footer'>Fossil</div>"  # the default footer contains the time it took to generate the page
MENU = """Home /home * {}
Timeline /timeline * {}
Files /dir?ci=tip * {}
Branches /brlist * {}
Tags /taglist * {}
Forum /forum * {}
Tickets /ticket * {}
Wiki /wiki * {}
Users /setup_ulist * {}
Search /search * {}
"""
CHOICES = {
    "type": TYPES,
    "priority": PRIORITIES,
    "severity": SEVERITIES,
    "resolution": RESOLUTIONS,
    "status": STATUSES,
    "subsystem": SUBSYSTEMS,
}
SETTINGS = {
    "remote_user_ok": "1",  # the user is named by an environment variable, so nobody has to log in
    "backoffice-disable": "1",
    "search-ci": "1",
    "search-tkt": "1",
    "search-wiki": "1",
    "search-forum": "1",
    "footer": FOOTER,
    "mainmenu": MENU,
    "timeline-plaintext": "1",
    "project-code": "a" * 40,
    "server-code": "b" * 40,
}


def write(database: sqlite3.Connection, project: Project) -> None:
    """Replace the content of a new repository with a project; call `fossil rebuild` afterwards."""
    for table in ("blob", "event", "tagxref", "plink", "leaf", "mlink", "unclustered", "unsent", "rcvfrom"):
        database.execute(f"DELETE FROM {table}")  # noqa: S608  # constants
    database.execute("INSERT INTO rcvfrom(rcvid, uid, mtime) VALUES (1, 1, 2460000.5)")
    choices = "".join(f"set {field}_choices {{ {' '.join(options)} }}\n" for field, options in CHOICES.items())
    named = {"project-name": project.name, "project-description": project.purpose, "ticket-common": choices}
    rows = [(name, value) for name, value in (SETTINGS | named).items()]
    database.executemany("REPLACE INTO config(name, value, mtime) VALUES (?, ?, 0)", rows)
    database.execute("UPDATE config SET mtime = 0")
    users = [(login, ROLES["developer"]) for login in project.developers]
    users += [(login, ROLES["reader"]) for login in project.readers]
    accounts = [(login, capabilities, PEOPLE[login]) for login, capabilities in users]
    accounts.append((USER, ROLES["agent"], "Robin Vale"))
    database.executemany("INSERT INTO user(login, cap, info) VALUES (?, ?, ?)", accounts)
    database.execute("UPDATE user SET pw = 'x', mtime = strftime('%s', ?)", (START.isoformat(),))
    store = _Store(database)
    _write_check_ins(store, project)
    for ticket in project.tickets:
        _write_ticket(store, ticket)
    home = f"# {project.name}\n\n{project.name} is {project.purpose}.\n"
    titles = "".join(f"  *  [{page.title}](/wiki?name={page.title.replace(' ', '+')})\n" for page in project.pages)
    store.write_page(project.name, project.developers[0], project.check_ins[0].when, f"{home}\n{titles}")
    for page in project.pages:
        store.write_page(page.title, page.author, page.when, page.text)
    for thread in project.threads:
        hashes: list[str] = []
        for place, post in enumerate(thread.posts):
            cards = [f"D {_date(thread.when + timedelta(hours=5 * place))}"]
            if place:
                cards += [f"G {hashes[0]}", f"I {hashes[post.reply_to]}"]
            else:
                cards += [f"H {_encode(thread.title)}"]
            hashes.append(store.write(cards, post.author, post.text, kind=MARKDOWN))


class _Store:
    """Adds artifacts to a repository."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def put(self, content: bytes) -> str:
        """Store a file and return its hash."""
        digest = sha3_256(content).hexdigest()
        stored = struct.pack(">I", len(content)) + zlib.compress(content)
        self._database.execute(
            "INSERT OR IGNORE INTO blob(rcvid, size, uuid, content) VALUES (1, ?, ?, ?)", (len(content), digest, stored)
        )
        return digest

    def write(self, cards: Iterable[str], user: str, text: str | None = None, *, kind: str = "") -> str:
        """Store an artifact with the given cards, which are sorted, and return its hash."""
        cards = [*cards, *([f"N {kind}"] if kind else []), f"U {user}"]
        if text is not None:
            cards.append(f"W {len(text.encode())}\n{text}")
        body = "".join(f"{card}\n" for card in cards).encode()
        return self.put(body + b"Z " + md5(body, usedforsecurity=False).hexdigest().encode() + b"\n")

    def write_page(self, title: str, author: str, when: datetime, text: str) -> None:
        self.write((f"D {_date(when)}", f"L {_encode(title)}"), author, text, kind=MARKDOWN)


def _date(when: datetime) -> str:
    return f"{when.isoformat()}.000"


def _encode(text: str) -> str:
    return text.replace("\\", "\\\\").replace(" ", "\\s").replace("\n", "\\n")


def _write_check_ins(store: _Store, project: Project) -> None:
    tips: dict[str, str] = {}  # the last check-in by branch
    trees: dict[str, dict[str, str]] = {"trunk": {}}  # file names and hashes by branch
    revisions: dict[str, int] = {}
    for entry in project.check_ins:
        starts_branch = entry.branch not in trees
        if starts_branch:
            trees[entry.branch] = dict(trees["trunk"])
            tips[entry.branch] = tips["trunk"]
        for name in entry.files:
            revisions[name] = revisions.get(name, 0) + 1
            trees[entry.branch][name] = store.put(_source(project, name, revisions[name]).encode())
        cards = [f"C {_encode(entry.comment)}", f"D {_date(entry.when)}"]
        cards += [f"F {_encode(name)} {digest}" for name, digest in sorted(trees[entry.branch].items())]
        cards += [f"P {tips[entry.branch]}"] if entry.branch in tips else []
        tips[entry.branch] = store.write([*cards, *_tags(entry, new=starts_branch or not tips)], entry.user)


def _tags(entry: CheckIn, *, new: bool) -> list[str]:
    tags = [f"T *branch * {entry.branch}", f"T *sym-{entry.branch} *"] if new else []
    if entry.release:
        tags.append(f"T +sym-{entry.release} *")
    if new and entry.branch != "trunk":
        tags.append("T -sym-trunk *")
    return sorted(tags)


def _source(project: Project, name: str, revision: int) -> str:
    if name == README:
        return f"# {project.name}\n\n{project.name} is {project.purpose}.\n"
    lines = [f"/* {project.name}: {name}, revision {revision} */"]
    if name in project.constants:
        constant, value = project.constants[name]
        lines.append(f"#define {constant} {value}")
    return "\n".join([*lines, f"int {name.split('/')[-1].split('.')[0]}_revision(void) {{ return {revision}; }}", ""])


def _write_ticket(store: _Store, ticket: Ticket) -> None:
    fields = {
        "foundin": ticket.foundin,
        "icomment": ticket.text,
        "login": ticket.reporter,
        "mimetype": "text/plain",
        "priority": ticket.priority,
        "resolution": ticket.resolution,
        "severity": ticket.severity,
        "status": ticket.status,
        "subsystem": ticket.subsystem,
        "title": ticket.title,
        "type": ticket.type,
    }
    _write_change(store, ticket, fields, ticket.reporter, 0)
    for place, (login, text) in enumerate(ticket.remarks, 1):
        _write_change(store, ticket, {"icomment": text, "login": login, "mimetype": "text/plain"}, login, place)


def _write_change(store: _Store, ticket: Ticket, fields: dict[str, str], user: str, place: int) -> None:
    cards = [f"D {_date(ticket.when + timedelta(hours=7 * place))}"]
    cards += [f"J {name} {_encode(value)}" for name, value in fields.items()]
    store.write([*cards, f"K {ticket.id}"], user)
