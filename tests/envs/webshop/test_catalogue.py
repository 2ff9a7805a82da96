"""Test that the generated catalog depends only on the seed, can have any size, and has a product for every goal."""

from __future__ import annotations

import pytest

from palestra.envs.webshop.generate import goals, products
from palestra.envs.webshop.product import NO_LIMIT
from palestra.envs.webshop.shop import Source, shop_of
from palestra.errors import BadValue

SMALL = products(3, 300)


def test_the_catalogue_depends_on_the_seed() -> None:
    assert products(3, 300) == SMALL
    assert products(4, 300) != SMALL
    assert products(3, 40) == SMALL[:40]


def test_asins_and_titles_are_unique() -> None:
    assert len({product.asin for product in SMALL}) == len({product.name for product in SMALL}) == 300
    assert all(len(product.asin) == 10 and product.asin.isalnum() for product in SMALL)


def test_products_are_varied() -> None:
    assert {product.category for product in SMALL} == {"beauty", "electronics", "fashion", "garden", "grocery"}
    assert len({product.query for product in SMALL}) > 30
    assert {len(product.options) for product in SMALL} >= {0, 1, 2, 3}
    assert len({product.price for product in SMALL}) > 100


def test_every_attribute_occurs_in_a_text() -> None:
    for product in SMALL:
        texts = " ".join([product.name, *product.bullet_points, product.description]).lower()
        assert all(attribute in texts for attribute in product.attributes)


def test_goals_are_unique_and_affordable() -> None:
    wanted = goals(3, SMALL)
    prices = {product.asin: product.price for product in SMALL}
    assert len(wanted) == len({goal.instruction for goal in wanted}) > 800
    for goal in wanted:
        assert goal.price_upper > prices[goal.asin]
        assert goal.price_upper % 10 == 0
        assert all(part in goal.instruction for part in (*goal.attributes, *goal.options, goal.query))
        assert ("price lower than" in goal.instruction) == (goal.price_upper != NO_LIMIT)


def test_splits_partition_the_goals() -> None:
    shop = shop_of(Source(products=300, seed=3))
    parts = [set(shop.split(name)) for name in ("train", "dev", "test")]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(shop.goals)
    assert set(shop.split("all")) == set.union(*parts)
    assert len(parts[0]) > len(parts[1]) == len(parts[2]) == len(shop.goals) // 5
    wishes = [{shop.goals[number].instruction for number in part} for part in parts]
    assert not wishes[0] & wishes[2]


def test_a_shop_is_built_once() -> None:
    assert shop_of(Source(products=300, seed=3)) is shop_of(Source(products=300, seed=3))


def test_search_by_title_and_by_words() -> None:
    shop = shop_of(Source(products=300, seed=3))
    for number in range(0, 300, 7):
        assert shop.search(shop.products[number].name)[0] == number
    results = shop.search("running shoes")
    assert results
    assert all("shoes" in shop.products[number].name.lower() for number in results[:3])
    assert shop.search("zzzzqqq") == ()
    assert len(shop.search("for and with easy a pack of size color")) <= 50


@pytest.mark.parametrize("count", [0, -1, None])
def test_an_empty_shop_raises(count: int | None) -> None:
    with pytest.raises(BadValue, match="at least one product"):
        shop_of(Source(products=count))


def test_a_tiny_shop_has_no_test_goals() -> None:
    with pytest.raises(BadValue, match="too few"):
        shop_of(Source(products=1)).split("test")
