"""Generate random questions about a world, with answers and proofs. A proof lists the facts the answer depends on.

Every relation has one value, so answers are unique. Unanswerable questions depend on a fact that does not exist in the
world, so no page states it; they are worded in the same way as answerable questions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from palestra.envs.world.articles import MONTHS, format_value
from palestra.envs.world.facts import Dated, Facts, Ref, facts_of
from palestra.envs.world.kinds import KINDS
from palestra.envs.world.names import MEN, WOMEN
from palestra.envs.world.phrases import (
    COMPARISONS,
    COUNTS,
    RELATIONS,
    UNKNOWN,
    WITH_THE,
    Comparison,
    Count,
)
from palestra.envs.world.world import Date, World
from palestra.errors import BadValue

QUESTIONS = ("1hop", "2hop", "3hop", "4hop", "compare", "count", "unanswerable")
MAX_HOPS = 4
_TRIES = 10_000  # maximum number of attempts to generate a question
_TRIES_PER_FORM = 100  # maximum number of attempts to generate an answerable question with a given form
_UNKNOWNS = ("not known", "not stated", "not told", "no answer", "unanswerable", "none", "nobody", "nothing", "no one")
_KEPT = {1: 0.5, 2: 0.3}  # fraction of the counting questions with this answer that are kept
_SHORT_UNITS = {"kilometres": ("km",), "metres": ("m",), "square kilometres": ("km2", "km²", "sq km")}
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The value that the page `title` states for `relation`. An empty value means that the page states none."""

    page: int  # -1 if there is no such page
    title: str
    relation: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about a world."""

    text: str
    answer: str
    kind: str  # one of QUESTIONS
    proof: tuple[Proof, ...]
    aliases: tuple[str, ...] = ()  # other accepted spellings of the answer
    options: tuple[str, ...] = ()  # the choices mentioned in the question

    @property
    def answerable(self) -> bool:
        return self.answer != UNKNOWN

    @property
    def golds(self) -> tuple[str, ...]:
        """All accepted answers."""
        return (self.answer, *self.aliases)


def draw_question(world: World, rng: Random, kind: str) -> Question:
    """Return a random question of a kind in QUESTIONS.

    For kind "answerable", the question has an answer and the same form as unanswerable questions.
    """
    if kind not in _GENERATORS:
        raise BadValue(f"`kind` must be one of {', '.join(QUESTIONS)}; got {kind!r}")
    for _ in range(_TRIES):
        question = _GENERATORS[kind](world, rng)
        if question is not None:
            return question
    raise AssertionError(f"{world} has no question of kind {kind}")


# Noun phrases, which describe a page by following relations from a named page


@dataclass(frozen=True, slots=True)
class _Reached:
    page: int
    phrase: str
    proof: tuple[Proof, ...]
    visited: frozenset[int]


def _named(world: World, page: int) -> _Reached:
    return _Reached(page, _with_the(world.title(page), world.kind(page)), (), frozenset([page]))


def _with_the(title: str, kind: str) -> str:
    return f"the {title}" if kind in WITH_THE else title


def _of_kind(world: World, rng: Random, kind: str) -> int:
    return world.page(kind, rng.randrange(world.counts[kind]))


def _anywhere(world: World, rng: Random) -> _Reached:
    return _named(world, _of_kind(world, rng, rng.choice(KINDS)))


def _stated(kind: str, facts: Facts) -> list[str]:
    """Return the names of the relations that a page states, in a fixed order."""
    return [name for name in _BY_KIND[kind] if name in facts]


_BY_KIND: Mapping[str, tuple[str, ...]] = {
    kind: tuple(name for name, relation in RELATIONS.items() if kind in relation.kinds) for kind in KINDS
}


def _further(world: World, rng: Random, at: _Reached) -> _Reached | None:
    """Follow a random relation to a page that was not visited before, or return None if there is no such page."""
    kind, facts = world.kind(at.page), facts_of(world, at.page)
    relations = [
        name
        for name in _stated(kind, facts)
        if RELATIONS[name].nouns and isinstance(facts[name], Ref) and facts[name].page not in at.visited
    ]
    if not relations:
        return None
    return _follow(world, rng, at, rng.choice(relations), facts)


def _follow(world: World, rng: Random, at: _Reached, name: str, facts: Facts) -> _Reached:
    page = facts[name].page
    phrase = rng.choice(RELATIONS[name].nouns).format(x=at.phrase)
    return _Reached(page, phrase, (*at.proof, _proof(world, at.page, name, facts[name])), at.visited | {page})


def _proof(world: World, page: int, name: str, value: Any = None) -> Proof:
    text = "" if value is None else format_value(world, name, value)
    return Proof(page=page, title=world.title(page), relation=name, value=text)


# Kinds of questions


def _hops(count: int) -> Callable[[World, Random], Question | None]:
    def generate(world: World, rng: Random) -> Question | None:
        at = _walk(world, rng, count - 1)
        if at is None:
            return None
        relations = _stated(world.kind(at.page), facts_of(world, at.page))
        return _ask(world, rng, at, rng.choice(relations)) if relations else None

    return generate


def _walk(world: World, rng: Random, steps: int) -> _Reached | None:
    """Follow `steps` random relations from a random page; return None if that is impossible."""
    at: _Reached | None = _anywhere(world, rng)
    for _ in range(steps):
        at = None if at is None else _further(world, rng, at)
    return at


def _ask(world: World, rng: Random, at: _Reached, name: str) -> Question | None:
    """Return a question about a relation that the page states, or None if the answer would be trivial."""
    value = facts_of(world, at.page)[name]
    if isinstance(value, Ref) and value.page in at.visited:
        return None
    text = rng.choice(RELATIONS[name].questions).format(x=at.phrase)
    answer, *aliases = spellings(world, name, value)
    if answer in text:
        return None  # the question would contain its answer, as in "In which city is the University of Brakaton?"
    proof = (*at.proof, _proof(world, at.page, name, value))
    return Question(text=text, answer=answer, aliases=tuple(aliases), kind=f"{len(proof)}hop", proof=proof)


def _compare(world: World, rng: Random) -> Question | None:
    comparison = rng.choice(COMPARISONS)
    pair = [_subject(world, rng, comparison) for _ in range(2)]
    one, other = pair
    if one is None or other is None or one.page == other.page:
        return None
    name = comparison.relation
    values = [facts_of(world, at.page)[name] for at in (one, other)]
    if values[0] == values[1]:
        return None
    most = rng.random() < 0.5
    text = (comparison.most if most else comparison.least).format(a=one.phrase, b=other.phrase)
    winner = one if (values[0] > values[1]) == most else other
    answer, *aliases = spellings(world, "", Ref(winner.page))
    proof = [*one.proof, *other.proof]
    proof += [_proof(world, at.page, name, value) for at, value in zip((one, other), values, strict=True)]
    options = (world.title(one.page), world.title(other.page))
    return Question(
        text=text, answer=answer, aliases=tuple(aliases), kind="compare", proof=tuple(proof), options=options
    )


def _subject(world: World, rng: Random, comparison: Comparison) -> _Reached | None:
    """Return a random page to compare, either named directly or described by a relation, or None."""
    if rng.random() < 0.5:
        return _named(world, _of_kind(world, rng, comparison.kind))
    at = _further(world, rng, _anywhere(world, rng))
    return at if at is not None and world.kind(at.page) == comparison.kind else None


def _count(world: World, rng: Random) -> Question | None:
    count = rng.choice(COUNTS)
    if rng.random() < 0.5:
        at: _Reached | None = _named(world, _of_kind(world, rng, count.kind))
    else:
        at = _further(world, rng, _anywhere(world, rng))
    if at is None or world.kind(at.page) != count.kind:
        return None
    facts = facts_of(world, at.page)
    items = facts.get(count.items)
    if items is None:
        return None
    proof = (*at.proof, _proof(world, at.page, count.items, items))
    if not count.test:
        if not _is_kept(rng, len(items)):
            return None
        return _counted(count.question.format(x=at.phrase), len(items), proof)
    pages = [item.page for item in items]
    values = [_value(world, item, count) for item in items]
    values_stated = [value for value in values if value is not None]
    if not values_stated:
        return None
    limit = _limit(rng, count, values_stated)
    text = count.question.format(x=at.phrase, y=format_value(world, count.relation, limit))
    number = sum(_passes(count, value, limit) for value in values_stated)
    if not _is_kept(rng, number):
        return None
    proof += tuple(_proof(world, page, count.relation, value) for page, value in zip(pages, values, strict=True))
    return _counted(text, number, proof)


def _value(world: World, item: Ref | Dated, count: Count) -> Any:
    return facts_of(world, item.page).get(count.relation)


def _limit(rng: Random, count: Count, values: Sequence[Any]) -> Any:
    """Return a random value to compare the items with, equal or close to one item's value."""
    value = rng.choice(values)
    if count.test == "is":
        return value
    return value + rng.randint(0, 5) if count.test == "before" else max(1000, value // 1000 * 1000)


def _passes(count: Count, value: Any, limit: Any) -> bool:
    if count.test == "is":
        return bool(value == limit)
    return bool(value < limit) if count.test == "before" else bool(value > limit)


def _is_kept(rng: Random, number: int) -> bool:
    """Return whether to keep a question with this answer; small numbers would otherwise be most of the answers."""
    return rng.random() < _KEPT.get(number, 1.0)


def _counted(text: str, number: int, proof: tuple[Proof, ...]) -> Question:
    words = (_NUMBERS[number],) if number < len(_NUMBERS) else ()
    return Question(text=text, answer=str(number), aliases=words, kind="count", proof=proof)


def _unanswerable(world: World, rng: Random) -> Question | None:
    return rng.choice((_missing_fact, _missing_fact, _missing_page))(world, rng)


def _answerable(world: World, rng: Random) -> Question | None:
    """Return an answerable question about the same relation and with as many hops as a random unanswerable one."""
    unanswerable = draw_question(world, rng, "unanswerable")
    name = unanswerable.proof[-1].relation
    for _ in range(_TRIES_PER_FORM):
        if len(unanswerable.proof) == 1:
            at: _Reached | None = _named(world, _of_kind(world, rng, rng.choice(RELATIONS[name].kinds)))
        else:
            at = _walk(world, rng, len(unanswerable.proof) - 1)
        if at is not None and name in _stated(world.kind(at.page), facts_of(world, at.page)):
            question = _ask(world, rng, at, name)
            if question is not None:
                return question
    return None


def _missing_fact(world: World, rng: Random) -> Question | None:
    """Return a question about a fact that the page does not state."""
    at = _walk(world, rng, rng.randrange(3))
    if at is None:
        return None
    kind, facts = world.kind(at.page), facts_of(world, at.page)
    absent = [name for name in _BY_KIND[kind] if name not in facts]
    if not absent:
        return None
    name = rng.choice(absent)
    text = rng.choice(RELATIONS[name].questions).format(x=at.phrase)
    return _no_answer(text, (*at.proof, _proof(world, at.page, name)))


def _missing_page(world: World, rng: Random) -> Question | None:
    """Return a question about an entity that has no page. Its name is generated like the names of other entities."""
    kind = rng.choice(("country", "province", "city", "river", "mountain", "person", "organisation", "event"))
    word = {"person": "family", "organisation": "city", "event": "city"}.get(kind, kind)
    name = world.unused_name(word, rng.randrange(world.stems_used))
    shapes = {"person": f"{rng.choice((*MEN, *WOMEN))} {name}", "organisation": f"University of {name}"}
    shapes |= {"event": f"Battle of {name}", "river": f"River {name}", "mountain": f"Mount {name}"}
    title = shapes.get(kind, name)
    relation = rng.choice([name for name in _BY_KIND[kind] if name not in ("seat", "place")])
    text = rng.choice(RELATIONS[relation].questions).format(x=_with_the(title, kind))
    return _no_answer(text, (Proof(page=-1, title=title, relation=relation, value=""),))


def _no_answer(text: str, proof: tuple[Proof, ...]) -> Question:
    return Question(text=text, answer=UNKNOWN, aliases=_UNKNOWNS, kind="unanswerable", proof=proof)


_GENERATORS: Mapping[str, Callable[[World, Random], Question | None]] = {
    **{f"{count}hop": _hops(count) for count in range(1, MAX_HOPS + 1)},
    "compare": _compare,
    "count": _count,
    "unanswerable": _unanswerable,
    "answerable": _answerable,
}


def spellings(world: World, name: str, value: Any) -> list[str]:
    """Return the answer and its alternative spellings. The grader already ignores case, articles and punctuation."""
    shown = format_value(world, name, value)
    if isinstance(value, Ref):
        bare = shown.removeprefix("River ").removeprefix("Mount ")
        return [shown] if bare == shown else [shown, bare, f"{bare} River" if "River" in shown else f"{bare} mountain"]
    if isinstance(value, Date):
        year, month, day = value
        name, nth = MONTHS[month - 1], f"{day}{_nth(day)}"
        spelled = [f"{name} {day} {year}", f"{day:02} {name} {year}", f"{name} {day:02} {year}"]
        spelled += [f"{day} {name[:3]} {year}", f"{name[:3]} {day} {year}", f"{nth} {name} {year}"]
        return [shown, *spelled, f"{name} {nth} {year}", f"{nth} of {name} {year}", f"{year}-{month:02}-{day:02}"]
    unit = RELATIONS[name].unit if name in RELATIONS else ""
    if unit:
        units = [unit, unit.replace("metres", "meters"), *_SHORT_UNITS.get(unit, ())]
        return [shown, *dict.fromkeys(f"{shown} {one}" for one in units)]
    return [shown]


def _nth(day: int) -> str:
    return {1: "st", 2: "nd", 3: "rd"}.get(day % 10 if day not in (11, 12, 13) else 0, "th")
