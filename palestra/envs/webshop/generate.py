"""Generate a catalog of products and goals from a seed.

Each product depends only on the seed and its own number, so a smaller catalog is a prefix of a larger one. Every
attribute of a product occurs in a text that the agent can read: the title, the features or the description.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from palestra.envs.webshop.goods import BRAND_ENDS, BRAND_STARTS, KINDS, Kind
from palestra.envs.webshop.product import NO_LIMIT, Goal, Product, Review
from palestra.seeding import child_seed

GOALS_PER_PRODUCT = 3  # maximum number of goals per product; duplicate instructions are dropped
_CENTS = (0, 49, 75, 95, 99, 99)
_ASINS = 36**8
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LETTERS = "ABCDEFGHJKLMNPRSTVWXYZ"

_FEATURES = (
    "{Attribute}: made with everyday {use} in mind.",
    "{Attribute} - you will notice the difference from the first day.",
    "Designed for {use}; {attribute} and built to last.",
    "{Attribute}. Ask us anything, we answer within a day.",
    "Our customers chose it because it is {attribute}.",
)
_PLAIN_FEATURES = (
    "A thoughtful present for friends and family.",
    "If it is not right for you, send it back within 30 days.",
    "Packed without plastic wherever we can.",
    "Checked by hand before it leaves our workshop.",
)
_DESCRIPTIONS = (
    "{brand} has made {plural} for people who care about details. This one was developed for {use}.",
    "Looking for something that works for {use}? This {noun} from {brand} does what it says, day after day.",
    "The {noun} {model} belongs to the {brand} range for {use}.",
)
_REVIEWS = (
    ("Exactly as described", "I bought it for {use} and it does the job. {Attribute}, as promised."),
    ("Good value", "Does what it should. Delivery took a little longer than expected."),
    ("Not for me", "I expected more for the price, though others may like it."),
    ("Would buy again", "My second one from {brand}. Works well for {use}."),
    ("Nice", "Looks better than in the pictures."),
)
_INSTRUCTIONS = (
    "i am looking for {a}{attributes}{noun}{options}{price}",
    "i need {a}{attributes}{noun}{options}{price}",
    "find me {a}{attributes}{noun}{options}{price}",
    "i want to buy {a}{attributes}{noun}{options}{price}",
    "please get me {a}{noun}, {listed}{options}{price}",
    "i would like {a}{noun}, {listed}{options}{price}",
)
PRICE_STEPS = tuple(10.0 * step for step in range(1, 100))  # possible price limits, in dollars


def products(seed: int, count: int) -> list[Product]:
    """Generate the first `count` products of the catalog."""
    return [_product(seed, number) for number in range(count)]


def _product(seed: int, number: int) -> Product:
    rng = Random(child_seed(seed, "product", number))
    kind = rng.choice(KINDS)
    brand = rng.choice(BRAND_STARTS) + rng.choice(BRAND_ENDS)
    noun = rng.choice(kind.nouns)
    use = rng.choice(kind.uses)
    model = f"{rng.choice(_LETTERS)}{rng.choice(_LETTERS)}{number + 100}"  # unique within a catalog
    attributes = rng.sample(kind.attributes, rng.randint(3, min(6, len(kind.attributes))))
    shown = {"brand": brand, "noun": noun.lower(), "plural": _plural(kind.query), "use": use, "model": model}
    price = rng.randint(*kind.prices) + rng.choice(_CENTS) / 100
    return Product(
        asin=_asin(seed, number),
        name=_title(rng, brand, noun, model, use, attributes[0]),
        category=kind.category,
        query=kind.query,
        product_category=kind.path,
        description=f"{rng.choice(_DESCRIPTIONS).format(**shown)} {attributes[-1].capitalize()}.",
        bullet_points=_features(rng, attributes[1:-1], use),
        price=price,
        price_tag=f"${price:.2f}",
        options=_options(rng, kind),
        attributes=tuple(sorted(attributes)),
        rating=f"{rng.randint(31, 50) / 10:.1f}",
        reviews=_reviews(rng, attributes, shown),
        image=f"{model.lower()}.jpg",
    )


def _title(rng: Random, brand: str, noun: str, model: str, use: str, attribute: str) -> str:
    attribute = attribute.title()
    return rng.choice((
        f"{brand} {attribute} {noun} {model} for {use.title()}",
        f"{brand} {noun} {model}, {attribute}",
        f"{brand} {model} {noun} - {attribute}, Ideal for {use.title()}",
        f"{noun} by {brand} ({model}) {attribute}",
    ))  # fmt: skip


def _features(rng: Random, attributes: Sequence[str], use: str) -> tuple[str, ...]:
    features = [
        rng.choice(_FEATURES).format(Attribute=attribute.capitalize(), attribute=attribute, use=use)
        for attribute in attributes
    ]
    features += rng.sample(_PLAIN_FEATURES, rng.randint(1, 2))
    rng.shuffle(features)
    return tuple(features)


def _options(rng: Random, kind: Kind) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return a random subset of a kind's options, each with a random subset of its values, in the original order."""
    chosen = []
    for name, values in kind.options:
        if rng.random() < 0.85:
            offered = set(rng.sample(values, rng.randint(2, min(6, len(values)))))
            chosen.append((name, tuple(value for value in values if value in offered)))
    return tuple(chosen)


def _reviews(rng: Random, attributes: Sequence[str], shown: dict[str, str]) -> tuple[Review, ...]:
    written = []
    for title, body in rng.sample(_REVIEWS, rng.randint(0, 3)):
        text = body.format(Attribute=rng.choice(attributes).capitalize(), **shown)
        written.append(Review(title=title, score=f"{rng.randint(2, 5)}.0", body=text))
    return tuple(written)


def _asin(seed: int, number: int) -> str:
    """Return an identifier of ten letters and digits. It is unique because the factor is coprime to 36."""
    code = (number * 2_425_967_623_051 + child_seed(seed, "asin")) % _ASINS
    text = ""
    for _ in range(8):
        code, digit = divmod(code, 36)
        text += _DIGITS[digit]
    return f"B0{text}"


def _plural(noun: str) -> str:
    return noun if noun.endswith(("s", "coffee", "pasta", "fruit", "oil", "tea")) else f"{noun}s"


def goals(seed: int, catalogue: Sequence[Product]) -> list[Goal]:
    """Generate goals that require some attributes and options of a product and a price below a limit."""
    seen: set[str] = set()
    unique = []
    for product in catalogue:
        rng = Random(child_seed(seed, "goals", product.asin))
        for goal in _goals(rng, product):
            if goal.instruction not in seen:  # two goals with the same text could require different products
                seen.add(goal.instruction)
                unique.append(goal)
    return unique


def _goals(rng: Random, product: Product) -> Iterator[Goal]:
    for _ in range(GOALS_PER_PRODUCT):
        attributes = rng.sample(product.attributes, min(len(product.attributes), rng.randint(1, 3)))
        options = [(name, rng.choice(values)) for name, values in product.options if rng.random() < 0.8]
        upper = price_limit(rng, product.price)
        yield Goal(
            asin=product.asin,
            query=product.query,
            name=product.name,
            product_category=product.product_category,
            instruction=_instruction(rng, product.query, attributes, options, upper),
            attributes=tuple(attributes),
            options=tuple(value for _, value in options),
            price_upper=upper,
        )


def price_limit(rng: Random, price: float) -> float:
    """Return a random price limit, sampled by the same rule as in WebShop.

    The limit is the larger of two values sampled from the next four multiples of ten above the price.
    """
    above = [step for step in PRICE_STEPS if step > price][:4]
    return max(rng.sample(above, 2)) if len(above) >= 2 else NO_LIMIT


def price_text(upper: float) -> str:
    return "" if upper == NO_LIMIT else f", and price lower than {upper:.2f} dollars"


def _instruction(
    rng: Random, noun: str, attributes: Sequence[str], options: Sequence[tuple[str, str]], upper: float
) -> str:
    before = ", ".join(attributes) + " "
    template = rng.choice(_INSTRUCTIONS)
    first = before if "{attributes}" in template else noun
    plural = _plural(noun) == noun
    article = "" if plural else ("an " if first[0] in "aeiou" else "a ")
    return template.format(
        a=article,
        attributes=before,
        listed=" and ".join(attributes),
        noun=noun,
        options="".join(f", {_option(name, value)}" for name, value in options),
        price=price_text(upper),
    )


def _option(name: str, value: str) -> str:
    if name in ("color", "size", "style"):
        return f"in {name} {value}"
    return f"with {name} {value}"
