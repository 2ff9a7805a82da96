"""Generate the content of the encyclopedia: articles, earlier revisions, messages on talk pages and a watchlist."""

from __future__ import annotations

import sqlite3
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

from palestra.envs.web.suite.app import insert
from palestra.envs.world import World, article_of, facts_of
from palestra.envs.world.facts import Ref
from palestra.seeding import child_seed

PAGES = 300
USER = "Robin"  # the agent's name on the site
SCHEMA = """
CREATE TABLE article (title TEXT PRIMARY KEY, kind TEXT, body TEXT);
CREATE TABLE revision (title TEXT, number INTEGER, author TEXT, body TEXT);
CREATE TABLE message (id INTEGER PRIMARY KEY, title TEXT, author TEXT, text TEXT);
CREATE TABLE watched (title TEXT PRIMARY KEY);
CREATE TABLE preference (name TEXT PRIMARY KEY, value TEXT);
"""
COMPARED = {
    "article": "title, kind, body",
    "message": "title, author, text",
    "watched": "title",
    "preference": "name, value",
}
PREFERENCES = {
    "Language": ("English", "French", "German", "Hindi", "Spanish", "Swahili", "Turkish", "Welsh"),
    "Skin": ("Classic", "Dark", "High contrast", "Minimal", "Wide"),
    "Messages by email": ("Always", "Daily", "Weekly", "Never"),
    "Time zone": ("UTC-8", "UTC-5", "UTC", "UTC+1", "UTC+5", "UTC+9"),
}
AUTHORS = ("Amara", "Bruno", "Chidi", "Dalia", "Elif", "Farid", "Greta", "Hana", "Ivo", "Jun")
REMARKS = (
    "Is there a source for the second sentence?",
    "The introduction reads well now.",
    "Could somebody check the dates?",
    "A picture would help here.",
    "I have added a link.",
    "This should be merged with the article on its neighbor.",
)
SPAM = (
    "Buy cheap watches at my shop!!!",
    "Earn money from home, ask me how.",
    "Best casino bonus, click my name.",
    "Miracle pills, half price today.",
)
VANDALISM = ("LOL THIS IS ALL WRONG", "my cat wrote this article", "blah blah blah", "deleted because boring")


class Entry(NamedTuple):
    """A page of the world, with its facts and the text of its article."""

    page: int
    title: str
    kind: str
    facts: dict[str, Any]
    body: str


class Library:
    """Everything that the articles state, for writing tasks."""

    def __init__(self, data_seed: int) -> None:
        self.world = World(seed=child_seed(data_seed, "encyclopedia") % 2**31, pages=PAGES)
        self.entries = [
            Entry(page, article.title, article.kind, dict(facts_of(self.world, page)), article.markup)
            for page in range(PAGES)
            for article in (article_of(self.world, page),)
        ]
        self.by_kind: dict[str, list[Entry]] = {}
        for entry in self.entries:
            self.by_kind.setdefault(entry.kind, []).append(entry)
        rng = Random(child_seed(data_seed, "library"))  # content must depend only on the seed
        chosen = rng.sample([entry.title for entry in self.entries], 60)
        self.watched = sorted(chosen[:8])
        minor = [entry.title for kind in ("event", "person", "work") for entry in self.by_kind[kind]]
        self.vandalized = {title: rng.choice(VANDALISM) for title in rng.sample(minor, 12)}
        self.messages: list[tuple[str, str, str]] = []  # title, author, text
        for title in chosen[20:50]:
            for author in rng.sample(AUTHORS, rng.randint(1, 4)):
                self.messages.append((title, author, rng.choice(REMARKS)))
        self.spam: dict[str, str] = {}  # title -> author
        for title in chosen[20:32]:
            self.spam[title] = spammer = f"{rng.choice(('Dealz', 'Promo', 'Best'))}{rng.randint(10, 99)}"
            for text in rng.sample(SPAM, rng.randint(1, 3)):
                self.messages.append((title, spammer, text))
        rng.shuffle(self.messages)
        self.preferences = {name: rng.choice(values) for name, values in PREFERENCES.items()}

    def of(self, entry: Entry, relation: str) -> Entry:
        """Return the page that a fact names."""
        ref = entry.facts[relation]
        assert isinstance(ref, Ref)  # noqa: S101  # the callers name relations between pages
        return self.entries[ref.page]


@lru_cache(maxsize=16)
def library(data_seed: int) -> Library:
    return Library(data_seed)


def fill(database: sqlite3.Connection, content: Library) -> None:
    shown = {entry.title: content.vandalized.get(entry.title, entry.body) for entry in content.entries}
    insert(database, "article", ((entry.title, entry.kind, shown[entry.title]) for entry in content.entries))
    insert(database, "revision", ((entry.title, 1, "Editor", entry.body) for entry in content.entries))
    insert(database, "revision", ((title, 2, "Guest", body) for title, body in content.vandalized.items()))
    insert(database, "message", ((number, *message) for number, message in enumerate(content.messages, 1)))
    insert(database, "watched", ((title,) for title in content.watched))
    insert(database, "preference", content.preferences.items())
