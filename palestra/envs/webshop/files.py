"""Read products and goals from WebShop's own JSON files.

    items_shuffle.json      list of products            (items_shuffle_1000.json: the first thousand)
    items_ins_v2.json       attributes and generated instructions, by asin
    items_human_ins.json    instructions written by people, by asin
    reviews.json            ratings and reviews         (optional; not part of WebShop's download)

WebShop samples a price from each price range and a price limit for each instruction, with different results in every
process. This module derives both from the product's asin, so that they are reproducible.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from palestra.envs.webshop.generate import price_limit, price_text
from palestra.envs.webshop.product import Goal, Product, Review
from palestra.errors import BadValue, DataMissing
from palestra.seeding import child_seed

ITEMS = ("items_shuffle.json", "items_shuffle_1000.json")
ATTRIBUTES = ("items_ins_v2.json", "items_ins_v2_1000.json")
HUMAN = ("items_human_ins.json",)
REVIEWS = ("reviews.json",)
_NO_PRICE = 100.0  # WebShop's default for products without a price


def read_products(folder: Path, count: int | None) -> list[Product]:
    """Read the first `count` products from a folder with WebShop's files, or all products if `count` is None."""
    items = _read(folder, ITEMS, list)
    attributes = _read(folder, ATTRIBUTES, dict)
    reviews = {row["asin"]: row for row in _read(folder, REVIEWS, list, required=False) or []}
    products: dict[str, Product] = {}
    for number, row in enumerate(items[:count]):
        asin = str(row.get("asin", "nan"))
        if asin == "nan" or len(asin) > 10 or asin in products:
            continue
        try:
            products[asin] = _product(row, asin, attributes.get(asin) or {}, reviews.get(asin) or {})
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise BadValue(f"{folder}: item {number} ({asin}) does not have WebShop's format: {err!r}") from err
    if not products:
        raise DataMissing(f"{folder} contains no products")
    return list(products.values())


def read_goals(folder: Path, catalogue: Sequence[Product], *, human: bool) -> list[Goal]:
    """Read the goals written by people or, if `human` is false, the generated goals, one per combination of options."""
    if human:
        rows = _read(folder, HUMAN, dict)
        goals = [goal for product in catalogue for goal in _human(product, rows.get(product.asin) or ())]
    else:
        rows = _read(folder, ATTRIBUTES, dict)
        goals = [goal for product in catalogue for goal in _synthetic(product, rows.get(product.asin) or {})]
    if not goals:
        raise DataMissing(f"{folder} contains no goals for these {len(catalogue)} products; try human={not human}")
    return goals


def _product(row: Mapping[str, Any], asin: str, annotations: Mapping[str, Any], review: Mapping[str, Any]) -> Product:
    features = row["small_description"]
    price, tag = _price(asin, row.get("pricing"))
    return Product(
        asin=asin,
        name=str(row["name"]),
        category=str(row["category"]),
        query=str(row["query"]).lower().strip(),
        product_category=str(row["product_category"]),
        description=str(row["full_description"] or ""),
        bullet_points=tuple(map(str, features if isinstance(features, list) else [features or ""])),
        price=price,
        price_tag=tag,
        options=tuple(_options(row.get("customization_options") or {})),
        attributes=tuple(map(str, annotations.get("attributes") or ())),
        rating=str(review.get("average_rating", "N.A.")),
        reviews=tuple(
            Review(
                title=str(one.get("title", "")),
                score=str(one.get("score", one.get("stars", ""))),
                body=str(one.get("review", one.get("body", ""))),
            )
            for one in review.get("reviews") or ()
        ),
        image=str((row.get("images") or [""])[0]),
    )


def _price(asin: str, pricing: str | None) -> tuple[float, str]:
    prices = [float(re.sub(r"[^\d.]", "", part)) for part in (pricing or "").split("$")[1:]]
    if not prices:
        return _NO_PRICE, f"${_NO_PRICE}"
    if len(prices) == 1:
        return prices[0], f"${prices[0]}"
    low, high = prices[:2]
    return Random(child_seed(0, "price", asin)).uniform(low, high), f"${low} to ${high}"


def _options(rows: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, values in rows.items():
        if values is not None:
            yield name.lower(), tuple(value["value"].strip().replace("/", " | ").lower() for value in values)


def _human(product: Product, rows: Sequence[Mapping[str, Any]]) -> Iterator[Goal]:
    for number, row in enumerate(rows):
        if row["instruction_attributes"]:
            upper = price_limit(Random(child_seed(0, "limit", product.asin, number)), product.price)
            text = row["instruction"].strip(".") + price_text(upper)
            yield _goal(product, text, row["instruction_attributes"], row["instruction_options"], upper)


def _synthetic(product: Product, row: Mapping[str, Any]) -> Iterator[Goal]:
    text, attributes = row.get("instruction"), row.get("instruction_attributes")
    if not text or not attributes:
        return
    upper = price_limit(Random(child_seed(0, "limit", product.asin)), product.price)
    options = sorted(product.options)
    for chosen in itertools.product(*(values for _, values in options)):
        listed = ", and ".join(f"{name}: {value}" for (name, _), value in zip(options, chosen, strict=True))
        instruction = f"{text}{' with ' if listed else ''}{listed}{price_text(upper)}"
        yield _goal(product, instruction, attributes, chosen, upper)


def _goal(product: Product, text: str, attributes: Sequence[str], options: Any, upper: float) -> Goal:
    values = options.values() if isinstance(options, Mapping) else options
    return Goal(
        asin=product.asin,
        query=product.query,
        name=product.name,
        product_category=product.product_category,
        instruction=text,
        attributes=tuple(attributes),
        options=tuple(map(str, values)),
        price_upper=upper,
    )


def _read(folder: Path, names: Sequence[str], kind: type, *, required: bool = True) -> Any:
    path = next((folder / name for name in names if (folder / name).is_file()), None)
    if path is None:
        if not required:
            return None
        raise DataMissing(f"{folder} does not contain {' or '.join(names)}, which WebShop's setup.sh downloads")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as err:
        raise BadValue(f"{path} is not valid JSON: {err}") from err
    if not isinstance(content, kind):
        raise BadValue(f"{path} must contain a {kind.__name__} as in WebShop, got a {type(content).__name__}")
    return content
