"""Data classes for products, their reviews, and goals, which contain a customer's requirements."""

from __future__ import annotations

from dataclasses import dataclass

STEP = "\u203a"  # separates the steps of a category path
NO_LIMIT = 1_000_000.0  # price limit, in dollars, of a goal without a limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    title: str
    score: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product in the catalog, with the fields from WebShop's files under simpler names."""

    asin: str  # product ID with ten letters and digits; clicking it opens the product
    name: str  # the title
    category: str  # beauty, electronics, fashion, garden or grocery
    query: str  # search term for this kind of product
    product_category: str  # a path such as Home & Kitchen, Furniture, Chairs, separated by STEP
    description: str
    bullet_points: tuple[str, ...]
    price: float
    price_tag: str  # the displayed price, which may be a range in WebShop's files
    options: tuple[tuple[str, tuple[str, ...]], ...]  # for example ("color", ("red", "navy"))
    attributes: tuple[str, ...]  # for example "machine washable"; shown only with `show_attributes`
    rating: str = "N.A."
    reviews: tuple[Review, ...] = ()
    image: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """The customer's requirements and the product from which they were derived."""

    asin: str
    query: str
    name: str
    product_category: str
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]  # option values, without the option names
    price_upper: float
