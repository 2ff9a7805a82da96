"""Wiki interface for WikiGame, an adapter for the generated encyclopedia, and path search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Protocol

from palestra.envs.world.articles import article_of
from palestra.envs.world.facts import Dated, Ref, facts_of
from palestra.envs.world.world import World

Key = int | str  # identifies a page within its wiki


@dataclass(frozen=True, slots=True, kw_only=True)
class WikiPage:
    """The visible content of a page."""

    key: Key
    title: str
    text: str
    links: tuple[tuple[str, Key], ...]  # titles and keys of the linked pages

    def link(self, title: str) -> Key | None:
        """Return the key of the linked page; if no title matches exactly, ignore case and underscores."""
        keys = dict(self.links)
        if title in keys:
            return keys[title]
        return {_folded(link): key for link, key in self.links}.get(_folded(title))


def _folded(title: str) -> str:
    return title.replace("_", " ").casefold()


class Wiki(Protocol):
    """Source of pages; its methods raise EnvFailed or ParsingFailed if the pages cannot be loaded."""

    local: bool  # whether the pages are in memory, so that searching many of them is fast

    def page(self, key: Key) -> WikiPage | None:
        """Return the page, or None if it does not exist."""

    def neighbours(self, key: Key) -> tuple[Key, ...]:
        """Return the keys of the linked pages."""

    def random(self, rng: Random) -> Key:
        """Return the key of a random start page."""


class WorldWiki:
    """Wiki for the generated encyclopedia; a key is a page number."""

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


def by_distance(wiki: Wiki, start: Key, *, depth: int, max_pages: int) -> tuple[list[list[Key]], dict[Key, Key]]:
    """Run a breadth-first search from `start` that opens at most `max_pages` pages.

    Return the pages by distance, up to `depth`, and the predecessor of each page.
    """
    levels: list[list[Key]] = [[start]]
    before: dict[Key, Key] = {}
    opened = 0
    while len(levels) <= depth:
        level: list[Key] = []
        for key in levels[-1]:
            if opened >= max_pages:
                break
            opened += 1
            for other in wiki.neighbours(key):
                if other != start and other not in before:
                    before[other] = key
                    level.append(other)
        if not level:
            break
        levels.append(level)
    return levels, before


def shortest_path(wiki: Wiki, start: Key, goal: Key, *, max_pages: int) -> list[Key] | None:
    """Return a shortest path from `start` (excluded) to `goal`, or None if the search exceeds `max_pages` pages."""
    before: dict[Key, Key] = {}
    queue: list[Key] = [start]
    for key in queue:  # the loop body appends to the queue
        if key == goal:
            back = [key]
            while before.get(back[-1], start) != start:
                back.append(before[back[-1]])
            return back[::-1] if goal != start else []
        if len(queue) > max_pages:
            return None
        for other in wiki.neighbours(key):
            if other != start and other not in before:
                before[other] = key
                queue.append(other)
    return None
