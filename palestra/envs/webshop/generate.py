"""Generate a catalog of products and goals from a seed.

Each product depends only on the seed and its own number, so a smaller catalog is a prefix of a larger one. Every
attribute of a product occurs in a text that the agent can read: the title, the features or the description.

Products are generated in families of four that have the same title, apart from the model, and the same description. The
members differ in an attribute, in an option's values, or in the price. Instructions use different words than the
products (`phrases`), and their requirements exclude the other family members wherever possible. Therefore, the agent
has to find and compare suitable products: searching for the instruction and buying the first result rarely succeeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random

from palestra.envs.webshop.goods import BRAND_ENDS, BRAND_STARTS, KINDS, Kind
from palestra.envs.webshop.phrases import ATTRIBUTE_PHRASES, KIND_PHRASES
from palestra.envs.webshop.product import NO_LIMIT, Goal, Product, Review
from palestra.seeding import child_seed

FAMILY = 4  # number of products with nearly the same title and description
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
    "i am looking for {kind}{options}. it should {listed}{and_price}",
    "i need {kind}{options}, and it should {listed}{and_price}",
    "find me {kind}{options}. most of all, it should {listed}{and_price}",
    "i want to buy {kind}; it should {listed}{options}{and_price}",
    "it should {listed}: please get me {kind}{options}{with_price}",
)
PRICE_STEPS = tuple(10.0 * step for step in range(1, 100))  # possible price limits, in dollars


def products(seed: int, count: int) -> list[Product]:
    """Generate the first `count` products in the catalog."""
    return [_product(seed, number) for number in range(count)]


def _product(seed: int, number: int) -> Product:
    family = Random(child_seed(seed, "family", number // FAMILY))  # yields the same values for the whole family
    kind = family.choice(KINDS)
    brand = family.choice(BRAND_STARTS) + family.choice(BRAND_ENDS)
    noun = family.choice(kind.nouns)
    use = family.choice(kind.uses)
    attributes = family.sample(kind.attributes, family.randint(4, min(6, len(kind.attributes) - 1)))
    options = _options(family, kind)
    price = family.randint(*kind.prices) + family.choice(_CENTS) / 100
    title = family.choice(_TITLES)
    first_feature, description = family.choice(_PLAIN_FEATURES), family.choice(_DESCRIPTIONS)

    rng = Random(child_seed(seed, "product", number))
    member = number % FAMILY
    if member in (1, 3):  # replace an attribute that is neither in the title nor in the description
        others = [attribute for attribute in kind.attributes if attribute not in attributes]
        attributes[member // 2 + 1] = rng.choice(others)
    if member == 2:
        options = _other_values(rng, kind, options)
    if member == 3:
        price += rng.randint(21, 45)
    model = f"{rng.choice(_LETTERS)}{rng.choice(_LETTERS)}{number + 100}"  # unique within a catalog
    shown = {"brand": brand, "noun": noun.lower(), "plural": _plural(kind.query), "use": use, "model": model}
    return Product(
        asin=_asin(seed, number),
        name=title.format(brand=brand, noun=noun, model=model, use=use.title(), attribute=attributes[0].title()),
        category=kind.category,
        query=kind.query,
        product_category=kind.path,
        description=f"{description.format(**shown)} {attributes[-1].capitalize()}.",
        bullet_points=(first_feature, *_features(rng, attributes[1:-1], use)),
        price=price,
        price_tag=f"${price:.2f}",
        options=options,
        attributes=tuple(sorted(attributes)),
        rating=f"{rng.randint(31, 50) / 10:.1f}",
        reviews=_reviews(rng, attributes, shown),
        image=f"{model.lower()}.jpg",
    )


_TITLES = (
    "{brand} {attribute} {noun} {model} for {use}",
    "{brand} {noun} {model}, {attribute}",
    "{brand} {model} {noun} - {attribute}, Ideal for {use}",
    "{noun} by {brand} ({model}) {attribute}",
)


def _other_values(
    rng: Random, kind: Kind, options: tuple[tuple[str, tuple[str, ...]], ...]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Replace the first option's values with values that the other members do not offer, or drop half of them."""
    if not options:
        return options
    (name, offered), *others = options
    rest = [value for value in dict(kind.options)[name] if value not in offered]
    if len(rest) >= 2:
        chosen = set(rng.sample(rest, rng.randint(2, min(6, len(rest)))))
    else:
        chosen = set(rng.sample(offered, (len(offered) + 1) // 2))
    values = tuple(value for value in dict(kind.options)[name] if value in chosen)
    return ((name, values), *others)


def _features(rng: Random, attributes: Sequence[str], use: str) -> tuple[str, ...]:
    features = [
        rng.choice(_FEATURES).format(Attribute=attribute.capitalize(), attribute=attribute, use=use)
        for attribute in attributes
    ]
    rng.shuffle(features)
    return tuple(features)


def _options(rng: Random, kind: Kind) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return some of a kind's options, each with some of its values, chosen at random and in the original order."""
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
    """Return an identifier with ten letters and digits. It is unique because the factor is coprime to 36."""
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
    for number, product in enumerate(catalogue):
        rng = Random(child_seed(seed, "goals", product.asin))
        first = number - number % FAMILY
        siblings = [
            catalogue[other] if other < len(catalogue) else _product(seed, other)
            for other in range(first, first + FAMILY)
            if other != number
        ]
        for goal in _goals(rng, product, siblings):
            if goal.instruction not in seen:  # two goals with the same text could require different products
                seen.add(goal.instruction)
                unique.append(goal)
    return unique


def _goals(rng: Random, product: Product, siblings: Sequence[Product]) -> Iterator[Goal]:
    for _ in range(GOALS_PER_PRODUCT):
        attributes = rng.sample(product.attributes, min(len(product.attributes), rng.randint(1, 2)))
        options = {name: rng.choice(values) for name, values in product.options if rng.random() < 0.8}
        upper = price_limit(rng, product.price)
        for sibling in siblings:
            upper = _exclude(rng, product, sibling, attributes, options, upper)
        yield Goal(
            asin=product.asin,
            query=product.query,
            name=product.name,
            product_category=product.product_category,
            instruction=_instruction(rng, product.query, attributes, list(options.items()), upper),
            attributes=tuple(attributes),
            options=tuple(options.values()),
            price_upper=upper,
        )


def _exclude(
    rng: Random, product: Product, sibling: Product, attributes: list[str], options: dict[str, str], upper: float
) -> float:
    """If `sibling` meets all requirements, add one that only `product` meets, if possible; return the price limit."""
    offered = dict(sibling.options)
    if (
        sibling.price > upper
        or not set(attributes) <= set(sibling.attributes)
        or any(value not in offered.get(name, ()) for name, value in options.items())
    ):
        return upper
    own_attributes = [attribute for attribute in product.attributes if attribute not in sibling.attributes]
    if own_attributes:
        attributes.append(rng.choice(own_attributes))
        return upper
    own_values = [
        (name, value) for name, values in product.options for value in values if value not in offered.get(name, ())
    ]
    if own_values:
        name, value = rng.choice(own_values)
        options[name] = value
        return upper
    tighter = [step for step in PRICE_STEPS if product.price < step < sibling.price]
    return tighter[0] if tighter else upper


def price_limit(rng: Random, price: float) -> float:
    """Return a random price limit, sampled by the same rule as in WebShop.

    The limit is the larger of two samples from the next four multiples of ten above the price.
    """
    above = [step for step in PRICE_STEPS if step > price][:4]
    return max(rng.sample(above, 2)) if len(above) >= 2 else NO_LIMIT


def price_text(upper: float) -> str:
    return "" if upper == NO_LIMIT else f", and price lower than {upper:.2f} dollars"


def _instruction(
    rng: Random, query: str, attributes: Sequence[str], options: Sequence[tuple[str, str]], upper: float
) -> str:
    wishes = [ATTRIBUTE_PHRASES[attribute] for attribute in attributes]
    listed = wishes[0] if len(wishes) == 1 else f"{', '.join(wishes[:-1])} and {wishes[-1]}"
    price = "" if upper == NO_LIMIT else f"a price lower than {upper:.2f} dollars"
    return rng.choice(_INSTRUCTIONS).format(
        kind=KIND_PHRASES[query],
        listed=listed,
        options="".join(f", {_option(name, value)}" for name, value in options),
        and_price=price and f", and have {price}",
        with_price=price and f", with {price}",
    )


def _option(name: str, value: str) -> str:
    if name in ("color", "size", "style"):
        return f"in {name} {value}"
    return f"with {name}: {value}"
