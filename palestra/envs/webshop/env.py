"""WebShop: an instruction, a shop, one purchase, and a score for what was bought."""

from __future__ import annotations

import re
from typing import Any, Unpack

from palestra.core import Reset
from palestra.envs.tasks.order import position_of, row_at
from palestra.envs.webshop import pages
from palestra.envs.webshop.pages import BACK, BUY, MODES, NEXT, PAGE_SIZE, PREV, SUB_PAGES, Element, Mode
from palestra.envs.webshop.product import Goal, Product
from palestra.envs.webshop.reward import ALIKE, Nouns, Score, color_of, score
from palestra.envs.webshop.shop import Shop, Source, shop_of
from palestra.envs.webshop.similar import token_set_ratio
from palestra.envs.worlds_base import Outcome, WorldEnv, WorldOptions
from palestra.errors import BadValue
from palestra.parsing import clip

TAIL = 8_000  # characters at the end of a reply in which an action is looked for
LISTED = 30  # clickable things named where something else was clicked
KEYWORDS = 1_000  # characters of a search that count
_BRACKET = re.compile(r"\b(search|click)[ \t]?\[|[\[\]]", re.I)
_EXAMPLE = "search[wool blanket]"

Plan = tuple[str, int, str, tuple[tuple[str, str], ...]]  # keywords, place among what is found, asin, options to choose


class WebShop(WorldEnv):
    """Buy what the instruction asks for.

    The shop is generated (`products` of them, from `catalogue_seed`), or WebShop's own, where `folder` holds its files
    (`products=None`: all of them; `human=False`: goals a program made). `split`: "train", "dev", "test" or "all" goals;
    a seed is a place in a shuffled order of them, and `reset(options={"goal": 7})` names one. `mode`: how pages are
    shown, "text", "text_rich" or "html"; `show_attributes` adds a page of attributes to each item. The reward comes
    with the purchase and is WebShop's, 0 to 1 (`palestra/envs/webshop/reward.py`); success is a reward of 1. `nouns`
    replaces how the nouns of a title are found.

    Differs from WebShop: a seed repeats an episode, an action that is not possible is answered with what is, and no
    search term has a secret meaning. Differs from GEM: no server, no download. The expert knows the catalogue: it
    searches for what the instruction says, or for a title that suits it, and buys the first thing found that fits in
    every respect.
    """

    shared = WorldEnv.shared | {"shop", "goal", "_nouns", "_plan", "_goals", "_found"}

    goal: Goal
    number: int  # of the goal

    def __init__(
        self,
        *,
        mode: Mode = "text_rich",
        split: str = "train",
        products: int | None = 1000,
        catalogue_seed: int = 0,
        folder: str | None = None,
        human: bool = True,
        show_attributes: bool = False,
        nouns: Nouns | None = None,
        max_turns: int = 15,
        **options: Unpack[WorldOptions],
    ) -> None:
        super().__init__(max_turns=max_turns, **options)
        if mode not in MODES:
            raise BadValue(f"mode is one of {', '.join(MODES)}, got {mode!r}")
        self.mode = mode
        self.show_attributes = bool(show_attributes)
        self._nouns = nouns
        place = None if folder is None else str(folder)
        self.shop: Shop = shop_of(Source(folder=place, products=products, seed=catalogue_seed, human=human))
        self._goals = self.shop.split(split)

    # The episode

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        if seed is None and options and "goal" in options:
            place = self._checked(options["goal"]) - self._goals.start
            seed = position_of(place, len(self._goals), seed=0, epoch=0)  # so that info["seed"] alone repeats it
        return super().reset(seed, options)

    def begin(self, options: dict[str, Any]) -> None:
        wanted = options.pop("goal", None)
        count = len(self._goals)
        epoch, position = divmod(self.seed, count)
        if wanted is None:
            self.number = self._goals[row_at(position, count, seed=0, epoch=epoch)]
        else:
            self.number = self._checked(wanted)
        self.goal = self.shop.goals[self.number]
        self._plan: Plan | None = None
        self._seen: set[str] = set()
        self._to_search()

    def _checked(self, number: object) -> int:
        if isinstance(number, int) and number in self._goals:
            return number
        raise BadValue(f"goal is a number from {self._goals.start} to {self._goals.stop - 1}, got {number!r}")

    def _to_search(self) -> None:
        self.where = "search"  # or "results", "item", or the name of a sub-page
        self.keywords = ""
        self._found: tuple[int, ...] = ()
        self.page = 1
        self.asin = ""
        self.chosen: dict[str, str] = {}

    def told(self) -> dict[str, Any]:
        return {"goal": self.number, "instruction": self.goal.instruction, "clickables": self.clickables()}

    def prompt(self) -> str:
        return (
            "You are shopping. Find and buy a product that is as the instruction says: its kind, its attributes, its "
            "options and its price.\nAn action is one of\n"
            "- search[keywords]: search the shop, from any page;\n"
            "- click[value]: click something on the page: a product's number, an option's value, "
            f"{BACK}, {NEXT}, {PREV}, {', '.join(self._sub_pages())} or {BUY}. Nothing else can be clicked.\n"
            f"Choose options before you click[{BUY}]: that ends the episode, and your score, from 0 to 1, is the share "
            "of what was asked for that the purchase has.\n"
            f"Write one action a turn, for example {_EXAMPLE}. You may think first; the last action of your reply "
            f"counts. You have {self.max_turns} turns.\n\n{self._shown()}"
        )

    def act(self, action: str) -> Outcome:
        read = read_action(action)
        if read is None:
            error = "ends the episode" if self.stop_when_error else "costs a turn"
            text = f"No action could be read, which {error}. Write search[keywords] or click[value], as in {_EXAMPLE}."
            return self._answer(f"{text}\n{self._shown()}", invalid="format")
        verb, value = read
        if verb == "search":
            return self._search(value)
        if value.lower() == BUY.lower() and self.where == "item":
            return self._buy()
        named = [element for element in self._elements() if element.clickable and element.text.lower() == value.lower()]
        if not named:
            can = self.clickables()
            listed = ", ".join(can[:LISTED]) + (", ..." if len(can) > LISTED else "")
            what = f"You can click: {listed}." if can else "Nothing can be clicked here; search[keywords] is possible."
            text = f"There is no {clip(value)!r} to click on this page. {what}"
            return self._answer(f"{text}\n{self._shown()}", invalid="rule")
        self._click(named)
        return self._answer(self._shown())

    def _answer(self, text: str, **outcome: Any) -> Outcome:
        return Outcome(text, info={"clickables": self.clickables()}, **outcome)

    def _search(self, keywords: str) -> Outcome:
        keywords = keywords[:KEYWORDS].strip()
        if not keywords:
            return self._answer(f"A search needs keywords, as in {_EXAMPLE}.\n{self._shown()}", invalid="rule")
        self._to_search()
        self.where, self.keywords = "results", keywords
        self._found = self.shop.search(keywords)
        return self._answer(self._shown())

    def _click(self, named: list[Element]) -> None:
        element = named[0]
        if element.kind == "link":
            self.where, self.asin = "item", element.text
            self.chosen = {}
            self._seen.add(element.text)
        elif element.kind == "option":
            # The same value may belong to two options: clicked again, it is the next one's.
            free = [other for other in named if self.chosen.get(other.name) != other.text]
            chosen = (free or named)[0]
            self.chosen[chosen.name] = chosen.text
        elif element.text == BACK:
            self._to_search()
        elif element.text == NEXT:
            self.page += 1
        elif element.text == PREV:
            self._back()
        else:
            self.where = element.text

    def _back(self) -> None:
        if self.where == "results":
            self.page -= 1
        elif self.where == "item":
            self.where, self.asin, self.chosen = "results", "", {}
        else:
            self.where = "item"

    def _buy(self) -> Outcome:
        bought = self.judge(self.product, self.chosen)
        solved = bought.reward == 1.0
        info = {"score": bought.reward, **bought.as_info(), "asin": self.asin, "clickables": []}
        text = pages.shown(pages.done_page(bought.reward), self.mode)
        return Outcome(text, bought.reward, "solved" if solved else "lost", info=info)

    def judge(self, product: Product, chosen: dict[str, str]) -> Score:
        """The score of a purchase, in this episode."""
        return score(product, self.goal, list(chosen.values()), self._nouns)

    # What is seen

    @property
    def product(self) -> Product:
        """The one whose page is open."""
        return self.shop.products[self.shop.number_of[self.asin]]

    def _sub_pages(self) -> tuple[str, ...]:
        return SUB_PAGES if self.show_attributes else SUB_PAGES[:-1]

    def _elements(self) -> list[Element]:
        wish = self.goal.instruction
        if self.where == "search":
            return pages.search_page(wish)
        if self.where == "results":
            first = (self.page - 1) * PAGE_SIZE
            found = [self.shop.products[number] for number in self._found[first : first + PAGE_SIZE]]
            return pages.results_page(wish, found, self.page, len(self._found), self._seen)
        if self.where == "item":
            return pages.item_page(wish, self.product, self.chosen, attributes=self.show_attributes)
        return pages.sub_page(wish, self.product, self.where)

    def _shown(self) -> str:
        return pages.shown(self._elements(), self.mode)

    def clickables(self) -> list[str]:
        """What can be clicked now, in reading order."""
        return [element.text for element in self._elements() if element.clickable]

    def render(self, mode: str = "text") -> str | None:
        """The page: "text" (rich text) or "html"; there are no pictures."""
        how: Mode | None = {"text": "text_rich", "html": "html"}.get(mode)  # type: ignore[assignment]
        return None if how is None or self.ending == "reset" else pages.shown(self._elements(), how)

    # The players

    def example_action(self) -> str:
        return _EXAMPLE

    def sample_random_action(self) -> str:
        can = self.clickables()
        if can:
            return f"click[{self.player_rng.choice(can)}]"
        words = re.findall(r"[a-z0-9]+", self.goal.instruction.lower()) or ["anything"]
        first = self.player_rng.randrange(len(words))
        return f"search[{' '.join(words[first : first + 3])}]"

    def expert_action(self) -> str | None:
        if self._plan is None:
            self._plan = self._planned()
        keywords, place, asin, options = self._plan
        if self.where in SUB_PAGES and self.asin == asin:
            return f"click[{PREV}]"
        if self.where == "item" and self.asin == asin:
            missing = [value for name, value in options if self.chosen.get(name) != value]
            return f"click[{missing[0]}]" if missing else f"click[{BUY}]"
        if self.where == "results" and self.keywords == keywords:
            page = place // PAGE_SIZE + 1
            return f"click[{asin if page == self.page else NEXT if page > self.page else PREV}]"
        return f"search[{keywords}]"

    def _planned(self) -> Plan:
        """The first product found that earns the whole reward; else the best one seen."""
        goal = self.goal
        best: tuple[float, Plan] | None = None
        wanted = " ".join((*goal.attributes, goal.query, *goal.options)).replace("[", " ").replace("]", " ")
        for keywords in (wanted, goal.name.replace("[", " ").replace("]", " ")):
            keywords = keywords[:KEYWORDS].strip()
            for place, number in enumerate(self.shop.search(keywords)):
                product = self.shop.products[number]
                options = _fitting(product, goal)
                reward = self.judge(product, dict(options)).reward
                if best is None or reward > best[0]:
                    best = (reward, (keywords, place, product.asin, options))
                if reward == 1.0:
                    return best[1]
        return (goal.query, 0, goal.asin, ()) if best is None else best[1]


def read_action(reply: str) -> tuple[str, str] | None:
    r"""The last `search[...]` or `click[...]` of a reply, in a \boxed{} or not: verb and value. Brackets may nest."""
    text = reply[-TAIL:]
    found: tuple[str, int, int] | None = None
    opened: list[tuple[str | None, int]] = []
    for bracket in _BRACKET.finditer(text):
        if bracket[0] != "]":
            opened.append((bracket[1], bracket.end()))
        elif opened:
            verb, start = opened.pop()
            if verb is not None:
                found = (verb.lower(), start, bracket.start())
    return None if found is None else (found[0], text[found[1] : found[2]].strip())


def _fitting(product: Product, goal: Goal) -> tuple[tuple[str, str], ...]:
    """For each option the goal names, a value of the product's that counts for it, exact ones first."""
    chosen: dict[str, str] = {}
    for wanted in goal.options:
        candidates = [
            (value != wanted, -token_set_ratio(color_of(value), color_of(wanted)), name, value)
            for name, values in product.options
            if name not in chosen
            for value in values
            if token_set_ratio(color_of(value), color_of(wanted)) > ALIKE
        ]
        if candidates:
            _, _, name, value = min(candidates)
            chosen[name] = value
    return tuple(chosen.items())
