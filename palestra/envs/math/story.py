"""What stories are told with: people, things, counted nouns, and sentences that do not matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

PEOPLE = (
    *((name, "her") for name in ("Mia", "Lena", "Amara", "Nora", "Zoe", "Ines", "Priya", "Ruth", "Hana", "Clara")),
    *((name, "his") for name in ("Ben", "Omar", "Felix", "Jonas", "Ravi", "Hugo", "Ivan", "Theo", "Paul", "Kofi")),
)
SMALL_THINGS = (
    *("marbles", "stickers", "shells", "stamps", "beads", "buttons", "postcards", "pencils", "pebbles", "badges"),
    *("acorns", "coins", "comics", "feathers", "tokens", "balloons", "crayons", "walnuts", "chestnuts", "ribbons"),
)
GOODS = (  # what a shop sells, one and several
    *(("a notebook", "notebooks"), ("a lamp", "lamps"), ("a mug", "mugs"), ("a scarf", "scarves"), ("a pen", "pens")),
    *(("a towel", "towels"), ("a bowl", "bowls"), ("a kite", "kites"), ("a puzzle", "puzzles"), ("a plant", "plants")),
    *(("an umbrella", "umbrellas"), ("a candle", "candles"), ("a ball", "balls"), ("a brush", "brushes")),
)
FRACTIONS = {"half": Fraction(1, 2), "a third": Fraction(1, 3), "a quarter": Fraction(1, 4), "a fifth": Fraction(1, 5)}
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_ASIDES = (
    "It is {n} degrees outside.",
    "The nearest bakery is {n} minutes away on foot.",
    "{name} lives next door, at number {n}.",
    "{name}, who is {n} years old, watches.",
    "A clock on the wall is {n} minutes fast.",
    "The day before, {name} read {n} pages of a novel.",
    "On the way, {name} counts {n} parked cars.",
    "{name} has been a neighbour for {n} years.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    kind: str
    sentences: list[str]  # in the order in which they are told
    question: str
    answer: Fraction


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    their: str  # "her" or "his"


def people(rng: Random, count: int) -> list[Person]:
    return [Person(*drawn) for drawn in rng.sample(PEOPLE, count)]


def counted(number: int, plural: str, singular: str | None = None) -> str:
    """`1 marble`, `3 marbles`."""
    return f"{number} {(singular or plural.removesuffix('s')) if number == 1 else plural}"


def listed(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def asides(rng: Random, count: int, told: Sequence[str]) -> list[str]:
    """Sentences with numbers that have no bearing on a story, about people who are not in it."""
    text = " ".join(told)
    others = [name for name, _ in PEOPLE if name not in text]
    names = rng.sample(others, count)
    return [
        form.format(n=rng.randint(3, 40), name=name)
        for form, name in zip(rng.sample(_ASIDES, count), names, strict=True)
    ]
