"""WikiGame: from one page to another by links alone."""

from __future__ import annotations

import os
from functools import lru_cache
from itertools import pairwise
from typing import Unpack

from palestra.envs.games.base import INVALID, LOST, ONGOING, WON, GameOptions, LanguageGame
from palestra.envs.games.wiki import Key, Wiki, WikiPage, WorldWiki, by_distance, path
from palestra.envs.games.wiki_http import TIMEOUT, wiki_at
from palestra.envs.world.world import World
from palestra.errors import BadValue, EnvFailed
from palestra.parsing import clip

VARIANTS = ("noregrets", "oneback", "freenav")
BACK = "<PREV_PAGE>"
WIKI = "PALESTRA_WIKI"  # the environment variable that names a wiki to play on
OPENED = 4_000  # pages that are looked at to find one far enough away
SEARCHED = 50_000  # pages that the expert looks at to find its way back
TRIES = 40  # pages of a served wiki that are tried for a walk

Route = tuple[Key, list[tuple[Key, Key]]]  # where it begins; then each page and the link to take there

_worlds = lru_cache(maxsize=4)(lambda seed, pages: WorldWiki(World(seed, pages)))


class WikiGame(LanguageGame):
    """Reach the target page by following links.

    The pages are those of the generated world (`pages`, `world_seed`), or of a wiki that is served somewhere: `wiki`,
    or the environment variable PALESTRA_WIKI, reads `mediawiki:https://HOST/w/api.php` or
    `kiwix:http://HOST:PORT/content/BOOK`; each request may take `timeout` seconds. The target is at least `near` and at
    most `far` links away. `variant`: "noregrets" knows no way back but links, "oneback" allows one step back at a time,
    "freenav" any number. A page's text is shown up to `summary` characters.

    Differs from GEM: pages come from the generated world by default, the target is always within reach, and a seed
    always gives the same game.
    The expert knows which page leads where, and takes a shortest path.
    """

    title = "the Wikipedia Game"
    move_name = "page title"

    levels = ({"max_turns": 30, "near": 2, "far": 3}, {"max_turns": 15, "near": 4, "far": 6})

    max_turns: int
    near: int
    far: int

    def __init__(
        self,
        *,
        max_turns: int | None = 30,
        near: int | None = 2,
        far: int | None = 3,
        variant: str = "noregrets",
        summary: int = 1_000,
        pages: int = 2000,
        world_seed: int = 0,
        wiki: str | None = None,
        timeout: float = TIMEOUT,
        **options: Unpack[GameOptions],
    ) -> None:
        super().__init__({"max_turns": max_turns, "near": near, "far": far}, **options)
        if variant not in VARIANTS:
            raise BadValue(f"variant is one of {', '.join(VARIANTS)}, got {variant!r}")
        given = [value for value in (1, near, far, max_turns) if value is not None]
        if given != sorted(given):
            raise BadValue(f"1 <= near <= far <= max_turns, got near={near}, far={far}, max_turns={max_turns}")
        if summary < 0:
            raise BadValue(f"summary is a number of characters, got {summary!r}")
        self.variant, self.summary = variant, summary
        source = wiki if wiki is not None else os.environ.get(WIKI, "")
        self._wiki: Wiki = wiki_at(source, timeout=timeout) if source else _worlds(world_seed, pages)
        self.inline = self._wiki.local  # a request may take seconds

    shared = LanguageGame.shared | {"_wiki", "_onward", "here", "goal"}

    # The two pages

    def setup(self) -> None:
        start, onward = self._route_in_world() if self._wiki.local else self._walk()
        self.here = self._page(start)
        self.goal = self._page(onward[-1][1])
        self.start = self.here.title
        self._far_off = len(onward)
        # The known way: from a page, the link that leads on, and how many are still to go.
        self._onward = {page: (link, self._far_off - place) for place, (page, link) in enumerate(onward)}
        self.trail: list[Key] = []  # pages left behind, the latest last
        self._went_back = False

    def _route_in_world(self) -> Route:
        """From a page to one that is as far away as asked."""
        farthest: list[Key] = []
        for _ in range(50):
            start = self._wiki.random(self.rng)
            found, before = by_distance(self._wiki, start, depth=self.far, most=OPENED)
            deepest = min(self.far, len(found) - 1)
            distance = self.rng.randint(min(self.near, deepest), deepest)
            route = [self.rng.choice(found[distance])]
            while route[-1] != start:
                route.append(before[route[-1]])
            farthest = max(farthest, route[::-1], key=len)
            if distance >= self.near:
                break
        if len(farthest) <= self.near:
            raise BadValue(f"no page of this world leads {self.near} links away; choose a smaller near")
        return farthest[0], list(pairwise(farthest))

    def _walk(self) -> Route:
        """From a page along some links; asks a server no more than it must."""
        tried = 0
        while tried < TRIES:
            tried += 1
            first = page = self._page(self._wiki.random(self.rng))
            distance = self.rng.randint(self.near, self.far)
            tried_links: set[Key] = {page.key}
            titles = {page.title}  # several links may lead to one page
            onward: list[tuple[Key, Key]] = []
            while len(onward) < distance and tried < TRIES:
                tried += 1
                # The last page must not be within one link of the first, or the walk would be a detour.
                barred = {key for _, key in first.links} if 0 < len(onward) == distance - 1 else set()
                links = [key for _, key in page.links if key not in tried_links and key not in barred]
                if not links:
                    break
                link = self.rng.choice(links)
                tried_links.add(link)
                found = self._wiki.page(link)
                if found is not None and found.title not in titles:
                    titles.add(found.title)
                    onward.append((page.key, link))
                    page = found
            if len(onward) == distance:
                return first.key, onward
        raise EnvFailed(f"no walk of {self.near} to {self.far} links was found on {TRIES} pages of the wiki")

    def _page(self, key: Key) -> WikiPage:
        page = self._wiki.page(key)
        if page is None:
            raise EnvFailed(f"the wiki leads to {key!r}, which it does not have")
        return page

    # The game

    def rules(self) -> str:
        back = {
            "noregrets": "There is no way back but links that lead there.",
            "oneback": f"{BACK} in place of a title leads back to the page before, but not twice in a row.",
            "freenav": f"{BACK} in place of a title leads back to the page before.",
        }[self.variant]
        return (
            "Pages of an encyclopaedia lead to each other by links. You begin at a page and have to reach the target "
            f"page by following links, one a turn.\nA move is the title of a link of the page you are on. {back} Any "
            "other title costs a turn and leads nowhere.\n"
            f"The target page is {self.goal.title!r}. It begins: {self._short(self.goal)}"
        )

    def example_move(self) -> str:
        return self.here.links[0][0] if self.here.links else BACK

    def parse(self, text: str) -> str | None:
        return text.strip().removeprefix("[[").removesuffix("]]").strip("\"' \t\n") or None

    def play(self, move: str) -> tuple[int, str]:
        key = self.here.link(move)
        if key is None and move.upper() in (BACK, "BACK"):
            return self._back()
        if key is None:
            return INVALID, f"this page has no link {clip(move)!r}."
        page = self._wiki.page(key)
        if page is None:  # a red link of a served wiki
            return INVALID, f"there is no page behind {clip(move)!r}."
        self.trail.append(self.here.key)
        self.here, self._went_back = page, False
        if page.key == self.goal.key or page.title == self.goal.title:
            return WON, f"you reached {page.title!r}. You win!"
        if not page.links and self.variant == "noregrets":
            return LOST, f"you are on {page.title!r}, which leads nowhere."
        return ONGOING, f"you are on {page.title!r} now."

    def _back(self) -> tuple[int, str]:
        if self.variant == "noregrets":
            return INVALID, "there is no way back but links."
        if not self.trail:
            return INVALID, "you are on the first page; there is no page before it."
        if self.variant == "oneback" and self._went_back:
            return INVALID, "you went back just now; follow a link first."
        self.here, self._went_back = self._page(self.trail.pop()), True
        return ONGOING, f"you are back on {self.here.title!r}."

    def board(self) -> str:
        links = "\n".join([f"- {title}" for title, _ in self.here.links]) or "- none"
        return f"Page: {self.here.title}\n{self._short(self.here)}\nLinks:\n{links}\nTarget: {self.goal.title}"

    def _short(self, page: WikiPage) -> str:
        return page.text if len(page.text) <= self.summary else f"{page.text[: self.summary].rstrip()} ..."

    def solution(self) -> str:
        return f"The target can be reached from {self.start!r} in {self._far_off} links."

    def progress(self) -> float:
        """How much nearer the target is than at the start."""
        if self.here.key == self.goal.key:
            return 1.0
        way = self._way()
        return 0.0 if way is None else max(0.0, 1 - way[1] / self._far_off)

    # The players

    def random_move(self) -> str:
        return self.player_rng.choice(self.here.links)[0] if self.here.links else BACK

    def expert_move(self) -> str:
        way = self._way()
        if way is not None:
            for title, key in self.here.links:
                if key == way[0]:
                    return title
        return self.example_move()

    def _way(self) -> tuple[Key, int] | None:
        """The link that leads on from here and how many there are to the target; None where no way is known."""
        if self.here.key in self._onward:
            return self._onward[self.here.key]
        most = SEARCHED if self._wiki.local else TRIES
        found = path(self._wiki, self.here.key, self.goal.key, most=most)
        return (found[0], len(found)) if found else None
