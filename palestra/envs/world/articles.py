"""Generate the article for a page. Its sentences state the page's facts and link to the pages they mention."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from palestra.envs.world.facts import Dated, Facts, Ref, facts_of
from palestra.envs.world.fillers import FILLERS
from palestra.envs.world.prose import GROUPS, LEADS, Group
from palestra.envs.world.world import Date, World

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_LINK = re.compile(r"\[\[(.*?)\]\]")
_SLOT = re.compile(r"\{(\w+)\}")
_HE = {"he": "he", "He": "He", "his": "his", "His": "His", "him": "him"}
_SHE = {"he": "she", "He": "She", "his": "her", "His": "Her", "him": "her"}
# Slots that can be filled for every page. The other slots in a tier determine whether the tier can be used.
_ALWAYS = frozenset({"name", "surname", *_HE})
YEARS = frozenset({"founded_year", "year", "first_climbed"})  # these numbers are formatted without thousands separators


@dataclass(frozen=True, slots=True, kw_only=True)
class Article:
    """The article for one page."""

    page: int
    title: str
    kind: str
    markup: str  # the text with links as [[Title]]

    @property
    def text(self) -> str:
        """The text without link markup."""
        return self.markup.replace("[[", "").replace("]]", "")

    @property
    def links(self) -> tuple[str, ...]:
        """Titles of the linked pages, without duplicates, ordered by first link."""
        return tuple(dict.fromkeys(_LINK.findall(self.markup)))


def article_of(world: World, page: int) -> Article:
    """Generate the article for a page."""
    kind = world.kind(page)
    facts = facts_of(world, page)
    drawn = world.random_bytes("wording", page)
    title = world.title(page)
    slots = _slot_values(world, facts, title)
    lead, *rest = _sentences(kind, slots, drawn)
    rest.append(_fill(FILLERS[kind][drawn[60] % len(FILLERS[kind])], slots))
    if drawn[61] & 1:
        other = _fill(FILLERS[kind][(drawn[60] + 1 + drawn[62] % 2) % len(FILLERS[kind])], slots)
        rest.append(other)
    if len(rest) > 1:  # randomize the order of the sentences after the first
        shift = drawn[63] % len(rest)
        rest = rest[shift:] + rest[:shift]
        if drawn[59] & 1:
            rest.reverse()
    return Article(page=page, title=title, kind=kind, markup=" ".join([lead, *rest]))


def _sentences(kind: str, slots: Mapping[str, str], drawn: bytes) -> Iterator[str]:
    for index, group in enumerate((LEADS[kind], *GROUPS[kind])):
        tier = _tier(group, slots)
        if tier is not None:
            yield _fill(tier[drawn[index] % len(tier)], slots)


def _fill(sentence: str, slots: Mapping[str, str]) -> str:
    text = sentence.format_map(slots)
    return text[0].upper() + text[1:]


def _tier(group: Group, slots: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the first tier whose slots can all be filled, or None."""
    for tier in group:
        if _needs(tier[0]) <= slots.keys():
            return tier
    return None


_needs_cache: dict[str, frozenset[str]] = {}


def _needs(sentence: str) -> frozenset[str]:
    """Return the slots in a sentence for which some pages have no value."""
    needs = _needs_cache.get(sentence)
    if needs is None:
        needs = _needs_cache[sentence] = frozenset(_SLOT.findall(sentence)) - _ALWAYS
    return needs


def _slot_values(world: World, facts: Facts, title: str) -> dict[str, str]:
    slots = {name: format_value(world, name, value, link=True) for name, value in facts.items()}
    slots["name"] = title
    for name in ("type", "occupation"):
        if name in slots:
            slots[f"a_{name}"] = with_article(slots[name])
    if "woman" in facts:
        slots |= _SHE if facts["woman"] else _HE
    return slots


def with_article(word: str) -> str:
    """Prefix a word with its indefinite article: "a novel", "an atlas", "a university"."""
    return f"{'an' if word[0] in 'aeio' or word == 'uprising' else 'a'} {word}"


def format_value(world: World, name: str, value: Any, *, link: bool = False) -> str:
    """Format the value of a fact for articles and answers."""
    if isinstance(value, str):
        return value
    if isinstance(value, Ref):
        return f"[[{world.title(value.page)}]]" if link else world.title(value.page)
    if isinstance(value, Dated):
        return f"{format_value(world, name, Ref(value.page), link=link)} ({value.year})"
    if isinstance(value, Date):
        return f"{value.day} {MONTHS[value.month - 1]} {value.year}"
    if isinstance(value, tuple):
        return join_list(format_value(world, name, item, link=link) for item in value)
    return str(value) if name in YEARS else f"{value:,}"


def join_list(items: Iterable[str]) -> str:
    """Join items as "a, b and c"."""
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last
