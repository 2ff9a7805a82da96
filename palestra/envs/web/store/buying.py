"""Tasks for a customer of the store."""

from __future__ import annotations

from palestra.envs.web.store.app import STORE
from palestra.envs.web.store.content import (
    CITIES,
    FIRST_NAME,
    GOODS,
    LAST_NAME,
    SHIPPING,
    STREETS,
    USER,
    Order,
    Product,
    Store,
    money,
    store,
)
from palestra.envs.web.suite.app import Change
from palestra.envs.web.suite.tasks import (
    NOT_POSSIBLE,
    Choose,
    Click,
    ClickAfter,
    Draw,
    Enter,
    Fill,
    Move,
    Stop,
    Task,
    template,
)

SITE = STORE.name
WISHES = "Default"  # name of the list that the store creates
FIRST_NUMBER = 100_001  # number of the first order that is placed
CART: Move = Click("View cart")


def find(product: Product) -> tuple[Move, ...]:
    """Return the moves that open the page of a product."""
    return Enter("Search", product.title), Click(product.title)


def history(order: Order) -> tuple[Move, ...]:
    return Click("Account"), Click("Order History"), Click(order.number)


def not_in_cart(content: Store) -> list[Product]:
    chosen = {product for product, _ in content.basket}
    return [product for product in content.in_stock if product not in chosen]


def added(product: Product, quantity: int = 1) -> Change:
    return Change(SITE, "INSERT INTO basket VALUES (?, 'Open', ?, ?)", (USER, product.title, quantity))


@template(SITE, level=1)
def store_price(draw: Draw) -> Task:
    first, second = draw.pair(store(draw.data_seed).products)
    return Task(
        intent=f"What does the {first.title} cost?",
        answer=(first.price,),
        expert=(*find(first), Stop(first.price)),
        wrong=(*find(second), Stop(second.price)),
        evidence=(first.price,),
    )


@template(SITE, level=1)
def store_stock(draw: Draw) -> Task:
    content = store(draw.data_seed)
    first = draw.choice(content.in_stock)
    second = draw.choice(product for product in content.in_stock if product.stock != first.stock)
    return Task(
        intent=f"How many pieces of the {first.title} are available?",
        answer=(str(first.stock),),
        expert=(*find(first), Stop(str(first.stock))),
        wrong=(*find(second), Stop(str(second.stock))),
        evidence=(f"{first.stock} available",),
    )


@template(SITE, level=1)
def store_open_product(draw: Draw) -> Task:
    first, second = draw.pair(store(draw.data_seed).products)
    return Task(
        intent=f"Open the page of the {first.title}.",
        url=f"{STORE.url}catalogue/{first.title.lower().replace(' ', '-')}_{first.id}/",
        expert=(*find(first), Stop()),
        wrong=(*find(second), Stop()),
    )


@template(SITE, level=1)
def store_add_to_cart(draw: Draw) -> Task:
    first, second = draw.pair(not_in_cart(store(draw.data_seed)))
    return Task(
        intent=f"Put one {first.title} into your cart.",
        changes=(added(first),),
        expert=(*find(first), Click("Add to cart"), Stop()),
        wrong=(*find(second), Click("Add to cart"), Stop()),
    )


@template(SITE, level=1, held_out=True)
def store_order_total(draw: Draw) -> Task:
    content = store(draw.data_seed)
    first, second = draw.pair(content.orders_of(content.user))
    return Task(
        intent=f"What was the total of your order {first.number}?",
        answer=(money(first.cents),),
        expert=(*history(first), Stop(money(first.cents))),
        wrong=(*history(second), Stop(money(second.cents))),
        evidence=(money(first.cents),),
    )


@template(SITE, level=2)
def store_add_wish(draw: Draw) -> Task:
    first, second = draw.pair(store(draw.data_seed).products)
    return Task(
        intent=f"Add the {first.title} to your wish list.",
        changes=(Change(SITE, "INSERT INTO wish VALUES (?, ?, ?, 1)", (USER, WISHES, first.title)),),
        expert=(*find(first), Click("Add to wish list"), Stop()),
        wrong=(*find(second), Click("Add to wish list"), Stop()),
    )


@template(SITE, level=2)
def store_missing_product(draw: Draw) -> Task:
    content = store(draw.data_seed)
    noun = draw.choice(noun for nouns in GOODS.values() for noun in nouns)
    similar = draw.choice(product for product in content.products if product.title.endswith(f" {noun}"))
    title = f"{draw.choice(('Quaver', 'Rondo', 'Tempo', 'Vesper'))} {noun}"
    return Task(
        intent=f"What does the {title} cost in the store that sells the {similar.title}?",
        answer=(NOT_POSSIBLE,),
        expert=(Enter("Search", title), Stop(NOT_POSSIBLE)),
        wrong=(Enter("Search", noun), Stop(similar.price)),
        evidence=("Found 0 results",),
    )


@template(SITE, level=2)
def store_cheapest(draw: Draw) -> Task:
    content = store(draw.data_seed)
    kind = draw.choice(GOODS)
    order = sorted(content.of(kind), key=lambda product: product.cents)
    known = order[-1]  # names the store of this data seed
    opened: tuple[Move, ...] = (Click(kind), Choose("Sort by", "Price low to high"))
    return Task(
        intent=f"Which product in the category {kind}, which also contains the {known.title}, is the cheapest? "
        "Answer with its name.",
        answer=(order[0].title, f"the {order[0].title}"),
        expert=(*opened, Stop(order[0].title)),
        wrong=(*opened, Stop(order[1].title)),
        evidence=(order[0].price, order[1].price),
    )


@template(SITE, level=2)
def store_remove_from_cart(draw: Draw) -> Task:
    first, second = draw.pair(product for product, _ in store(draw.data_seed).basket)
    return Task(
        intent=f"Remove the {first.title} from your cart.",
        changes=(Change(SITE, "DELETE FROM basket WHERE product = ?", (first.title,)),),
        expert=(CART, ClickAfter(first.title, "Remove"), Stop()),
        wrong=(CART, ClickAfter(second.title, "Remove"), Stop()),
    )


@template(SITE, level=2)
def store_use_coupon(draw: Draw) -> Task:
    content = store(draw.data_seed)
    first, second = draw.pair(content.vouchers)
    product, _ = content.basket[0]

    def used(code: str) -> tuple[Move, ...]:
        return CART, Click("I have a coupon code..."), Fill("Code", code), Click("Add coupon"), Stop()

    return Task(
        intent=f"Add the coupon code {first.code} to your cart, which contains the {product.title}. Do not order.",
        changes=(Change(SITE, "INSERT INTO basket_voucher VALUES (?, ?)", (USER, first.code)),),
        expert=used(first.code),
        wrong=used(second.code),
    )


@template(SITE, level=2, held_out=True)
def store_add_address(draw: Draw) -> Task:
    street, (city, other) = f"{draw.rng.randint(100, 199)} {draw.choice(STREETS)}", draw.pair(CITIES)
    code = str(draw.rng.randint(10_000, 99_999))

    def saved(city: str) -> tuple[Move, ...]:
        return (
            Click("Account"),
            Click("Address Book"),
            Click("Add a new address"),
            Fill("First name", FIRST_NAME),
            Fill("Last name", LAST_NAME),
            Fill("First line of address", street),
            Fill("City", city),
            Fill("Post/Zip-code", code),
            Choose("Country", "United States"),
            Click("Save"),
            Stop(),
        )

    values = (USER, FIRST_NAME, LAST_NAME, street, city, code)
    return Task(
        intent=f"Add an address to your address book: {FIRST_NAME} {LAST_NAME}, {street}, {city}, {code}, "
        "United States.",
        changes=(Change(SITE, "INSERT INTO address VALUES (?, ?, ?, ?, ?, ?, 'US', 0, 0, '')", values),),
        expert=saved(city),
        wrong=saved(other),
    )


@template(SITE, level=3)
def store_check_out(draw: Draw) -> Task:
    content = store(draw.data_seed)
    product = draw.choice(not_in_cart(content))
    home = content.addresses[0]
    shipping, other = draw.pair(SHIPPING)
    lines = (*content.basket, (product, 1))
    total = sum(item.cents * quantity for item, quantity in lines) + SHIPPING[shipping]
    changes = [Change(SITE, "DELETE FROM basket")]
    order = (str(FIRST_NUMBER), USER, total, shipping, home.street, home.city)
    changes.append(Change(SITE, "INSERT INTO orders VALUES (?, ?, 'Pending', ?, ?, ?, ?)", order))
    for item, quantity in lines:
        values = (str(FIRST_NUMBER), item.title, quantity, item.cents * quantity)
        changes.append(Change(SITE, "INSERT INTO line VALUES (?, ?, ?, 'Pending', ?)", values))
        changes.append(Change(SITE, "UPDATE product SET stock = stock - ? WHERE title = ?", (quantity, item.title)))

    def ordered(shipping: str) -> tuple[Move, ...]:
        return (
            *find(product),
            Click("Add to cart"),
            CART,
            Click("Proceed to checkout"),
            Click("Ship to your default shipping address"),
            ClickAfter(shipping, "Select option"),
            Click("Continue"),
            Click("Place order"),
            Stop(),
        )

    return Task(
        intent=f"Put one {product.title} into your cart and order everything in your cart, shipped to "
        f"{home.street}, {home.city}, with the shipping method {shipping}.",
        changes=tuple(changes),
        expert=ordered(shipping),
        wrong=ordered(other),
    )


@template(SITE, level=3)
def store_compare_orders(draw: Draw) -> Task:
    content = store(draw.data_seed)
    first, second = draw.pair(content.orders_of(content.user))
    difference = money(abs(first.cents - second.cents))
    looks = (*history(first), *history(second))
    return Task(
        intent=f"By how much do the totals of your orders {first.number} and {second.number} differ?",
        answer=(difference,),
        expert=(*looks, Stop(difference)),
        wrong=(*looks, Stop(money(first.cents + second.cents))),
        evidence=(money(first.cents), money(second.cents)),
    )
