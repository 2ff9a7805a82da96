"""A world and a generator of chance -> a question, its answer, and the proof: the facts it rests on, page by page.

Every relation asked for has one value, so an answer is unique; what is asked without an answer (`answerable=False`)
rests on a fact that the world does not have, so no page can tell it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from palestra.envs.world.articles import MONTHS, written
from palestra.envs.world.facts import Dated, Facts, Ref, facts_of
from palestra.envs.world.kinds import KINDS
from palestra.envs.world.names import MEN, WOMEN
from palestra.envs.world.phrases import COMPARISONS, COUNTS, RELATIONS, UNKNOWN, UNTOLD, WITH_THE, Comparison, Count
from palestra.envs.world.world import Date, World
from palestra.errors import BadValue

QUESTIONS = ("1hop", "2hop", "3hop", "4hop", "compare", "count", "unanswerable")
MOST_HOPS = 4
_TRIES = 10_000  # draws before something must be wrong
_UNKNOWNS = ("not known", "not stated", "not told", "no answer", "unanswerable", "none", "nobody", "nothing", "no one")
_SHORT_UNITS = {"kilometres": ("km",), "metres": ("m",), "square kilometres": ("km2", "km²", "sq km")}
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """One fact: on the page `title`, `relation` reads `value`; an empty value: the page does not tell it."""

    page: int  # -1: there is no such page
    title: str
    relation: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about the world."""

    text: str
    answer: str
    kind: str  # one of QUESTIONS
    proof: tuple[Proof, ...]
    aliases: tuple[str, ...] = ()  # other ways to write the answer
    options: tuple[str, ...] = ()  # what the question names to choose from

    @property
    def answerable(self) -> bool:
        return self.answer != UNKNOWN

    @property
    def golds(self) -> tuple[str, ...]:
        """Everything that counts as the answer."""
        return (self.answer, *self.aliases)


def ask(world: World, rng: Random, kind: str) -> Question:
    """A question of that kind, one of QUESTIONS."""
    if kind not in _ASKERS:
        raise BadValue(f"a kind of question is one of {', '.join(QUESTIONS)}, got {kind!r}")
    for _ in range(_TRIES):
        found = _ASKERS[kind](world, rng)
        if found is not None:
            return found
    raise AssertionError(f"{world} has no question of the kind {kind}")


# Noun phrases: a page, reached by some relations from a page that is named


@dataclass(frozen=True, slots=True)
class _Reached:
    page: int
    phrase: str
    proof: tuple[Proof, ...]
    passed: frozenset[int]


def _named(world: World, page: int) -> _Reached:
    return _Reached(page, _said(world.title(page), world.kind(page)), (), frozenset([page]))


def _said(title: str, kind: str) -> str:
    return f"the {title}" if kind in WITH_THE else title


def _of_kind(world: World, rng: Random, kind: str) -> int:
    return world.page(kind, rng.randrange(world.counts[kind]))


def _anywhere(world: World, rng: Random) -> _Reached:
    return _named(world, _of_kind(world, rng, rng.choice(KINDS)))


def _told(kind: str, facts: Facts) -> list[str]:
    """The relations a page of that kind tells, in a settled order."""
    return [name for name in _BY_KIND[kind] if name in facts]


_BY_KIND: Mapping[str, tuple[str, ...]] = {
    kind: tuple(name for name, relation in RELATIONS.items() if kind in relation.kinds) for kind in KINDS
}


def _further(world: World, rng: Random, at: _Reached) -> _Reached | None:
    """One relation on, to a page not passed before."""
    kind, facts = world.kind(at.page), facts_of(world, at.page)
    ways = [
        name
        for name in _told(kind, facts)
        if RELATIONS[name].nouns and isinstance(facts[name], Ref) and facts[name].page not in at.passed
    ]
    if not ways:
        return None
    return _along(world, rng, at, rng.choice(ways), facts)


def _along(world: World, rng: Random, at: _Reached, name: str, facts: Facts) -> _Reached:
    page = facts[name].page
    phrase = rng.choice(RELATIONS[name].nouns).format(x=at.phrase)
    return _Reached(page, phrase, (*at.proof, _proof(world, at.page, name, facts[name])), at.passed | {page})


def _proof(world: World, page: int, name: str, value: Any = None) -> Proof:
    shown = "" if value is None else written(world, name, value)
    return Proof(page=page, title=world.title(page), relation=name, value=shown)


# The kinds of questions


def _hops(count: int) -> Callable[[World, Random], Question | None]:
    def asked(world: World, rng: Random) -> Question | None:
        at: _Reached | None = _anywhere(world, rng)
        for _ in range(count - 1):
            at = None if at is None else _further(world, rng, at)
        if at is None:
            return None
        kind, facts = world.kind(at.page), facts_of(world, at.page)
        ways = _told(kind, facts)
        if not ways:
            return None
        name = rng.choice(ways)
        value = facts[name]
        if isinstance(value, Ref) and value.page in at.passed:
            return None
        text = rng.choice(RELATIONS[name].asks).format(x=at.phrase)
        answer, *aliases = spellings(world, name, value)
        if answer in text:
            return None  # "In which city is the University of Brakaton?"
        proof = (*at.proof, _proof(world, at.page, name, value))
        return Question(text=text, answer=answer, aliases=tuple(aliases), kind=f"{count}hop", proof=proof)

    return asked


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
    """A page to compare: named, or described by a page that leads to it."""
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
    listed = facts.get(count.items)
    if listed is None:
        return None
    proof = (*at.proof, _proof(world, at.page, count.items, listed))
    if not count.test:
        return _counted(count.ask.format(x=at.phrase), len(listed), proof)
    pages = [item.page for item in listed]
    values = [_value(world, item, count) for item in listed]
    known = [value for value in values if value is not None]
    if not known:
        return None
    limit = _limit(rng, count, known)
    text = count.ask.format(x=at.phrase, y=written(world, count.relation, limit))
    number = sum(_passes(count, value, limit) for value in known)
    proof += tuple(_proof(world, page, count.relation, value) for page, value in zip(pages, values, strict=True))
    return _counted(text, number, proof)


def _value(world: World, item: Ref | Dated, count: Count) -> Any:
    return facts_of(world, item.page).get(count.relation)


def _limit(rng: Random, count: Count, known: Sequence[Any]) -> Any:
    """What the items are compared with: a value that one of them has, or one a little off."""
    value = rng.choice(known)
    if count.test == "is":
        return value
    return value + rng.randint(0, 5) if count.test == "before" else max(1000, value // 1000 * 1000)


def _passes(count: Count, value: Any, limit: Any) -> bool:
    if count.test == "is":
        return bool(value == limit)
    return bool(value < limit) if count.test == "before" else bool(value > limit)


def _counted(text: str, number: int, proof: tuple[Proof, ...]) -> Question:
    words = (_NUMBERS[number],) if number < len(_NUMBERS) else ()
    return Question(text=text, answer=str(number), aliases=words, kind="count", proof=proof)


def _unanswerable(world: World, rng: Random) -> Question | None:
    return rng.choice((_missing, _missing, _stranger, _untold))(world, rng)


def _missing(world: World, rng: Random) -> Question | None:
    """About a page that leaves something out."""
    at: _Reached | None = _anywhere(world, rng)
    for _ in range(rng.randrange(3)):
        at = None if at is None else _further(world, rng, at)
    if at is None:
        return None
    kind, facts = world.kind(at.page), facts_of(world, at.page)
    absent = [name for name in _BY_KIND[kind] if name not in facts]
    if not absent:
        return None
    name = rng.choice(absent)
    text = rng.choice(RELATIONS[name].asks).format(x=at.phrase)
    return _no_answer(text, (*at.proof, _proof(world, at.page, name)))


def _stranger(world: World, rng: Random) -> Question | None:
    """About somebody or something that has no page; the name is of the same making as those that do."""
    kind = rng.choice(("country", "province", "city", "river", "mountain", "person", "organisation", "event"))
    word = {"person": "family", "organisation": "city", "event": "city"}.get(kind, kind)
    name = world.unused_name(word, rng.randrange(world.stems_used))
    shapes = {"person": f"{rng.choice((*MEN, *WOMEN))} {name}", "organisation": f"University of {name}"}
    shapes |= {"event": f"Battle of {name}", "river": f"River {name}", "mountain": f"Mount {name}"}
    title = shapes.get(kind, name)
    ways = [way for way in _BY_KIND[kind] if way not in ("seat", "place")]
    text = rng.choice(RELATIONS[rng.choice(ways)].asks).format(x=_said(title, kind))
    return _no_answer(text, (Proof(page=-1, title=title, relation="", value=""),))


def _untold(world: World, rng: Random) -> Question | None:
    """About something the encyclopaedia does not tell of anybody."""
    at: _Reached | None = _anywhere(world, rng)
    if rng.random() < 0.5:
        at = None if at is None else _further(world, rng, at)
    if at is None or world.kind(at.page) not in UNTOLD:
        return None
    text = rng.choice(UNTOLD[world.kind(at.page)]).format(x=at.phrase)
    return _no_answer(text, (*at.proof, _proof(world, at.page, "untold")))


def _no_answer(text: str, proof: tuple[Proof, ...]) -> Question:
    return Question(text=text, answer=UNKNOWN, aliases=_UNKNOWNS, kind="unanswerable", proof=proof)


_ASKERS: Mapping[str, Callable[[World, Random], Question | None]] = {
    **{f"{count}hop": _hops(count) for count in range(1, MOST_HOPS + 1)},
    "compare": _compare,
    "count": _count,
    "unanswerable": _unanswerable,
}


def spellings(world: World, name: str, value: Any) -> list[str]:
    """The answer, then other ways to write it; a grader forgives case, articles and punctuation by itself."""
    shown = written(world, name, value)
    if isinstance(value, Ref):
        bare = shown.removeprefix("River ").removeprefix("Mount ")
        return [shown] if bare == shown else [shown, bare, f"{bare} River" if "River" in shown else f"{bare} mountain"]
    if isinstance(value, Date):
        year, month, day = value
        name, nth = MONTHS[month - 1], f"{day}{_nth(day)}"
        spelt = [f"{name} {day} {year}", f"{day:02} {name} {year}", f"{name} {day:02} {year}"]
        spelt += [f"{day} {name[:3]} {year}", f"{name[:3]} {day} {year}", f"{nth} {name} {year}"]
        return [shown, *spelt, f"{name} {nth} {year}", f"{nth} of {name} {year}", f"{year}-{month:02}-{day:02}"]
    unit = RELATIONS[name].unit if name in RELATIONS else ""
    if unit:
        units = [unit, unit.replace("metres", "meters"), *_SHORT_UNITS.get(unit, ())]
        return [shown, *dict.fromkeys(f"{shown} {one}" for one in units)]
    return [shown]


def _nth(day: int) -> str:
    return {1: "st", 2: "nd", 3: "rd"}.get(day % 10 if day not in (11, 12, 13) else 0, "th")
