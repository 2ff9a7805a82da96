"""Test that the generated catalog depends only on the seed, can have any size, and has a product for every goal."""

from __future__ import annotations

import pytest

from palestra.envs.webshop.env import WebShop, _matching_options
from palestra.envs.webshop.generate import FAMILY, goals, products
from palestra.envs.webshop.goods import KINDS
from palestra.envs.webshop.phrases import ATTRIBUTE_PHRASES, KIND_PHRASES
from palestra.envs.webshop.product import NO_LIMIT
from palestra.envs.webshop.reward import score
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
        assert all(value in goal.instruction for value in goal.options)
        assert all(ATTRIBUTE_PHRASES[attribute] in goal.instruction for attribute in goal.attributes)
        assert KIND_PHRASES[goal.query] in goal.instruction
        assert ("price lower than" in goal.instruction) == (goal.price_upper != NO_LIMIT)


def test_instructions_do_not_repeat_the_words_of_products() -> None:
    assert set(KIND_PHRASES) == {kind.query for kind in KINDS}
    assert set(ATTRIBUTE_PHRASES) == {attribute for kind in KINDS for attribute in kind.attributes}
    assert not [name for name, phrase in {**KIND_PHRASES, **ATTRIBUTE_PHRASES}.items() if name in phrase]


def test_other_members_of_a_family_do_not_meet_the_requirements() -> None:
    wanted = goals(3, SMALL)
    by_asin = {product.asin: number for number, product in enumerate(SMALL)}
    also_right = 0
    for goal in wanted:
        number = by_asin[goal.asin]
        first = number - number % FAMILY
        titles = {product.name.replace(product.image[:-4].upper(), "") for product in SMALL[first : first + FAMILY]}
        assert len(titles) == 1  # the titles differ only in the model
        for sibling in SMALL[first : first + FAMILY]:
            if sibling.asin != goal.asin:
                also_right += score(sibling, goal, list(dict(_matching_options(sibling, goal)).values())).reward == 1
    assert also_right < 0.15 * 3 * len(wanted)


def test_buying_the_first_result_of_a_search_for_the_instruction_rarely_succeeds() -> None:
    env = WebShop(data_split="all")
    wins = sum(buy_first_result(env, seed) for seed in range(300))
    assert wins < 0.35 * 300


def buy_first_result(env: WebShop, seed: int) -> bool:
    """Search for the instruction, open the first result, choose the options that the instruction names, and buy."""
    _, info = env.reset(seed=seed)
    wish = info["instruction"]
    found = env.step(f"search[{wish}]").info["clickables"]
    env.step(f"click[{next(value for value in found if value in env.shop.number_of)}]")
    for _, values in env.product.options:
        named = [value for value in values if value in wish]
        if named:
            env.step(f"click[{max(named, key=len)}]")
    return bool(env.step("click[Buy Now]").info["success"])


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
