"""Parse the text of an article into facts by matching its sentences with the templates. All values are strings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from palestra.envs.world.prose import GROUPS, LEADS

_SLOT = re.compile(r"\{(\w+)\}")
_NUMBER, _YEAR, _DATE, _WORDS = r"[0-9,]+", r"[0-9]{3,4}", r"[0-9]{1,2} [A-Z][a-z]+ [0-9]{4}", r"[A-Za-z ]+?"
_PATTERNS: Mapping[str, str] = {
    **dict.fromkeys(("area", "population", "elevation", "length", "height", "members", "days"), _NUMBER),
    **dict.fromkeys(("founded_year", "year", "first_climbed"), _YEAR),
    **dict.fromkeys(("birth_date", "death_date", "date"), _DATE),
    **dict.fromkeys(("type", "occupation", "government", "language", "currency", "product", "trade"), _WORDS),
}
_PLAIN: Mapping[str, str] = {  # patterns for slots that are not facts
    "he": "s?he", "He": "S?he|He", "his": "his|her", "His": "His|Her", "him": "him|her", "surname": "[A-Z][a-z]+",
}  # fmt: skip
_LISTS = frozenset({"cities", "children", "natives", "organisations", "provinces", "neighbours"})
_NAME = r"[A-Z][^.,;:()]*?"
_DATED = re.compile(r"(?:^|, | and )(The .+?) \(([0-9]{3,4})\)")
_SENTENCE_END = re.compile(r"(?<=\.) ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Facts parsed from an article."""

    title: str
    kind: str
    facts: Mapping[str, str] = field(default_factory=dict)  # single values as strings
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    years: Mapping[str, str] = field(default_factory=dict)  # year by title, for lists of works


def read(title: str, text: str) -> Reading | None:
    """Parse an article. Return None if its first sentence matches no template."""
    first, *rest = _SENTENCE_END.split(text)
    for kind in LEADS:
        for pattern in _patterns(kind)[0]:
            match = pattern.fullmatch(first)
            if match is not None and match["name"] == title:
                return _parse_rest(title, kind, [match.groupdict()], rest)
    return None


def _parse_rest(title: str, kind: str, matches: list[dict[str, str]], sentences: list[str]) -> Reading:
    for sentence in sentences:
        for pattern in _patterns(kind)[1]:
            match = pattern.fullmatch(sentence)
            if match is not None:
                matches.append(match.groupdict())
                break
    facts: dict[str, str] = {}
    for group in matches:
        facts |= group
    del facts["name"]
    lists = {name: split(facts.pop(name)) for name in _LISTS & facts.keys()}
    years: dict[str, str] = {}
    if "works" in facts:
        years = dict(_DATED.findall(facts.pop("works")))
        lists["works"] = tuple(years)
    return Reading(title=title, kind=kind, facts=facts, lists=lists, years=years)


def split(text: str) -> tuple[str, ...]:
    """Split "a, b and c" into its parts."""
    return tuple(re.split(", | and ", text))


@cache
def _patterns(kind: str) -> tuple[list[re.Pattern[str]], list[re.Pattern[str]]]:
    """Return the patterns for the first sentence and for the other sentences in an article."""
    leads = [_pattern(sentence) for tier in LEADS[kind] for sentence in tier]
    return leads, [_pattern(sentence) for group in GROUPS[kind] for tier in group for sentence in tier]


def _pattern(sentence: str) -> re.Pattern[str]:
    pieces, at = [], 0
    seen: set[str] = set()
    for slot in _SLOT.finditer(sentence):
        pieces.append(re.escape(sentence[at : slot.start()]))
        pieces.append(_group(slot[1], seen))
        at = slot.end()
    pieces.append(re.escape(sentence[at:]))
    return re.compile("".join(pieces))


def _group(slot: str, seen: set[str]) -> str:
    if slot in _PLAIN:
        return f"(?:{_PLAIN[slot]})"
    article = slot.startswith("a_")
    name = slot.removeprefix("a_")
    if name in seen:
        return f"(?P={name})"
    seen.add(name)
    pattern = ".+?" if name == "name" or name == "works" or name in _LISTS else _PATTERNS.get(name, _NAME)
    return f"{'an? ' if article else ''}(?P<{name}>{pattern})"
