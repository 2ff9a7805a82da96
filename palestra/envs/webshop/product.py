"""The nouns of the shop: a product, a review, and a goal, which is what somebody wants to buy."""

from __future__ import annotations

from dataclasses import dataclass

STEP = "\u203a"  # between the steps of a category
NO_LIMIT = 1_000_000.0  # dollars: the goal names no price


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    title: str
    score: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One article of the catalogue. Fields are those of WebShop's files, under plainer names."""

    asin: str  # ten letters and digits; what is clicked
    name: str  # the title
    category: str  # beauty, electronics, fashion, garden or grocery
    query: str  # what shoppers call this kind of thing
    product_category: str  # Home & Kitchen, Furniture, Chairs, with STEP between
    description: str
    bullet_points: tuple[str, ...]
    price: float
    price_tag: str  # as shown; files may hold a range
    options: tuple[tuple[str, tuple[str, ...]], ...]  # ("color", ("red", "navy"))
    attributes: tuple[str, ...]  # "machine washable"; the shop shows them only where it is asked to
    rating: str = "N.A."
    reviews: tuple[Review, ...] = ()
    image: str = ""

    def option_of(self, value: str) -> str | None:
        """The name of the first option that has `value`."""
        return next((name for name, values in self.options if value in values), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What is wanted, and the product it was made from."""

    asin: str
    query: str
    name: str
    product_category: str
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]  # values
    price_upper: float
