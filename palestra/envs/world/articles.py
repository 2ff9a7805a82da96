"""A page -> its article: sentences that tell its facts, with links to the pages they name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from palestra.envs.world.facts import Dated, Facts, Ref, facts_of
from palestra.envs.world.prose import FILLERS, GROUPS, LEADS, Group
from palestra.envs.world.world import Date, World

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_LINK = re.compile(r"\[\[(.*?)\]\]")
_SLOT = re.compile(r"\{(\w+)\}")
_HE = {"he": "he", "He": "He", "his": "his", "His": "His", "him": "him"}
_SHE = {"he": "she", "He": "She", "his": "her", "His": "Her", "him": "her"}
# What every page can fill in; a tier is told by the slots beyond these.
_ALWAYS = frozenset({"name", "surname", *_HE})
YEARS = frozenset({"founded_year", "year", "first_climbed"})  # numbers written without a comma


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """One page, as it reads."""

    page: int
    title: str
    kind: str
    marked: str  # the text with its links as [[Title]]

    @property
    def text(self) -> str:
        """For reading and searching."""
        return self.marked.replace("[[", "").replace("]]", "")

    @property
    def links(self) -> tuple[str, ...]:
        """The titles of the pages it leads to, each once, in order."""
        return tuple(dict.fromkeys(_LINK.findall(self.marked)))


def article_of(world: World, page: int) -> Article:
    """What the encyclopaedia says on that page."""
    kind = world.kind(page)
    facts = facts_of(world, page)
    drawn = world.drawn("wording", page)
    title = world.title(page)
    filled = _filled(world, facts, title)
    lead, *rest = _sentences(kind, filled, drawn)
    rest.append(_said(FILLERS[kind][drawn[60] % len(FILLERS[kind])], filled))
    if drawn[61] & 1:
        other = _said(FILLERS[kind][(drawn[60] + 1 + drawn[62] % 2) % len(FILLERS[kind])], filled)
        rest.append(other)
    if len(rest) > 1:  # the order is drawn, too
        turn = drawn[63] % len(rest)
        rest = rest[turn:] + rest[:turn]
        if drawn[59] & 1:
            rest.reverse()
    return Article(page=page, title=title, kind=kind, marked=" ".join([lead, *rest]))


def _sentences(kind: str, filled: Mapping[str, str], drawn: bytes) -> Iterator[str]:
    for place, group in enumerate((LEADS[kind], *GROUPS[kind])):
        tier = _tier(group, filled)
        if tier is not None:
            yield _said(tier[drawn[place] % len(tier)], filled)


def _said(sentence: str, filled: Mapping[str, str]) -> str:
    said = sentence.format_map(filled)
    return said[0].upper() + said[1:]


def _tier(group: Group, filled: Mapping[str, str]) -> tuple[str, ...] | None:
    """The first that can be filled."""
    for tier in group:
        if _needs(tier[0]) <= filled.keys():
            return tier
    return None


_known_needs: dict[str, frozenset[str]] = {}


def _needs(sentence: str) -> frozenset[str]:
    found = _known_needs.get(sentence)
    if found is None:
        found = _known_needs[sentence] = frozenset(_SLOT.findall(sentence)) - _ALWAYS
    return found


def _filled(world: World, facts: Facts, title: str) -> dict[str, str]:
    filled = {name: written(world, name, value, link=True) for name, value in facts.items()}
    filled["name"] = title
    for name in ("type", "occupation"):
        if name in filled:
            filled[f"a_{name}"] = with_article(filled[name])
    if "woman" in facts:
        filled |= _SHE if facts["woman"] else _HE
    return filled


def with_article(word: str) -> str:
    """ "a novel", "an atlas"; what is spoken with a leading consonant keeps its "a"."""
    return f"{'an' if word[0] in 'aeio' or word == 'uprising' else 'a'} {word}"


def written(world: World, name: str, value: Any, *, link: bool = False) -> str:
    """A fact's value as articles and answers write it."""
    if isinstance(value, str):
        return value
    if isinstance(value, Ref):
        return f"[[{world.title(value.page)}]]" if link else world.title(value.page)
    if isinstance(value, Dated):
        return f"{written(world, name, Ref(value.page), link=link)} ({value.year})"
    if isinstance(value, Date):
        return f"{value.day} {MONTHS[value.month - 1]} {value.year}"
    if isinstance(value, tuple):
        return listed(written(world, name, one, link=link) for one in value)
    return str(value) if name in YEARS else f"{value:,}"


def listed(items: Iterable[str]) -> str:
    """ "a, b and c" """
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last
