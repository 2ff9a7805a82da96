"""Tasks of a customer in the shop."""

from __future__ import annotations

from palestra.envs.web.shop.app import SHOP
from palestra.envs.web.shop.content import GOODS, OPINIONS, SHIPPING, STREETS, TODAY, USER, Product, money, shop
from palestra.envs.web.suite.app import Change
from palestra.envs.web.suite.markup import path
from palestra.envs.web.suite.tasks import NOT_POSSIBLE, Choose, Click, Draw, Enter, Fill, Move, Stop, Task, template

SITE = SHOP.name


def find(product: Product) -> tuple[Move, ...]:
    """Return the moves that open the page of a product."""
    return Enter("Search products", product.name), Click(product.name)


def in_stock(draw: Draw) -> list[Product]:
    return [product for product in shop(draw.data_seed).products if product.stock]


@template(SITE, level=1)
def price_of(draw: Draw) -> Task:
    first, second = draw.pair(shop(draw.data_seed).products)
    return Task(
        intent=f"What does the {first.name} cost?",
        answer=(first.price,),
        expert=(*find(first), Stop(first.price)),
        wrong=(*find(second), Stop(second.price)),
        evidence=(first.price,),
    )


@template(SITE, level=1)
def add_wish(draw: Draw) -> Task:
    content = shop(draw.data_seed)
    first, second = draw.pair(product for product in content.products if product.sku not in content.wishes)
    return Task(
        intent=f"Add the {first.name} to your wishlist.",
        changes=(Change(SITE, "INSERT INTO wish VALUES (?)", (first.sku,)),),
        expert=(*find(first), Click("Add to wishlist"), Stop()),
        wrong=(*find(second), Click("Add to wishlist"), Stop()),
    )


@template(SITE, level=1)
def fill_basket(draw: Draw) -> Task:
    product = draw.choice(in_stock(draw))
    count = draw.rng.randint(2, 9)
    return Task(
        intent=f"Put {count} pieces of the {product.name} into your basket. Do not order them.",
        changes=(Change(SITE, "INSERT INTO basket VALUES (?, ?)", (product.sku, count)),),
        expert=(*find(product), Fill("Quantity", str(count)), Click("Add to basket"), Stop()),
        wrong=(*find(product), Click("Add to basket"), Stop()),
    )


@template(SITE, level=1, held_out=True)
def order_state(draw: Draw) -> Task:
    mine = [order for order in shop(draw.data_seed).orders if order.customer == USER]
    order = draw.choice(mine)
    other = next(state for state in ("Canceled", "Returned") if state != order.state)
    return Task(
        intent=f"What is the state of your order {order.number}?",
        answer=(order.state,),
        expert=(Click("My orders"), Click(f"Order {order.number}"), Stop(order.state)),
        wrong=(Click("My orders"), Stop(other)),
        evidence=(order.state,),
    )


@template(SITE, level=1)
def open_product(draw: Draw) -> Task:
    first, second = draw.pair(shop(draw.data_seed).products)
    return Task(
        intent=f"Open the page of the {first.name} in the shop, and stop there.",
        url=SHOP.url + path("product", first.sku)[1:],
        expert=(*find(first), Stop()),
        wrong=(*find(second), Stop()),
    )


@template(SITE, level=2)
def cheapest(draw: Draw) -> Task:
    content = shop(draw.data_seed)
    kind = draw.choice(GOODS)
    order = sorted(content.of(kind), key=lambda product: product.cents)
    known = order[-1]  # makes the question specific to this data seed
    return Task(
        intent=f"Which product in the category {kind}, which also contains the {known.name}, is the cheapest? "
        "Answer with its name.",
        answer=(order[0].name, f"the {order[0].name}"),
        expert=(Click(kind), Stop(order[0].name)),
        wrong=(Click(kind), Stop(order[1].name)),
        evidence=(order[0].price, order[1].price),
    )


@template(SITE, level=2)
def review_product(draw: Draw) -> Task:
    product = draw.choice(shop(draw.data_seed).products)
    stars, other = draw.pair("12345")
    words = draw.choice(OPINIONS)
    insertion = "INSERT INTO review (sku, author, stars, text, state) VALUES (?, ?, ?, ?, 'pending')"
    ends: tuple[Move, ...] = (Fill("Review", words), Click("Send review"), Stop())
    return Task(
        intent=f'Send a review of the {product.name} with {stars} stars and the text "{words}"',
        changes=(Change(SITE, insertion, (product.sku, USER, int(stars), words)),),
        expert=(*find(product), Choose("Stars", stars), *ends),
        wrong=(*find(product), Choose("Stars", other), *ends),
    )


@template(SITE, level=2)
def cancel_order(draw: Draw) -> Task:
    content = shop(draw.data_seed)
    pending = [order.number for order in content.orders if order.customer == USER and order.state == "Pending"]
    number = draw.choice(pending)
    line = next(line for line in content.lines if line.number == number)
    opened: tuple[Move, ...] = (Click("My orders"), Click(f"Order {number}"))
    return Task(
        intent=f"Cancel your order {number}, in which you ordered the {content.product(line.sku).name}.",
        changes=(Change(SITE, "UPDATE orders SET state = 'Canceled' WHERE number = ?", (number,)),),
        expert=(*opened, Click("Cancel order"), Stop()),
        wrong=(*opened, Stop()),
    )


@template(SITE, level=2, held_out=True)
def move_house(draw: Draw) -> Task:
    _, _, street, city = next(row for row in shop(draw.data_seed).customers if row[0] == USER)
    new = f"{draw.rng.randint(91, 199)} {draw.choice(STREETS)}"
    return Task(
        intent=f"You have moved from {street} to {new} in {city}. Change the street in your account.",
        changes=(Change(SITE, "UPDATE customer SET street = ? WHERE name = ?", (new, USER)),),
        expert=(Click("Account"), Fill("Street", new), Click("Save"), Stop()),
        wrong=(Click("Account"), Fill("City", new), Click("Save"), Stop()),
    )


@template(SITE, level=2)
def no_such_product(draw: Draw) -> Task:
    content = shop(draw.data_seed)
    noun = draw.choice(noun for nouns in GOODS.values() for noun in nouns)
    similar = draw.choice(product for product in content.products if product.name.endswith(noun))
    name = f"{draw.choice(('Zephyr', 'Quartz', 'Umbra', 'Tiber'))} {noun}"
    return Task(
        intent=f"What does the {name} cost in the shop that sells the {similar.name}?",
        answer=(NOT_POSSIBLE,),
        expert=(Enter("Search products", name), Stop(NOT_POSSIBLE)),
        wrong=(Enter("Search products", noun), Stop(similar.price)),
        evidence=("No products found.",),
    )


@template(SITE, level=3)
def buy(draw: Draw) -> Task:
    first, second = draw.pair(in_stock(draw))
    counts = draw.rng.randint(2, 5), draw.rng.randint(1, 3)
    shipping, other = draw.pair(SHIPPING)
    number = max(order.number for order in shop(draw.data_seed).orders) + 1
    moves: list[Move] = []
    lines: list[Change] = []
    for product, count in zip((first, second), counts, strict=True):
        moves += [*find(product), Fill("Quantity", str(count)), Click("Add to basket")]
        line = (number, product.sku, count, product.cents)
        lines.append(Change(SITE, "INSERT INTO line VALUES (?, ?, ?, ?)", line))
    order = (number, USER, shipping, TODAY)
    return Task(
        intent=f"Order {counts[0]} pieces of the {first.name} and {counts[1]} of the {second.name} in one order, with "
        f"the shipping {shipping}.",
        changes=(Change(SITE, "INSERT INTO orders VALUES (?, ?, 'Pending', ?, ?)", order), *lines),
        expert=(*moves, Choose("Shipping", shipping), Click("Place order"), Stop()),
        wrong=(*moves, Choose("Shipping", other), Click("Place order"), Stop()),
    )


@template(SITE, level=3)
def spent_in_total(draw: Draw) -> Task:
    content = shop(draw.data_seed)
    numbers = [order.number for order in content.orders if order.customer == USER]
    first, second = draw.pair(numbers)
    total = content.total(first) + content.total(second)
    looks = tuple(move for number in (first, second) for move in (Click("My orders"), Click(f"Order {number}")))
    return Task(
        intent=f"How much did your orders {first} and {second} cost together?",
        answer=(money(total),),
        expert=(*looks, Stop(money(total))),
        wrong=(*looks[:2], Stop(money(content.total(first)))),
        evidence=(money(content.total(first)), money(content.total(second))),
    )
