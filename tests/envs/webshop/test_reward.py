"""Compare the reward with values from WebShop's tests, with the thefuzz package, and with the published formula."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.envs.webshop.generate import goals, products
from palestra.envs.webshop.product import Goal, Product
from palestra.envs.webshop.reward import color_of, score, title_words, token_set_ratio

RATIOS = [  # computed with thefuzz 0.22
    ("profile bottle fade button", "profile bottle fade merino natural", 84),
    ("rod drawstring sulfate", "rod drazstring sulfate support", 81),
    ("quiet brightness", "quiet brightnessbgrip", 86),
    ("replaceable highly", "reylaceable highly essential strap", 65),
    ("resistant fit resistant touch", "resistant fit water slip", 81),
    ("gmo strap", "gmo strapaadjustable", 62),
    ("bottle flashlight cut", "bottle flashlight rgc toe", 89),
    ("cold protection head wind", "bold protection head wind", 96),
    ("slots cool", "slots cozl oil", 83),
    ("wood free non", "wood fyee non foldable", 76),
    ("hands sulfite density wash", "hands sulfite low needed", 70),
    ("straps noise design", "straps noise hands free", 77),
    ("high efficient swappable", "high ecficient", 68),
    ("heavy pocket free", "heavy pocket batch olive", 83),
    ("cruelty", "yruelty", 86),
    ("non bristle water", "non bristle wateralight egg", 79),
    ("shea caffeine", "shea sulfite", 64),
    ("gluten needed insulated", "gluten needed adjustable keys", 72),
    ("handle transfer gmo", "handle spandex", 61),
    ("glass to", "glass bag platey", 77),
    ("weight tracking gmo", "weight tracking amo", 95),
    ("moisture arm plated dried", "moisture arm wrinklb", 75),
    ("regular safe", "regular saae", 92),
    ("monitor", "monitcr free", 63),
    ("essential oil", "essential oils", 96),
    ("tea tree", "tea bag", 60),
    ("cool powder snow", "powder snow", 100),
    ("xl", "xx-large", 20),
    ("pack of 12", "pack of 6", 88),
    ("machine wash", "machine washable", 86),
    ("", "", 0),
    ("", "a", 0),
    ("!!!", "a", 0),
    ("Grey", "grey", 100),
    ("a b c", "c d", 50),
    ("12 ounce (pack of 1)", "12 ounce (pack of 2)", 94),
    ("heavy duty", "heavy-duty steel", 100),
    ("café au lait", "cafe au lait", 96),
    ("a_b", "a b", 100),
    ("abc def", "abd deg", 71),
]
CATALOGUE = products(5, 60)
GOALS = goals(5, CATALOGUE)
BY_ASIN = {product.asin: product for product in CATALOGUE}


@pytest.mark.parametrize(("one", "other", "ratio"), RATIOS)
def test_token_set_ratio_equals_thefuzz(one: str, other: str, ratio: int) -> None:
    assert token_set_ratio(one, other) == ratio
    assert token_set_ratio(other, one) == ratio


@given(st.text(max_size=60), st.text(max_size=60))
def test_token_set_ratio_is_symmetric_and_bounded(one: str, other: str) -> None:
    assert 0 <= token_set_ratio(one, other) == token_set_ratio(other, one) <= 100


@given(st.lists(st.sampled_from(["red", "green", "deep", "blue", "dusk"]), min_size=1))
def test_order_and_repetition_do_not_matter(words: list[str]) -> None:
    assert token_set_ratio(" ".join(words), " ".join(sorted(set(words)))) == 100


def item(**changes: object) -> Product:
    plain: dict[str, object] = {
        "asin": "B000000001",
        "name": "Name 1",
        "category": "beauty",
        "query": "query 1",
        "product_category": "a \u203a b \u203a c",
        "description": "",
        "bullet_points": (),
        "price": 35.0,
        "price_tag": "$35.0",
        "options": (),
        "attributes": (),
    }
    return Product(**{**plain, **changes})  # type: ignore[arg-type]


def goal(**changes: object) -> Goal:
    plain: dict[str, object] = {
        "asin": "B000000001",
        "query": "query 1",
        "name": "Name 1",
        "product_category": "a \u203a b \u203a c",
        "instruction": "",
        "attributes": ("tea tree", "essential oils", "natural ingredients"),
        "options": (),
        "price_upper": 40.0,
    }
    return Goal(**{**plain, **changes})  # type: ignore[arg-type]


# Product names and noun fractions from WebShop's tests. The fractions were computed with its spaCy model.
CORD = "Saireed UL Listed 2 Prong Power Cord for JBL Bar 3.1 Bar 2.1 Channel 4K Ultra HD Soundbar"
OTHER_CORD = (
    "BRST AC Power Cord Outlet Socket Cable Plug Lead for Panasonic SC-HT830V DVD/VCR Combo Home Theater System"
)
TWEEZERS = "Minkissy 2pcs Stainless Steel Eyebrow Tweezers Blackhead Acne Remover Portable Makeup Tweezers (Silver)"


@pytest.mark.parametrize(
    ("wanted", "bought", "share"),
    [
        (
            "adidas Unisex-Adult D.o.n. Issue 2 Basketball Shoe",
            "adidas Unisex-Adult D.o.n. Issue 2 Indoor Court Shoe",
            0.85,
        ),
        (f"{CORD} Home Theater System Subwoofer", OTHER_CORD, 0.31),
        (CORD, OTHER_CORD, 0.17),
        ("Rusticware 921ORB Kitchen and Bath Cabinet Knob", TWEEZERS, 0.0),
    ],
)
def test_noun_fractions_equal_the_originals(wanted: str, bought: str, share: float) -> None:
    title_score = score(item(name=bought), goal(name=wanted), ()).title_score
    assert title_score == pytest.approx(share, abs=0.011)


@pytest.mark.parametrize(
    ("path", "match"),
    [
        ("b \u203a c \u203a a", True),
        ("d \u203a e \u203a f", False),
        ("a \u203a d \u203a b", True),
        ("a \u203a a \u203a d", False),
    ],
)
def test_two_shared_category_steps_match(path: str, match: bool) -> None:
    assert score(item(product_category=path), goal(), ()).category_match is match


def test_attributes_match_similar_ones_or_texts() -> None:
    assert score(item(attributes=("tea tree", "essential oil", "natural ingredients")), goal(), ()).r_att == 1
    assert score(item(attributes=("essential oil", "natural ingredients")), goal(), ()).r_att == pytest.approx(2 / 3)
    described = item(
        bullet_points=("This shampoo has essential oils and smells like lemons",),
        description="Best shampoo on the market, made with natural ingredients",
    )
    assert score(described, goal(), ()).r_att == pytest.approx(2 / 3)
    assert score(item(attributes=("tea bag", "earl gray"), name="English tea"), goal(), ()).r_att == 0


@pytest.mark.parametrize(
    ("wanted", "chosen", "share"),
    [
        (("grey", "XL", "pack of 12"), ("pack of 12", "grey", "XL"), 1),
        (("grey", "XL", "pack of 12"), ("pack of 12", "blue", "XL"), 2 / 3),
        (("cool powder snow", "XL", "pack of 12"), ("pack of 12", "powder snow", "XL"), 1),
        ((), ("goal 1", "goal 2"), None),
        (("goal 1", "goal 2"), (), 0),
    ],
)
def test_options(wanted: tuple[str, ...], chosen: tuple[str, ...], share: float | None) -> None:
    assert score(item(), goal(options=wanted), chosen).r_option == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    ("option", "color"),
    [
        ("", ""),
        ("black forest", "black"),
        ("violet lavender", "lavender"),
        ("steelivy fuchsia", "fuchsia"),
        ("123alabaster", "alabaster"),
        ("webshop", "webshop"),
    ],
)
def test_options_are_reduced_to_their_colour(option: str, color: str) -> None:
    assert color_of(option) == color


def test_rewards_equal_the_originals() -> None:
    """Check the values from the last test in WebShop's repository.

    That test passes the features as one string, so each character counts as a feature.
    """
    name = "Mens D.O.N. Issue 2 Gca Basketball Sneakers Shoes Casual - Off White"
    bought = item(name=name, attributes=("tea tree", "essential oil", "natural ingredients"))
    wanted = goal(name=name, options=("grey", "XL"))
    assert score(bought, wanted, ("grey", "XL")).reward == 1
    described = replace(
        bought,
        attributes=(),
        bullet_points=tuple("This shampoo has essential oils and smells like lemons"),
        description="Best shampoo on the market, made with natural ingredients",
    )
    assert score(described, wanted, ("grey", "XL")).reward == pytest.approx(2 / 3)
    wanted = replace(wanted, options=("grey", "XL", "pack of 12"))
    assert score(described, wanted, ("grey", "XL")).reward == pytest.approx(0.5714, abs=1e-3)
    wanted = replace(wanted, name=CORD)
    other = replace(described, name=OTHER_CORD, query="query 2", product_category="a \u203a d \u203a e")
    assert score(other, wanted, ("grey", "XL")).reward == pytest.approx(0.2857, abs=1e-3)


def test_the_type_multiplies_the_reward() -> None:
    far = {"query": "other", "product_category": "x"}
    assert score(item(name="Tin Box", **far), goal(name="Tin " + "Whistle Drum Flute Horn " * 3), ()).r_type == 0.1
    assert score(item(name="Tin Box", **far), goal(name="Tin Whistle Drum Flute Horn"), ()).r_type == 0.5
    assert score(item(name="Tin Box", **far), goal(name="Tin Whistle"), ()).r_type == 1.0
    assert score(item(name="Wool Hat"), goal(name="Tin Whistle"), ()).r_type == 0.0  # 0 despite the same query
    assert score(item(name="Wool Hat"), goal(name="2 x 4"), ()).r_type == 1.0  # no nouns at all


def test_a_custom_noun_function() -> None:
    assert score(item(name="a b c"), goal(name="c d"), (), str.split).title_score == 0.5
    assert title_words("Compact 3-Season Tent for Two, Insulated (XL200)") == ["compact", "season", "tent", "two"]


@given(st.integers(0, len(CATALOGUE) - 1), st.integers(0, len(GOALS) - 1), st.randoms(use_true_random=False))
def test_the_formula(number: int, wanted: int, rng: object) -> None:
    """The reward of any purchase is r_type times the fraction of requirements that it meets."""
    product, want = CATALOGUE[number], GOALS[wanted]
    chosen = [rng.choice(values) for _, values in product.options]  # type: ignore[attr-defined]
    result = score(product, want, chosen)
    options = (result.r_option or 0) * len(want.options)
    parts = result.r_att * len(want.attributes) + options + result.r_price
    whole = len(want.attributes) + len(want.options) + 1
    assert result.reward == pytest.approx(result.r_type * parts / whole)
    assert 0 <= result.reward <= 1


def test_the_goals_product_earns_the_full_reward() -> None:
    assert all(score(BY_ASIN[wanted.asin], wanted, wanted.options).reward == 1 for wanted in GOALS)
