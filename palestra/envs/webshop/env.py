"""WebShop environment, in which the agent searches a shop for the product that an instruction describes and buys it."""

from __future__ import annotations

import re
from typing import Any, Unpack

from palestra.core import Reset
from palestra.envs.multi_turn import MultiTurnEnv, MultiTurnOptions, Outcome
from palestra.envs.tasks.order import position_of, row_at
from palestra.envs.webshop import pages
from palestra.envs.webshop.pages import BACK, BUY, MODES, NEXT, PAGE_SIZE, PREV, SUB_PAGES, Element, Mode
from palestra.envs.webshop.product import Goal, Product
from palestra.envs.webshop.reward import SIMILAR, Nouns, Score, color_of, score, token_set_ratio
from palestra.envs.webshop.shop import Shop, Source, shop_of
from palestra.errors import BadValue
from palestra.parsing import clip, plain

MAX_REPLY_CHARS = 8_000  # number of characters at the end of a reply that are searched for an action
MAX_LISTED = 30  # maximum number of clickable values listed in the feedback for an invalid click
MAX_KEYWORD_CHARS = 1_000  # maximum length of search terms; longer ones are truncated
_BRACKET = re.compile(r"\b(search|click)[*_`}]{0,3}[ \t]?\[|[\[\]]", re.I)
_EXAMPLE = "search[wool blanket]"

Plan = tuple[str, int, str, tuple[tuple[str, str], ...]]  # keywords, index in the results, asin, options to choose


class WebShop(MultiTurnEnv):
    """Buy the product that the instruction describes.

    By default, the shop is generated, with `products` products from `catalogue_seed`. With `folder`, it is read
    from WebShop's files (`products=None` for all products, `human=False` for generated goals). `data_split` selects the
    "train", "dev", "test" or "all" goals; by default, it follows `split`, which is "train" or "test". A seed is a
    position in the shuffled list of these goals, and `reset(options={"goal": 7})` selects goal 7. `mode` is the page
    format: "text", "text_rich" or "html". With `shuffle=False`, goals are not shuffled, and seed s selects the s-th
    goal in the split. With `stop_when_error`, the episode ends after more than `error_tolerance` invalid actions, as in
    GEM. `show_attributes` adds a page of attributes to each product. The purchase earns WebShop's reward, from 0 to 1
    (`palestra/envs/webshop/reward.py`), and an episode succeeds if the reward is 1. `nouns` replaces the function that
    finds the nouns in a title.

    Differences from WebShop: the same seed always produces the same episode, the feedback for an invalid action lists
    the valid ones, and no search term has a special meaning. Unlike GEM's version, this environment requires neither a
    server nor a download. The expert has access to the catalog. It searches for the goal's terms, or for its product's
    title, and buys the first result that meets all requirements.
    """

    expert_peeks = True  # the expert reads the goal and all products
    filters_tasks = False  # `data_split` holds goals out
    shared = MultiTurnEnv.shared | {"shop", "goal", "_nouns", "_plan", "_goals", "_results"}

    goal: Goal
    number: int  # number of the goal

    def __init__(
        self,
        *,
        mode: Mode = "text_rich",
        data_split: str | None = None,
        products: int | None = 1000,
        catalogue_seed: int = 0,
        folder: str | None = None,
        human: bool = True,
        show_attributes: bool = False,
        shuffle: bool = True,
        error_tolerance: int = 0,
        nouns: Nouns | None = None,
        max_turns: int = 15,
        **options: Unpack[MultiTurnOptions],
    ) -> None:
        super().__init__(max_turns=max_turns, **options)
        if mode not in MODES:
            raise BadValue(f"`mode` must be one of {', '.join(MODES)}; got {mode!r}")
        self.mode = mode
        if type(error_tolerance) is not int or error_tolerance < 0:
            raise BadValue(f"`error_tolerance` must be an integer of at least 0, got {error_tolerance!r}")
        self.error_tolerance = error_tolerance
        self.shuffle = bool(shuffle)
        self.show_attributes = bool(show_attributes)
        self._nouns = nouns
        source = Source(
            folder=None if folder is None else str(folder), products=products, seed=catalogue_seed, human=human
        )
        self.shop: Shop = shop_of(source)
        self._goals = self.shop.split(data_split or self.split or "train")
        self.num_tasks = len(self._goals)

    # Episode

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        if seed is None and options and "goal" in options:
            index = self._checked(options["goal"]) - self._goals.start
            # Use the goal's position as the seed, so that the episode can be repeated with info["seed"] alone.
            seed = position_of(index, len(self._goals), seed=0, epoch=0) if self.shuffle else index
        return super().reset(seed, options)

    def setup(self, options: dict[str, Any]) -> None:
        requested = options.pop("goal", None)
        count = len(self._goals)
        epoch, position = divmod(self.seed, count)
        if requested is None:
            self.number = self._goals[row_at(position, count, seed=0, epoch=epoch) if self.shuffle else position]
        else:
            self.number = self._checked(requested)
        self.goal = self.shop.goals[self.number]
        self.errors = 0  # number of invalid actions
        self._plan: Plan | None = None
        self._seen: set[str] = set()
        self._open_search_page()

    def _checked(self, number: object) -> int:
        if isinstance(number, int) and number in self._goals:
            return number
        last = self._goals.stop - 1
        raise BadValue(f"the reset option `goal` must be from {self._goals.start} to {last}, got {number!r}")

    def _open_search_page(self) -> None:
        self.location = "search"  # "search", "results", "item", or the name of a sub-page
        self.keywords = ""
        self._results: tuple[int, ...] = ()
        self.page = 1
        self.asin = ""
        self.chosen: dict[str, str] = {}

    def task_key(self) -> object:
        return self.goal.instruction

    def reset_info(self) -> dict[str, Any]:
        return {"goal": self.number, "instruction": self.goal.instruction, "clickables": self.clickables()}

    def prompt(self) -> str:
        return (
            "You are shopping online. Find and buy a product of the type described in the instruction, with the "
            "requested attributes, options and price.\nActions:\n"
            "- search[keywords]: search the shop; this action is available on every page\n"
            "- click[value]: click an element of the current page: a product ID, an option, "
            f"{BACK}, {NEXT}, {PREV}, {', '.join(self._sub_pages())} or {BUY}\n"
            f"Choose the options before click[{BUY}], which ends the episode. Your score, from 0 to 1, is the fraction "
            "of the requirements that the purchase meets.\n"
            f"Write one action per turn, for example: {_EXAMPLE}\nYou may think first; the last action of your reply "
            f"counts. You have {self.max_turns} turns.\n\n{self._page_text()}"
        )

    def act(self, action: str) -> Outcome:
        parsed = read_action(action)
        if parsed is None:
            ends = self.stop_when_error and self.errors >= self.error_tolerance
            cost = "ends the episode" if ends else "uses a turn"
            text = f"No action found; this {cost}. Write search[keywords] or click[value], for example {_EXAMPLE}."
            return self._outcome(f"{text}\n{self._page_text()}", invalid="format")
        verb, value = parsed
        if verb == "search":
            return self._search(value)
        matches = self._clicked(value)
        if not matches:
            value = plain(value)
            matches = self._clicked(value)
        if value.lower() == BUY.lower() and self.location == "item":
            return self._buy()
        if not matches:
            possible = self.clickables()
            listed = ", ".join(possible[:MAX_LISTED]) + (", ..." if len(possible) > MAX_LISTED else "")
            hint = f"You can click: {listed}." if possible else "Nothing can be clicked here; use search[keywords]."
            text = f"There is no {clip(value)!r} to click on this page. {hint}"
            return self._outcome(f"{text}\n{self._page_text()}", invalid="rule")
        self._click(matches)
        return self._outcome(self._page_text())

    def _clicked(self, value: str) -> list[Element]:
        name = value.lower()
        return [element for element in self._elements() if element.clickable and element.text.lower() == name]

    def ends_after_error(self) -> bool:
        self.errors += 1
        return self.stop_when_error and self.errors > self.error_tolerance

    def _outcome(self, text: str, **outcome: Any) -> Outcome:
        return Outcome(text, info={"clickables": self.clickables()}, **outcome)

    def _search(self, keywords: str) -> Outcome:
        keywords = plain(keywords[:MAX_KEYWORD_CHARS])
        if not keywords:
            text = f"A search needs keywords, for example {_EXAMPLE}."
            return self._outcome(f"{text}\n{self._page_text()}", invalid="rule")
        self._open_search_page()
        self.location, self.keywords = "results", keywords
        self._results = self.shop.search(keywords)
        return self._outcome(self._page_text())

    def _click(self, matches: list[Element]) -> None:
        element = matches[0]
        if element.kind == "link":
            self.location, self.asin = "item", element.text
            self.chosen = {}
            self._seen.add(element.text)
        elif element.kind == "option":
            # Two options may have a value in common. Clicking this value again selects it for the next option.
            unselected = [other for other in matches if self.chosen.get(other.name) != other.text]
            chosen = (unselected or matches)[0]
            self.chosen[chosen.name] = chosen.text
        elif element.text == BACK:
            self._open_search_page()
        elif element.text == NEXT:
            self.page += 1
        elif element.text == PREV:
            self._back()
        else:
            self.location = element.text

    def _back(self) -> None:
        if self.location == "results":
            self.page -= 1
        elif self.location == "item":
            self.location, self.asin, self.chosen = "results", "", {}
        else:
            self.location = "item"

    def _buy(self) -> Outcome:
        result = self.score_purchase(self.product, self.chosen)
        solved = result.reward == 1.0
        info = {"score": result.reward, **result.as_info(), "asin": self.asin, "clickables": []}
        text = pages.format_page(pages.done_page(result.reward), self.mode)
        return Outcome(text, result.reward, "solved" if solved else "lost", info=info)

    def score_purchase(self, product: Product, chosen: dict[str, str]) -> Score:
        """Score a purchase against this episode's goal."""
        return score(product, self.goal, list(chosen.values()), self._nouns)

    # Pages

    @property
    def product(self) -> Product:
        """The product whose page is open."""
        return self.shop.products[self.shop.number_of[self.asin]]

    def _sub_pages(self) -> tuple[str, ...]:
        return SUB_PAGES if self.show_attributes else SUB_PAGES[:-1]

    def _elements(self) -> list[Element]:
        instruction = self.goal.instruction
        if self.location == "search":
            return pages.search_page(instruction)
        if self.location == "results":
            first = (self.page - 1) * PAGE_SIZE
            products = [self.shop.products[number] for number in self._results[first : first + PAGE_SIZE]]
            return pages.results_page(instruction, products, self.page, len(self._results), self._seen)
        if self.location == "item":
            return pages.item_page(instruction, self.product, self.chosen, attributes=self.show_attributes)
        return pages.sub_page(instruction, self.product, self.location)

    def _page_text(self) -> str:
        return pages.format_page(self._elements(), self.mode)

    def clickables(self) -> list[str]:
        """Return the values that can be clicked on the current page, in reading order."""
        return [element.text for element in self._elements() if element.clickable]

    def render(self, mode: str = "text") -> str | None:
        """Return the current page as rich text (`mode="text"`) or HTML (`mode="html"`), or None for other modes."""
        page_mode: Mode | None = {"text": "text_rich", "html": "html"}.get(mode)  # type: ignore[assignment]
        if page_mode is None or self.ending == "reset":
            return None
        return pages.format_page(self._elements(), page_mode)

    # Players

    def example_action(self) -> str:
        return _EXAMPLE

    def sample_random_action(self) -> str:
        clickables = self.clickables()
        if clickables:
            return f"click[{self.player_rng.choice(clickables)}]"
        words = re.findall(r"[a-z0-9]+", self.goal.instruction.lower()) or ["anything"]
        first = self.player_rng.randrange(len(words))
        return f"search[{' '.join(words[first : first + 3])}]"

    def expert_action(self) -> str | None:
        if self._plan is None:
            self._plan = self._make_plan()
        keywords, index, asin, options = self._plan
        if self.location in SUB_PAGES and self.asin == asin:
            return f"click[{PREV}]"
        if self.location == "item" and self.asin == asin:
            missing = [value for name, value in options if self.chosen.get(name) != value]
            return f"click[{missing[0]}]" if missing else f"click[{BUY}]"
        if self.location == "results" and self.keywords == keywords:
            page = index // PAGE_SIZE + 1
            return f"click[{asin if page == self.page else NEXT if page > self.page else PREV}]"
        return f"search[{keywords}]"

    def _make_plan(self) -> Plan:
        """Plan to buy the first search result that earns the full reward, or the best result if there is none."""
        goal = self.goal
        best: tuple[float, Plan] | None = None
        terms = " ".join((*goal.attributes, goal.query, *goal.options)).replace("[", " ").replace("]", " ")
        for keywords in (terms, goal.name.replace("[", " ").replace("]", " ")):
            keywords = keywords[:MAX_KEYWORD_CHARS].strip()
            for index, number in enumerate(self.shop.search(keywords)):
                product = self.shop.products[number]
                options = _matching_options(product, goal)
                reward = self.score_purchase(product, dict(options)).reward
                if best is None or reward > best[0]:
                    best = (reward, (keywords, index, product.asin, options))
                if reward == 1.0:
                    return best[1]
        return (goal.query, 0, goal.asin, ()) if best is None else best[1]


def read_action(reply: str) -> tuple[str, str] | None:
    r"""Return the verb and the value of the last `search[...]` or `click[...]` in a reply.

    The value may contain brackets, and the action may be enclosed in \boxed{}.
    """
    text = reply[-MAX_REPLY_CHARS:]
    last: tuple[str, int, int] | None = None
    opened: list[tuple[str | None, int]] = []
    for bracket in _BRACKET.finditer(text):
        if bracket[0] != "]":
            opened.append((bracket[1], bracket.end()))
        elif opened:
            verb, start = opened.pop()
            if verb is not None:
                last = (verb.lower(), start, bracket.start())
    return None if last is None else (last[0], text[last[1] : last[2]].strip())


def _matching_options(product: Product, goal: Goal) -> tuple[tuple[str, str], ...]:
    """Return a matching product option for each goal option, preferring exact matches."""
    chosen: dict[str, str] = {}
    for wanted in goal.options:
        candidates = [
            (value != wanted, -token_set_ratio(color_of(value), color_of(wanted)), name, value)
            for name, values in product.options
            if name not in chosen
            for value in values
            if token_set_ratio(color_of(value), color_of(wanted)) > SIMILAR
        ]
        if candidates:
            _, _, name, value = min(candidates)
            chosen[name] = value
    return tuple(chosen.items())
