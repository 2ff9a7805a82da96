"""WikiGame: navigate from one page to another by following links."""

from __future__ import annotations

import os
from functools import lru_cache
from itertools import pairwise
from typing import Unpack

from palestra.envs.games.base import INVALID, LOST, ONGOING, WON, GameOptions, LanguageGame
from palestra.envs.games.wiki import Key, Wiki, WikiPage, WorldWiki, by_distance, shortest_path
from palestra.envs.games.wiki_http import TIMEOUT, wiki_at
from palestra.envs.world.world import World
from palestra.errors import BadValue, EnvFailed
from palestra.parsing import clip, plain

VARIANTS = ("noregrets", "oneback", "freenav")
BACK = "<PREV_PAGE>"  # same spelling as in GEM
WIKI = "PALESTRA_WIKI"  # environment variable that selects the wiki
MAX_OPENED = 4_000  # maximum number of pages opened to find a target at the requested distance
MAX_SEARCHED = 50_000  # maximum number of pages that the expert searches after leaving the planned route
MAX_REQUESTS = 40  # maximum number of requests to an HTTP wiki to find a route

Route = tuple[Key, list[tuple[Key, Key]]]  # the start page, and (page, link to follow) for each page on the route

_world_wiki = lru_cache(maxsize=4)(lambda seed, pages: WorldWiki(World(seed, pages)))


class WikiGame(LanguageGame):
    """Reach the target page by following links.

    The pages come from the generated encyclopedia (`pages`, `world_seed`) or from a wiki served over HTTP. To use a
    wiki, set the `wiki` argument or the PALESTRA_WIKI environment variable to `mediawiki:https://HOST/w/api.php` or
    `kiwix:http://HOST:PORT/content/BOOK`; `timeout` is the timeout per request in seconds. The target is `min_distance`
    to `max_distance` links away. The `variant` "noregrets" does not allow going back, "oneback" allows one step back at
    a time, and "freenav" allows any number of steps back. A page's text is truncated to `summary` characters.

    Differences from GEM: pages come from the generated encyclopedia by default, the target is always reachable, and the
    same seed always results in the same game. The expert has access to all links and takes a shortest path.
    """

    title = "the Wikipedia Game"
    expert_peeks = True  # the expert also reads pages that it has not visited

    levels = (
        {"max_turns": 30, "min_distance": 2, "max_distance": 3},
        {"max_turns": 15, "min_distance": 4, "max_distance": 6},
    )

    max_turns: int
    min_distance: int
    max_distance: int

    def __init__(
        self,
        *,
        max_turns: int | None = 30,
        min_distance: int | None = 2,
        max_distance: int | None = 3,
        variant: str = "noregrets",
        summary: int = 1_000,
        pages: int = 2000,
        world_seed: int = 0,
        wiki: str | None = None,
        timeout: float = TIMEOUT,
        **options: Unpack[GameOptions],
    ) -> None:
        super().__init__(
            {"max_turns": max_turns, "min_distance": min_distance, "max_distance": max_distance}, **options
        )
        if variant not in VARIANTS:
            raise BadValue(f"variant must be one of {', '.join(VARIANTS)}; got {variant!r}")
        bounds = [value for value in (1, min_distance, max_distance, max_turns) if value is not None]
        if bounds != sorted(bounds):
            raise BadValue(
                "WikiGame needs 1 <= min_distance <= max_distance <= max_turns; got "
                f"min_distance={min_distance}, max_distance={max_distance}, max_turns={max_turns}"
            )
        if summary < 0:
            raise BadValue(f"summary must be a non-negative number of characters, got {summary!r}")
        self.variant, self.summary = variant, summary
        source = wiki if wiki is not None else os.environ.get(WIKI, "")
        self._wiki: Wiki = wiki_at(source, timeout=timeout) if source else _world_wiki(world_seed, pages)
        self.inline = self._wiki.local  # requests to a server may take seconds

    shared = LanguageGame.shared | {"_wiki", "_onward", "current", "goal"}

    # Selection of the start page and the target page

    def setup(self) -> None:
        start, onward = self._search_route() if self._wiki.local else self._random_walk()
        self.current = self._page(start)
        self.goal = self._page(onward[-1][1])
        self.start = self.current.title
        self._distance = len(onward)
        # The planned route as {page: (link to follow, number of links to the target)}.
        self._onward = {page: (link, self._distance - place) for place, (page, link) in enumerate(onward)}
        self.trail: list[Key] = []  # previous pages, most recent last
        self._went_back = False

    def _search_route(self) -> Route:
        """Sample a start page and a target at the requested distance with breadth-first search."""
        farthest: list[Key] = []
        for _ in range(50):
            start = self._wiki.random(self.rng)
            levels, before = by_distance(self._wiki, start, depth=self.max_distance, max_pages=MAX_OPENED)
            deepest = min(self.max_distance, len(levels) - 1)
            distance = self.rng.randint(min(self.min_distance, deepest), deepest)
            route = [self.rng.choice(levels[distance])]
            while route[-1] != start:
                route.append(before[route[-1]])
            farthest = max(farthest, route[::-1], key=len)
            if distance >= self.min_distance:
                break
        if len(farthest) <= self.min_distance:
            raise BadValue(f"no pages are {self.min_distance} links apart; decrease min_distance or increase pages")
        return farthest[0], list(pairwise(farthest))

    def _random_walk(self) -> Route:
        """Sample a route by following random links, which requires only a few requests to the server."""
        requests = 0
        while requests < MAX_REQUESTS:
            requests += 1
            first = page = self._page(self._wiki.random(self.rng))
            distance = self.rng.randint(self.min_distance, self.max_distance)
            tried_links: set[Key] = {page.key}
            titles = {page.title}  # several links may lead to the same page
            onward: list[tuple[Key, Key]] = []
            while len(onward) < distance and requests < MAX_REQUESTS:
                requests += 1
                # The first page must not link directly to the target, because a shorter route would then exist.
                excluded = {key for _, key in first.links} if 0 < len(onward) == distance - 1 else set()
                links = [key for _, key in page.links if key not in tried_links and key not in excluded]
                if not links:
                    break
                link = self.rng.choice(links)
                tried_links.add(link)
                next_page = self._wiki.page(link)
                if next_page is not None and next_page.title not in titles:
                    titles.add(next_page.title)
                    onward.append((page.key, link))
                    page = next_page
            if len(onward) == distance:
                return first.key, onward
        raise EnvFailed(
            f"no route of {self.min_distance} to {self.max_distance} links was found within {MAX_REQUESTS} requests"
        )

    def _page(self, key: Key) -> WikiPage:
        page = self._wiki.page(key)
        if page is None:
            raise EnvFailed(f"the wiki links to {key!r}, but this page does not exist")
        return page

    # Rules and moves

    def task_key(self) -> object:
        return self.start, self.goal.title

    def rules(self) -> str:
        back = {
            "noregrets": "You cannot go back, unless a link leads back.",
            "oneback": f"Instead of a title, {BACK} takes you back to the previous page, but not twice in a row.",
            "freenav": f"Instead of a title, {BACK} takes you back to the previous page.",
        }[self.variant]
        return (
            "You are reading an encyclopedia whose pages link to each other. Starting from the page below, reach the "
            f"target page by following links, one per turn.\nA move is the title of a link on the current page. {back} "
            "Any other title costs a turn and changes nothing.\n"
            f"The target page is {self.goal.title!r}. Its text starts: {self._short(self.goal)}"
        )

    def example_move(self) -> str:
        return self.current.links[0][0] if self.current.links else BACK

    def parse(self, text: str) -> str | None:
        return text.strip().removeprefix("[[").removesuffix("]]").strip("\"' \t\n") or None

    def play(self, move: str) -> tuple[int, str]:
        key = self.current.link(move)
        if key is None:
            move = plain(move).removeprefix("[[").removesuffix("]]")
            key = self.current.link(move)
        if key is None and move.upper() in (BACK, "BACK"):
            return self._back()
        if key is None:
            return INVALID, f"this page has no link {clip(move)!r}."
        page = self._wiki.page(key)
        if page is None:  # a link to a missing page
            return INVALID, f"the page {clip(move)!r} does not exist."
        self.trail.append(self.current.key)
        self.current, self._went_back = page, False
        if page.key == self.goal.key or page.title == self.goal.title:
            return WON, f"you reached {page.title!r}. You win!"
        if not page.links and self.variant == "noregrets":
            return LOST, f"you are on {page.title!r}, which has no links. You lose."
        return ONGOING, f"you are on {page.title!r} now."

    def _back(self) -> tuple[int, str]:
        if self.variant == "noregrets":
            return INVALID, "you cannot go back; follow a link."
        if not self.trail:
            return INVALID, "you are on the first page; there is no previous page."
        if self.variant == "oneback" and self._went_back:
            return INVALID, "you cannot go back twice in a row; follow a link first."
        self.current, self._went_back = self._page(self.trail.pop()), True
        return ONGOING, f"you are back on {self.current.title!r}."

    def board(self) -> str:
        links = "\n".join([f"- {title}" for title, _ in self.current.links]) or "- none"
        return f"Page: {self.current.title}\n{self._short(self.current)}\nLinks:\n{links}\nTarget: {self.goal.title}"

    def _short(self, page: WikiPage) -> str:
        return page.text if len(page.text) <= self.summary else f"{page.text[: self.summary].rstrip()} ..."

    def solution(self) -> str:
        return f"The target was reachable from {self.start!r} in {self._distance} links."

    def progress(self) -> float:
        """Return the fraction by which the distance to the target has decreased since the start."""
        if self.current.key == self.goal.key:
            return 1.0
        step = self._next_step()
        return 0.0 if step is None else max(0.0, 1 - step[1] / self._distance)

    # Random and expert players

    def random_move(self) -> str:
        return self.player_rng.choice(self.current.links)[0] if self.current.links else BACK

    def expert_move(self) -> str:
        step = self._next_step()
        if step is not None:
            for title, key in self.current.links:
                if key == step[0]:
                    return title
        return self.example_move()

    def _next_step(self) -> tuple[Key, int] | None:
        """Return the link to follow and the number of links to the target, or None if no path is known."""
        if self.current.key in self._onward:
            return self._onward[self.current.key]
        max_pages = MAX_SEARCHED if self._wiki.local else MAX_REQUESTS
        path = shortest_path(self._wiki, self.current.key, self.goal.key, max_pages=max_pages)
        return (path[0], len(path)) if path else None
