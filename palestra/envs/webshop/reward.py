"""Compute the reward for a purchase, from 0 to 1, as published by WebShop (Yao et al. 2022, section 3, and its code).

    r = r_type * (attributes matched + options matched + [price <= limit]) / (attributes + options + 1)

- Attributes: a goal attribute matches if a product attribute is similar (token set ratio above 85), or if it occurs in
  the title, the features or the description.
- Options: a goal option matches if a chosen option is similar (above 85). Options that contain a color word are reduced
  to the first color word before they are compared.
- r_type is 1 if the goal's search term equals the product's, or two steps of the category path are shared, or more than
  a fifth of the nouns in the goal's title occur in the title of the purchased product; otherwise it is 0.5. It is 0.1
  if less than a tenth of the nouns occur, and 0 if none of them occurs.

Only the detection of nouns differs. WebShop uses a spaCy model, which tags nearly every word of a title as a noun. In
this module, a word counts as a noun if it contains no digits, is not a function word, and does not end in "ed" like a
participle. On the four pairs of titles in WebShop's tests, both methods return the same fractions. The environment's
`nouns` argument replaces this method, for example with a function that calls spaCy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from palestra.envs.webshop.product import STEP, Goal, Product
from palestra.optional import require

Nouns = Callable[[str], list[str]]

SIMILAR = 85  # texts with a higher token set ratio match
MAX_COMPARED_CHARS = 2_000
# The order matters, because an option is reduced to the first color in this list that occurs in it.
_COLOR_TEXT = (
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel "
    "camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry "
    "cream crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey "
    "heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight "
    "mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow "
    "red rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal "
    "tiger turquoise violet walnut wheat white wine yellow"
)
COLORS = tuple(_COLOR_TEXT.split())
_FUNCTION_TEXT = (
    "a about after all also an and any are as at be before best between by can each easy every extra for from has "
    "have his her i ideal if in into is it its like more most my new no non not of off on or our out over per set "
    "so such than that the their these this to under up use very we with without you your"
)
_FUNCTION_WORDS = frozenset(_FUNCTION_TEXT.split())
_WORD = re.compile(r"[^\W_]+(?:[.'&][^\W_]+)*\.?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The reward and its components, with the same names as in WebShop."""

    reward: float
    r_type: float
    r_att: float
    r_option: float | None  # None if the goal has no options
    r_price: bool
    query_match: bool
    category_match: bool
    title_score: float

    def as_info(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if name != "reward"}


@lru_cache(maxsize=65_536)
def token_set_ratio(text: str, other: str) -> int:
    """Return the similarity of two texts as sets of words, from 0 to 100, as computed by the thefuzz package."""
    fuzz: Any = require("rapidfuzz.fuzz", extra="webshop")
    utils: Any = require("rapidfuzz.utils", extra="webshop")
    ascii_texts = (one[:MAX_COMPARED_CHARS].encode("ascii", "ignore").decode() for one in (text, other))
    ratio: float = fuzz.token_set_ratio(*ascii_texts, processor=utils.default_process)
    return round(ratio)


def score(product: Product, goal: Goal, chosen: Collection[str], nouns: Nouns | None = None) -> Score:
    """Score the purchase of `product` with the `chosen` options."""
    r_type, query, category, title = _type(product, goal, nouns or title_words)
    matching_attributes = sum(_has(product, attribute) for attribute in goal.attributes)
    selected = [color_of(value) for value in chosen]
    matching_options = sum(
        any(token_set_ratio(value, wanted) > SIMILAR for value in selected) for wanted in map(color_of, goal.options)
    )
    price = product.price <= goal.price_upper
    parts = len(goal.attributes) + len(goal.options) + 1
    return Score(
        reward=r_type * (matching_attributes + matching_options + price) / parts,
        r_type=r_type,
        r_att=matching_attributes / len(goal.attributes) if goal.attributes else 1.0,
        r_option=matching_options / len(goal.options) if goal.options else None,
        r_price=price,
        query_match=query,
        category_match=category,
        title_score=title,
    )


def _type(product: Product, goal: Goal, nouns: Nouns) -> tuple[float, bool, bool, float]:
    query = product.query == goal.query
    category = len(_steps(product.product_category) & _steps(goal.product_category)) >= 2
    wanted = nouns(goal.name)  # repeated words lower the fraction, as in WebShop
    title = len(set(nouns(product.name)) & set(wanted)) / len(wanted) if wanted else 0.2
    if title == 0:
        return 0.0, query, category, title
    if title < 0.1:
        return 0.1, query, category, title
    return (1.0 if query or category or title > 0.2 else 0.5), query, category, title


def _steps(path: str) -> set[str]:
    return {step.strip() for step in path.split(STEP)}


def _has(product: Product, attribute: str) -> bool:
    return (
        any(token_set_ratio(own, attribute) > SIMILAR for own in product.attributes)
        or attribute in product.name.lower()
        or attribute in " ".join(product.bullet_points).lower()
        or attribute in product.description.lower()
    )


def color_of(option: str) -> str:
    """Return the first color word in an option's value, or the value itself."""
    return next((color for color in COLORS if color in option), option)


def title_words(title: str) -> list[str]:
    """Return the words of a title that count as nouns, in lowercase."""
    words = (word.lower() for word in _WORD.findall(title))
    return [word for word in words if not any(c.isdigit() for c in word) and not _is_not_noun(word)]


def _is_not_noun(word: str) -> bool:
    if len(word) == 1 or word in _FUNCTION_WORDS:
        return True
    # A participle such as "listed", but not "red" or "speed".
    return len(word) > 5 and word.endswith("ed") and not word.endswith("eed")
