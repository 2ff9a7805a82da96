"""Pages with links, from the generated world or from a wiki that is served somewhere: what WikiGame is played on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Protocol

from palestra.envs.world.articles import article_of
from palestra.envs.world.facts import Dated, Ref, facts_of
from palestra.envs.world.world import World

Key = int | str  # what a wiki finds a page by


@dataclass(frozen=True, slots=True, kw_only=True)
class WikiPage:
    """What a player sees of a page."""

    key: Key
    title: str
    text: str
    links: tuple[tuple[str, Key], ...]  # titles and keys of the pages it leads to

    def link(self, title: str) -> Key | None:
        """The key of the page a link leads to; case and underscores do not matter where no title fits as it is."""
        known = dict(self.links)
        if title in known:
            return known[title]
        return {_folded(shown): key for shown, key in self.links}.get(_folded(title))


def _folded(title: str) -> str:
    return title.replace("_", " ").casefold()


class Wiki(Protocol):
    """Where pages come from. EnvFailed or ParsingFailed where they cannot be had."""

    local: bool  # True: pages are at hand, so paths may be searched for widely

    def page(self, key: Key) -> WikiPage | None:
        """The page, or None where there is none."""

    def neighbours(self, key: Key) -> tuple[Key, ...]:
        """The keys of the pages it leads to."""

    def random(self, rng: Random) -> Key:
        """Some page to begin at."""


class WorldWiki:
    """The generated world as a wiki; a key is a page's number."""

    local = True

    def __init__(self, world: World) -> None:
        self.world = world
        self.page = lru_cache(maxsize=5_000)(self._page)
        self.neighbours = lru_cache(maxsize=100_000)(self._neighbours)

    def __reduce__(self) -> tuple[type[WorldWiki], tuple[World]]:
        return WorldWiki, (self.world,)

    def _page(self, key: int) -> WikiPage:
        article = article_of(self.world, key)
        keys = {self.world.title(page): page for page in self.neighbours(key)}
        return WikiPage(
            key=key,
            title=article.title,
            text=article.text,
            links=tuple((title, keys[title]) for title in article.links),
        )

    def _neighbours(self, key: int) -> tuple[int, ...]:
        return tuple(dict.fromkeys(page for page in _refs(facts_of(self.world, key).values()) if page != key))

    def random(self, rng: Random) -> Key:
        return rng.randrange(self.world.pages)


def _refs(values: object) -> Iterator[int]:
    for value in values:  # type: ignore[attr-defined]
        if isinstance(value, Ref | Dated):
            yield value.page
        elif isinstance(value, tuple):
            yield from _refs(value)


def by_distance(wiki: Wiki, start: Key, *, depth: int, most: int) -> tuple[list[list[Key]], dict[Key, Key]]:
    """Pages by their distance from `start`, up to `depth`, from at most `most` pages; and where each was come from."""
    found: list[list[Key]] = [[start]]
    before: dict[Key, Key] = {}
    opened = 0
    while len(found) <= depth:
        level: list[Key] = []
        for key in found[-1]:
            if opened >= most:
                break
            opened += 1
            for other in wiki.neighbours(key):
                if other != start and other not in before:
                    before[other] = key
                    level.append(other)
        if not level:
            break
        found.append(level)
    return found, before


def path(wiki: Wiki, start: Key, goal: Key, *, most: int) -> list[Key] | None:
    """A shortest path from the page after `start` to `goal`; None where none was found within `most` pages."""
    before: dict[Key, Key] = {}
    queue: list[Key] = [start]
    for key in queue:  # grows while it is read
        if key == goal:
            back = [key]
            while before.get(back[-1], start) != start:
                back.append(before[back[-1]])
            return back[::-1] if goal != start else []
        if len(queue) > most:
            return None
        for other in wiki.neighbours(key):
            if other != start and other not in before:
                before[other] = key
                queue.append(other)
    return None
