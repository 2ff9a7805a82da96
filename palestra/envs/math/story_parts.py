"""Vocabulary and helpers for word problems: people, things, counted nouns and distracting sentences."""

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
GOODS = (  # goods sold in a shop, in singular and plural
    *(("a notebook", "notebooks"), ("a lamp", "lamps"), ("a mug", "mugs"), ("a scarf", "scarves"), ("a pen", "pens")),
    *(("a towel", "towels"), ("a bowl", "bowls"), ("a kite", "kites"), ("a puzzle", "puzzles"), ("a plant", "plants")),
    *(("an umbrella", "umbrellas"), ("a candle", "candles"), ("a ball", "balls"), ("a brush", "brushes")),
)
FRACTIONS = {"half": Fraction(1, 2), "a third": Fraction(1, 3), "a quarter": Fraction(1, 4), "a fifth": Fraction(1, 5)}
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_DISTRACTORS = (
    "It is {n} degrees outside.",
    "The nearest bakery is {n} minutes away on foot.",
    "{name} lives next door, at number {n}.",
    "{name}, who is {n} years old, is watching.",
    "A clock on the wall is {n} minutes fast.",
    "The day before, {name} read {n} pages of a novel.",
    "On the way, {name} counts {n} parked cars.",
    "{name} has lived in the neighborhood for {n} years.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    kind: str
    sentences: list[str]
    question: str
    answer: Fraction


@dataclass(frozen=True, slots=True)
class Person:
    name: str
    their: str  # "her" or "his"


def people(rng: Random, count: int) -> list[Person]:
    return [Person(*person) for person in rng.sample(PEOPLE, count)]


def counted(number: int, plural: str, singular: str | None = None) -> str:
    """Return a number with its noun, such as `1 marble` or `3 marbles`."""
    return f"{number} {(singular or plural.removesuffix('s')) if number == 1 else plural}"


def joined(parts: Sequence[str]) -> str:
    """Join words with commas and "and", as in `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def distracting_sentences(rng: Random, count: int, sentences: Sequence[str]) -> list[str]:
    """Return random sentences with irrelevant numbers, about people who do not appear in the story."""
    text = " ".join(sentences)
    others = [name for name, _ in PEOPLE if name not in text]
    names = rng.sample(others, count)
    return [
        form.format(n=rng.randint(3, 40), name=name)
        for form, name in zip(rng.sample(_DISTRACTORS, count), names, strict=True)
    ]
