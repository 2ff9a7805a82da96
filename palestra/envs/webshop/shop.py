"""Where a shop's products come from -> the shop: products, goals in their splits, and a search.

A shop is made once a process and shared by every env that asks for the same; it moves to other processes as its source.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from palestra.envs.tasks.order import row_at
from palestra.envs.webshop import files, generate
from palestra.envs.webshop.product import Product
from palestra.errors import BadValue
from palestra.optional import require

SPLITS = ("train", "dev", "test", "all")
FOUND = 50  # products a search leads to


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a shop is made of."""

    folder: str | None = None  # with WebShop's files; None: a generated catalogue
    products: int | None = 1000  # of a folder the first ones, None: all
    seed: int = 0  # of a generated catalogue
    human: bool = True  # of a folder: goals that people wrote


class Shop:
    """Products, what could be wanted of them, and BM25 over their texts with Lucene's usual settings."""

    def __init__(self, source: Source) -> None:
        self.source = source
        if source.folder is None:
            self.products = generate.products(source.seed, source.products or 0)
            goals = generate.goals(source.seed, self.products)
        else:
            folder = Path(source.folder)
            self.products = files.read_products(folder, source.products)
            goals = files.read_goals(folder, self.products, human=source.human)
        self.number_of = {product.asin: number for number, product in enumerate(self.products)}
        self.goals = [goals[row_at(place, len(goals), seed=233, epoch=0)] for place in range(len(goals))]
        self.key = _key(self.products)
        require("numpy", extra="webshop")
        from palestra.tools.search.corpus import cached_index

        self._index = cached_index(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return shop_of, (self.source,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Shop:
        return self

    def passages(self) -> Iterator[tuple[str, str, str]]:
        """What the search reads of each product: title, description, first feature and options, as in WebShop."""
        for product in self.products:
            options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options)
            yield product.asin, product.name, " ".join((product.description, *product.bullet_points[:1], options))

    def search(self, keywords: str) -> tuple[int, ...]:
        """The numbers of the products found, best first."""
        return tuple(number for number, _ in self._index.rank(keywords.lower(), FOUND))

    def split(self, name: str) -> range:
        """The goals of a split, by number. With WebShop's 12,087 goals: 500 test, 1,000 dev, the rest train."""
        if name not in SPLITS:
            raise BadValue(f"a split is one of {', '.join(SPLITS)}, got {name!r}")
        every = len(self.goals)
        test = min(500, every // 5)
        dev = test + min(1000, every // 5)
        places = {"test": range(test), "dev": range(test, dev), "train": range(dev, every), "all": range(every)}
        if not places[name]:
            raise BadValue(f"{every} goals are too few for a split {name!r}; take split='all' or more products")
        return places[name]


def _key(products: list[Product]) -> str:
    """Names the texts, so that an index of other texts is never taken for theirs."""
    digest = blake2b(digest_size=8)
    for product in products:
        digest.update(repr((product.asin, product.name, product.description)).encode("utf-8", "replace"))
        digest.update(repr((product.bullet_points[:1], product.options)).encode("utf-8", "replace"))
    return f"webshop-{len(products)}-{digest.hexdigest()}"


_shops: dict[tuple[Source, Any], Shop] = {}
_lock = threading.Lock()  # one maker at a time: the second asks for what the first has made


def shop_of(source: Source) -> Shop:
    """The shop of `source`, made now or before."""
    if source.folder is None and (not isinstance(source.products, int) or source.products < 1):
        raise BadValue(f"a generated shop has at least one product, got products={source.products!r}")
    if source.products is not None and source.products < 1:
        raise BadValue(f"products is at least 1, or None for all, got {source.products!r}")
    with _lock:
        key = (source, _stamp(source.folder))
        shop = _shops.get(key)
        if shop is None:
            shop = _shops[key] = Shop(source)
    return shop


def _stamp(folder: str | None) -> Any:
    """Changes when the files do, so that edited ones are read again."""
    if folder is None:
        return None
    return tuple(sorted((path.name, path.stat().st_mtime_ns) for path in Path(folder).glob("*.json")))
