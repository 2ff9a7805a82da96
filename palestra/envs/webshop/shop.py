"""Build a shop with products, goals in splits, and a search index.

A shop is built once per process and shared by all environments with the same source. A pickled shop contains only its
source.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

from palestra.envs.tasks.order import row_at
from palestra.envs.webshop import files, generate
from palestra.envs.webshop.product import Product
from palestra.errors import BadValue
from palestra.optional import require

WEBSHOP_SEED = 233  # seed with which WebShop shuffles its goals
SPLITS = ("train", "dev", "test", "all")
MAX_RESULTS = 50  # maximum number of results per search


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Origin of a shop's products and goals."""

    folder: str | None = None  # folder with WebShop's files; None for a generated catalog
    products: int | None = 1000  # number of products; None for all products in a folder
    seed: int = 0  # seed for a generated catalog
    human: bool = True  # use the goals written by people instead of the generated ones (only with a folder)


class Shop:
    """Products, goals, and BM25 search over the products' texts with Lucene's default parameters."""

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
        if source.folder is None:
            self.goals = [goals[row_at(position, len(goals), seed=233, epoch=0)] for position in range(len(goals))]
        else:  # WebShop's own order, which determines its splits
            self.goals = goals
            Random(WEBSHOP_SEED).shuffle(self.goals)
        self.key = _key(self.products)
        require("numpy", extra="webshop")
        from palestra.tools.search.corpus import cached_index

        self._index = cached_index(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return shop_of, (self.source,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Shop:
        return self

    def passages(self) -> Iterator[tuple[str, str, str]]:
        """Yield the id, title and indexed text (description, first feature, options) of each product, as in WebShop."""
        for product in self.products:
            options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options)
            yield product.asin, product.name, " ".join((product.description, *product.bullet_points[:1], options))

    def search(self, keywords: str) -> tuple[int, ...]:
        """Return the numbers of the matching products, best first."""
        return tuple(number for number, _ in self._index.rank(keywords.lower(), MAX_RESULTS))

    def split(self, name: str) -> range:
        """Return the goal numbers in a split.

        As in WebShop, the first 500 goals are for testing, the next 1,000 for development, and the rest for training.
        The first two splits get at most a fifth of all goals each, unless there are more than 1,500 goals from
        WebShop's files.
        """
        if name not in SPLITS:
            raise BadValue(f"`data_split` must be one of {', '.join(SPLITS)}; got {name!r}")
        total = len(self.goals)
        test = min(500, total // 5)
        dev = test + min(1000, total // 5)
        if self.source.folder is not None and total > 1_500:
            test, dev = 500, 1_500
        splits = {"test": range(test), "dev": range(test, dev), "train": range(dev, total), "all": range(total)}
        if not splits[name]:
            raise BadValue(f"{total} goals are too few for the split {name!r}; use data_split='all' or more products")
        return splits[name]


def _key(products: list[Product]) -> str:
    """Return a fingerprint of the indexed texts, so that a cached index is reused only for the same texts."""
    digest = blake2b(digest_size=8)
    for product in products:
        digest.update(repr((product.asin, product.name, product.description)).encode("utf-8", "replace"))
        digest.update(repr((product.bullet_points[:1], product.options)).encode("utf-8", "replace"))
    return f"webshop-{len(products)}-{digest.hexdigest()}"


_shops: dict[tuple[Source, Any], Shop] = {}
_lock = threading.Lock()  # only one thread builds a shop; the others wait and use the result


def shop_of(source: Source) -> Shop:
    """Return the shop for `source`, building it if this process has not built it yet."""
    if source.folder is None and (not isinstance(source.products, int) or source.products < 1):
        raise BadValue(f"a generated shop must have at least one product, got products={source.products!r}")
    if source.products is not None and source.products < 1:
        raise BadValue(f"`products` must be at least 1, or None for all; got {source.products!r}")
    with _lock:
        key = (source, _stamp(source.folder))
        shop = _shops.get(key)
        if shop is None:
            shop = _shops[key] = Shop(source)
    return shop


def _stamp(folder: str | None) -> Any:
    """Return the modification times of the files, so that edited files are read again."""
    if folder is None:
        return None
    return tuple(sorted((path.name, path.stat().st_mtime_ns) for path in Path(folder).glob("*.json")))
