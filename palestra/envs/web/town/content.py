"""Generate the places of a town, their reviews and the lists of saved places."""

from __future__ import annotations

import sqlite3
from functools import lru_cache
from random import Random
from typing import NamedTuple

from palestra.envs.web.encyclopedia.content import Entry, library
from palestra.envs.web.suite.app import insert
from palestra.envs.web.town.streets import COLUMNS, ROWS, Streets
from palestra.seeding import child_seed

USER = "Robin"  # the agent's name on the site
LISTS = ("Favorites", "To visit", "Work")
SCHEMA = """
CREATE TABLE place (name TEXT PRIMARY KEY, category TEXT, address TEXT, corner INTEGER, hours TEXT, phone TEXT,
  rating TEXT, accessible TEXT);
CREATE TABLE review (id INTEGER PRIMARY KEY, place TEXT, author TEXT, stars INTEGER, text TEXT);
CREATE TABLE saved (list TEXT, place TEXT);
CREATE TABLE suggestion (id INTEGER PRIMARY KEY, place TEXT, field TEXT, value TEXT);
"""
COMPARED = {
    "place": "name, category, address, hours, phone, rating, accessible",
    "review": "place, author, stars, text",
    "saved": "list, place",
    "suggestion": "place, field, value",
}
NOUNS = {
    "Cafe": ("Kettle", "Bean", "Teapot", "Muffin", "Spoon", "Saucer"),
    "Restaurant": ("Fork", "Table", "Olive", "Tandoor", "Lantern", "Harvest"),
    "Hotel": ("Crown", "Swan", "Anchor", "Garden", "Palace"),
    "Pharmacy": ("Balm", "Mortar", "Remedy", "Herb"),
    "Bookshop": ("Page", "Quill", "Chapter", "Ink", "Folio"),
    "Bakery": ("Loaf", "Crust", "Oven", "Bun", "Pretzel"),
    "Library": ("Archive", "Reading Room", "Scroll"),
    "Cinema": ("Reel", "Screen", "Projector", "Curtain"),
}
ADJECTIVES = (
    "Amber", "Blue", "Copper", "Crimson", "Golden", "Green", "Happy", "Humble", "Little", "Merry", "Old", "Purple",
    "Quiet", "Royal", "Silver", "Sunny", "Velvet", "White",
)  # fmt: skip
OPINIONS = (
    "Friendly staff.",
    "Too loud for me.",
    "I will come again.",
    "A bit expensive.",
    "Clean and bright.",
    "I had to wait for a long time.",
)
AUTHORS = ("Amara", "Bruno", "Chidi", "Dalia", "Elif", "Farid", "Greta", "Hana")


class Place(NamedTuple):
    name: str
    category: str
    address: str
    corner: int
    hours: str  # opening and closing time, "9:00 to 17:00"
    phone: str  # "" if unknown
    rating: str
    accessible: str

    @property
    def closes(self) -> str:
        return self.hours.partition(" to ")[2]


class Town:
    """A town with the institutions that the encyclopedia describes in one of its cities."""

    def __init__(self, data_seed: int) -> None:
        rng = Random(child_seed(data_seed, "town"))  # content must depend only on the seed
        books = library(data_seed)
        self.city: Entry = max(
            books.by_kind["city"], key=lambda city: (len(city.facts.get("organisations", ())), city.title)
        )
        self.institutions = [books.entries[ref.page] for ref in self.city.facts["organisations"]]
        self.streets = Streets(rng)
        self.places: list[Place] = []
        corners = list(range(COLUMNS * ROWS)) * 2
        rng.shuffle(corners)
        named = [(entry.title, "Institution") for entry in self.institutions]
        for category, nouns in NOUNS.items():
            first = rng.sample(ADJECTIVES, len(nouns))
            named += [
                (f"{adjective} {noun} {category}", category) for adjective, noun in zip(first, nouns, strict=True)
            ]
        for name, category in named:
            self.places.append(self._place(rng, name, category, corners.pop()))
        self.places.sort()
        self.reviews = [
            (number, place.name, author, rng.randint(1, 5), rng.choice(OPINIONS))
            for number, (place, author) in enumerate(
                ((place, author) for place in self.places for author in rng.sample(AUTHORS, rng.randint(0, 2))), 1
            )
        ]
        mine = rng.sample(self.places, 4)
        first_number = len(self.reviews) + 1
        self.own_reviews = [
            (number, place.name, USER, rng.randint(2, 4), rng.choice(OPINIONS))
            for number, place in enumerate(mine, first_number)
        ]
        chosen = rng.sample([place.name for place in self.places], 11)
        self.saved = [
            (name, place)
            for name, part in zip(LISTS, (chosen[:3], chosen[3:8], chosen[8:]), strict=True)
            for place in part
        ]

    def _place(self, rng: Random, name: str, category: str, corner: int) -> Place:
        street = rng.choice(self.streets.corner(corner))
        along = corner % COLUMNS if street.endswith("Street") else corner // COLUMNS
        taken = {place.address for place in self.places}
        number = 1 + 20 * along + 2 * rng.randrange(8)
        while f"{number} {street}" in taken:
            number += 1
        hours = f"{rng.randint(6, 11)}:00 to {rng.randint(15, 23)}:{rng.choice(('00', '30'))}"
        phone = "" if rng.random() < 0.15 else f"555-{rng.randint(1000, 9999)}"
        rating = f"{rng.randint(21, 49) / 10:.1f}"
        return Place(name, category, f"{number} {street}", corner, hours, phone, rating, rng.choice(("yes", "no")))

    def of(self, category: str) -> list[Place]:
        return [place for place in self.places if place.category == category]

    def named(self, name: str) -> Place | None:
        """Return the place with a name, or the only one whose name contains it."""
        wanted = " ".join(name.lower().split())
        exact = [place for place in self.places if place.name.lower() == wanted]
        similar = exact or [place for place in self.places if wanted and wanted in place.name.lower()]
        return similar[0] if len(similar) == 1 else None

    def nearest(self, corner: int, category: str, *, besides: str = "") -> list[tuple[int, Place]]:
        """Return the places of a category with their distances in meters, nearest first."""
        distances = (
            (self.streets.distance(corner, place.corner), place) for place in self.of(category) if place.name != besides
        )
        return sorted(distances, key=lambda item: (item[0], item[1].name))


@lru_cache(maxsize=16)
def town(data_seed: int) -> Town:
    return Town(data_seed)


def fill(database: sqlite3.Connection, content: Town) -> None:
    insert(database, "place", content.places)
    insert(database, "review", (*content.reviews, *content.own_reviews))
    insert(database, "saved", content.saved)
