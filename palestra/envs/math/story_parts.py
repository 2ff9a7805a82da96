"""Vocabulary and helpers for word problems: people, things, counted nouns and distracting sentences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
EXACT = "Give the exact value, as a fraction if necessary."

_vocabulary: set[str] = set()


def vocabulary(*words: str) -> tuple[str, ...]:
    """Return words that can replace each other in a story; templates contain placeholders for them.

    Call this function only when a module is imported, so that templates never depend on earlier stories.
    """
    for word in " ".join(words).split():
        _vocabulary.update((word, word.removesuffix("s")))
    return words


vocabulary(*(name for name, _ in PEOPLE), *SMALL_THINGS, *DAYS, *(word for _, word in GOODS), "her", "his")
vocabulary(*(word.split()[1] for word, _ in GOODS), "a third", "a quarter", "a fifth", "half")


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A word problem without distracting sentences."""

    kind: str
    sentences: list[str]
    question: str
    answer: Fraction
    facts: Mapping[str, int] = field(default_factory=dict)  # numbers from which the answer follows

    @classmethod
    def of(cls, kind: str, sentences: list[str], question: str, answer: Fraction | int, **facts: int) -> Story:
        return cls(kind=kind, sentences=sentences, question=question, answer=Fraction(answer), facts=facts)

    @property
    def template(self) -> str:
        """The text with placeholders instead of numbers, names and other interchangeable words."""
        words = re.findall(r"\w+|[^\w\s]", f"{' '.join(self.sentences)} {self.question}")
        masked = " ".join("_" if word in _vocabulary or word[0].isdigit() else word for word in words)
        return f"{self.kind}: {re.sub('_( _)+', '_', masked)}"


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
