"""Templates for questions about relations, comparisons and counts, and for noun phrases.

The module `questions` fills in the templates, and `solver` parses them. `{x}` is a title or a noun phrase.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """Templates for a relation that is stated on pages of the given `kinds`."""

    kinds: tuple[str, ...]
    questions: tuple[str, ...]
    nouns: tuple[str, ...] = ()  # noun phrases; only for relations whose value is a page
    unit: str = ""


RELATIONS: Mapping[str, Relation] = {
    # people
    "birth_city": Relation(
        kinds=("person",),
        questions=("Where was {x} born?", "In which city was {x} born?", "What is the birthplace of {x}?"),
        nouns=("the birthplace of {x}", "the city where {x} was born"),
    ),
    "death_city": Relation(
        kinds=("person",),
        questions=("Where did {x} die?", "In which city did {x} die?"),
        nouns=("the city where {x} died",),
    ),
    "father": Relation(
        kinds=("person",), questions=("Who was the father of {x}?",), nouns=("the father of {x}",)
    ),
    "mother": Relation(
        kinds=("person",), questions=("Who was the mother of {x}?",), nouns=("the mother of {x}",)
    ),
    "spouse": Relation(
        kinds=("person",),
        questions=("Who was the spouse of {x}?", "To whom was {x} married?"),
        nouns=("the spouse of {x}", "the person married to {x}"),
    ),
    "teacher": Relation(
        kinds=("person",),
        questions=("Who was the teacher of {x}?", "By whom was {x} taught?"),
        nouns=("the teacher of {x}",),
    ),
    "university": Relation(
        kinds=("person",),
        questions=("Where did {x} study?", "Which university did {x} attend?"),
        nouns=("the university attended by {x}", "the university where {x} studied"),
    ),
    "organisation": Relation(
        kinds=("person",),
        questions=("What did {x} found?", "Which organization was founded by {x}?"),
        nouns=("the organization founded by {x}",),
    ),
    "birth_date": Relation(kinds=("person",), questions=("When was {x} born?", "On which date was {x} born?")),
    "death_date": Relation(kinds=("person",), questions=("When did {x} die?", "On which date did {x} die?")),
    "occupation": Relation(
        kinds=("person",), questions=("What was the profession of {x}?", "Which profession did {x} have?")
    ),
    # works
    "creator": Relation(
        kinds=("work",), questions=("Who is the author of {x}?", "Who created {x}?"),
        nouns=("the author of {x}", "the person who created {x}"),
    ),
    "setting": Relation(
        kinds=("work",), questions=("In which city is {x} set?", "Where is {x} set?"),
        nouns=("the city in which {x} is set", "the setting of {x}"),
    ),
    "patron": Relation(
        kinds=("work",), questions=("Who commissioned {x}?", "By which organization was {x} commissioned?"),
        nouns=("the organization that commissioned {x}",),
    ),
    "dedicatee": Relation(
        kinds=("work",), questions=("To whom is {x} dedicated?",), nouns=("the person to whom {x} is dedicated",)
    ),
    "year": Relation(kinds=("work",), questions=("In which year was {x} completed?", "When was {x} completed?")),
    "type": Relation(kinds=("work",), questions=("What type of work is {x}?",)),
    # organizations
    "founder": Relation(
        kinds=("organisation",), questions=("Who founded {x}?", "By whom was {x} founded?"),
        nouns=("the founder of {x}", "the person who founded {x}"),
    ),
    "seat": Relation(
        kinds=("organisation",), questions=("In which city does {x} have its seat?",),
        nouns=("the city that is home to {x}",),
    ),
    "founded_year": Relation(
        kinds=("organisation", "city", "country"), questions=("When was {x} founded?", "In which year was {x} founded?")
    ),
    "members": Relation(kinds=("organisation",), questions=("How many members does {x} have?",), unit="members"),
    # events
    "leader": Relation(
        kinds=("event",), questions=("Who led {x}?", "Who was the leading figure of {x}?"), nouns=("the leader of {x}",)
    ),
    "place": Relation(
        kinds=("event",), questions=("In which city did {x} take place?",), nouns=("the city where {x} took place",)
    ),
    "date": Relation(kinds=("event",), questions=("When did {x} begin?", "On which date did {x} begin?")),
    "days": Relation(kinds=("event",), questions=("How many days did {x} last?",), unit="days"),
    # places
    "province": Relation(
        kinds=("city",), questions=("In which province is {x}?", "To which province does {x} belong?"),
        nouns=("the province to which {x} belongs", "the province that contains {x}"),
    ),
    "river": Relation(
        kinds=("city",), questions=("Which river flows through {x}?",), nouns=("the river that flows through {x}",)
    ),
    "twin": Relation(
        kinds=("city",), questions=("What is the twin city of {x}?", "Which city is twinned with {x}?"),
        nouns=("the twin city of {x}", "the city twinned with {x}"),
    ),
    "event": Relation(
        kinds=("city",), questions=("Which event took place in {x}?",), nouns=("the event that took place in {x}",)
    ),
    "population": Relation(
        kinds=("city",), questions=("How many inhabitants does {x} have?", "What is the population of {x}?"),
        unit="inhabitants",
    ),
    "elevation": Relation(kinds=("city",), questions=("How many metres above the sea is {x}?",), unit="metres"),
    "trade": Relation(kinds=("city",), questions=("Which goods did {x} trade in?",)),
    "country": Relation(
        kinds=("province", "river", "mountain"), questions=("In which country is {x}?", "Which country is {x} in?"),
        nouns=("the country of {x}", "the country in which {x} is found"),
    ),
    "capital": Relation(
        kinds=("country", "province"), questions=("What is the capital of {x}?", "Which city is the capital of {x}?"),
        nouns=("the capital of {x}",),
    ),
    "area": Relation(
        kinds=("country", "province"),
        questions=("How many square kilometres does {x} cover?", "What is the area of {x}?"),
        unit="square kilometres",
    ),
    "product": Relation(kinds=("province",), questions=("Which product is {x} known for?",)),
    "language": Relation(
        kinds=("country",), questions=("What is the language of {x}?", "Which language is spoken in {x}?")
    ),
    "currency": Relation(
        kinds=("country",), questions=("What is the currency of {x}?", "What do people pay with in {x}?")
    ),
    "government": Relation(kinds=("country",), questions=("What form of government does {x} have?",)),
    "longest_river": Relation(
        kinds=("country",), questions=("What is the longest river of {x}?",), nouns=("the longest river of {x}",)
    ),
    "highest_mountain": Relation(
        kinds=("country",), questions=("What is the highest mountain of {x}?",), nouns=("the highest mountain of {x}",)
    ),
    "length": Relation(
        kinds=("river",),
        questions=("How many kilometres long is {x}?", "What is the length of {x}?"), unit="kilometres"
    ),
    "source": Relation(
        kinds=("river",), questions=("On which mountain does {x} rise?", "Where is the source of {x}?"),
        nouns=("the mountain on which {x} rises",),
    ),
    "height": Relation(
        kinds=("mountain",), questions=("How many metres high is {x}?", "What is the height of {x}?"), unit="metres"
    ),
    "first_climber": Relation(
        kinds=("mountain",), questions=("Who was the first to climb {x}?", "By whom was {x} first climbed?"),
        nouns=("the first person to climb {x}",),
    ),
    "first_climbed": Relation(kinds=("mountain",), questions=("In which year was {x} first climbed?",)),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Templates for questions that compare two pages of the same kind by a relation."""

    kind: str
    relation: str
    most: str
    least: str


COMPARISONS: tuple[Comparison, ...] = (
    Comparison(
        kind="person",
        relation="birth_date",
        most="Who was born later, {a} or {b}?",
        least="Who was born earlier, {a} or {b}?",
    ),
    Comparison(
        kind="work",
        relation="year",
        most="Which was completed later, {a} or {b}?",
        least="Which was completed earlier, {a} or {b}?",
    ),
    Comparison(
        kind="river", relation="length", most="Which is longer, {a} or {b}?", least="Which is shorter, {a} or {b}?"
    ),
    Comparison(
        kind="mountain", relation="height", most="Which is higher, {a} or {b}?", least="Which is lower, {a} or {b}?"
    ),
    Comparison(
        kind="city",
        relation="population",
        most="Which has more inhabitants, {a} or {b}?",
        least="Which has fewer inhabitants, {a} or {b}?",
    ),
    Comparison(
        kind="organisation",
        relation="founded_year",
        most="Which was founded later, {a} or {b}?",
        least="Which was founded earlier, {a} or {b}?",
    ),
    Comparison(
        kind="organisation",
        relation="members",
        most="Which has more members, {a} or {b}?",
        least="Which has fewer members, {a} or {b}?",
    ),
    Comparison(
        kind="province", relation="area", most="Which is larger, {a} or {b}?", least="Which is smaller, {a} or {b}?"
    ),
    Comparison(
        kind="event",
        relation="days",
        most="Which lasted longer, {a} or {b}?",
        least="Which was over sooner, {a} or {b}?",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Template for questions that count the items of a list, or only the items that pass a test."""

    kind: str
    items: str  # name of the relation that lists the items
    question: str
    relation: str = ""  # relation of an item whose value is tested
    test: str = ""  # comparison of the value with {y} in the question: "is", "before" or "over"


COUNTS: tuple[Count, ...] = (
    Count(kind="person", items="children", question="How many children did {x} have?"),
    Count(kind="person", items="works", question="How many works did {x} leave?"),
    Count(kind="river", items="cities", question="How many cities does {x} pass?"),
    Count(kind="province", items="cities", question="How many cities are there in {x}?"),
    Count(kind="country", items="provinces", question="Into how many provinces is {x} divided?"),
    Count(
        kind="person",
        items="works",
        relation="year",
        test="before",
        question="How many works did {x} complete before {y}?",
    ),
    Count(
        kind="person",
        items="works",
        relation="type",
        test="is",
        question="How many of the works of {x} are of the type {y}?",
    ),
    Count(
        kind="person",
        items="children",
        relation="birth_city",
        test="is",
        question="How many of the children of {x} were born in {y}?",
    ),
    Count(
        kind="person",
        items="children",
        relation="occupation",
        test="is",
        question="How many of the children of {x} had the profession of {y}?",
    ),
    Count(
        kind="province",
        items="cities",
        relation="population",
        test="over",
        question="How many of the cities of {x} have more than {y} inhabitants?",
    ),
    Count(
        kind="river",
        items="cities",
        relation="founded_year",
        test="before",
        question="How many of the cities passed by {x} were founded before {y}?",
    ),
)

UNKNOWN = "unknown"
WITH_THE = ("organisation", "event", "river")  # kinds of pages whose titles are preceded by "the"
