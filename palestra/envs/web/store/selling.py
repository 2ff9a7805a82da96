"""Tasks for the staff of the store, on its dashboard."""

from __future__ import annotations

from palestra.envs.web.store.buying import SITE
from palestra.envs.web.store.content import Order, Product, money, store
from palestra.envs.web.suite.app import Change
from palestra.envs.web.suite.tasks import (
    Click,
    Draw,
    Enter,
    Fill,
    FillNumber,
    Move,
    Stop,
    Task,
    Write,
    template,
)

NOTES = (
    "The customer asked for a gift box.",
    "Call before delivery.",
    "Deliver to the back door.",
    "The customer wants an invoice.",
)
CATEGORIES = ("Accessories", "Cables", "Cases", "Lighting", "Sheet Music", "Stands")
USES = ("Beginners", "Children", "Choirs", "Concerts", "Schools", "Studios")
STOCK, PRICE = 0, 2  # places of the fields for numbers in the form
ORDERS: tuple[Move, ...] = (Click("Dashboard"), Click("Fulfilment"), Click("Orders"))
PRODUCTS: tuple[Move, ...] = (Click("Dashboard"), Click("Catalog"), Click("Products"))


def opened(order: Order) -> tuple[Move, ...]:
    return *ORDERS, Enter("Order number: Order number", order.number)


def edited(product: Product) -> tuple[Move, ...]:
    return *PRODUCTS, Enter("Product title:", product.title), Click(product.title)


def update(product: Product, column: str, value: str | int) -> Change:
    return Change(SITE, f"UPDATE product SET {column} = ? WHERE title = ?", (value, product.title))  # noqa: S608


@template(SITE, level=1)
def store_customer_email(draw: Draw) -> Task:
    orders = store(draw.data_seed).orders
    first = draw.choice(orders)
    second = draw.choice(order for order in orders if order.customer != first.customer)
    return Task(
        intent=f"What is the email address of the customer who placed the order {first.number} in the store? "
        f"The order's total is {money(first.cents)}.",
        answer=(first.customer.email,),
        expert=(*opened(first), Stop(first.customer.email)),
        wrong=(*opened(second), Stop(second.customer.email)),
        evidence=(first.customer.email,),
    )


@template(SITE, level=2)
def store_order_note(draw: Draw) -> Task:
    first, second = draw.pair(store(draw.data_seed).orders)
    text = draw.choice(NOTES)

    def noted(order: Order) -> tuple[Move, ...]:
        return *opened(order), Click("Notes"), Write(text), Click("Save note"), Stop()

    return Task(
        intent=f'Add the note "{text}" to the order {first.number} of {first.customer.name}.',
        changes=(Change(SITE, "INSERT INTO note VALUES (?, ?, '')", (first.number, text)),),
        expert=noted(first),
        wrong=noted(second),
    )


@template(SITE, level=2)
def store_hide_product(draw: Draw) -> Task:
    first, second = draw.pair(store(draw.data_seed).products)
    return Task(
        intent=f"Make the {first.title} non-public, so that customers do not see it. Change nothing else.",
        changes=(update(first, "public", 0),),
        expert=(*edited(first), Click("Is public"), Click("Save"), Stop()),
        wrong=(*edited(second), Click("Is public"), Click("Save"), Stop()),
    )


@template(SITE, level=2, held_out=True)
def store_rename_product(draw: Draw) -> Task:
    product = draw.choice(store(draw.data_seed).products)
    suffix, other = draw.pair(("II", "Classic", "Studio", "Junior", "Pro"))

    def renamed(suffix: str) -> tuple[Move, ...]:
        return *edited(product), Fill("Title", f"{product.title} {suffix}"), Click("Save"), Stop()

    title = f"{product.title} {suffix}"
    tables = ("membership", "basket", "review")
    changes = [
        Change(SITE, f"UPDATE {name} SET product = ? WHERE product = ?", (title, product.title))  # noqa: S608
        for name in tables
    ]
    return Task(
        intent=f'Change the title of the product {product.title} to "{title}".',
        changes=(*changes, update(product, "title", title)),
        expert=renamed(suffix),
        wrong=renamed(other),
    )


@template(SITE, level=3)
def store_set_price(draw: Draw) -> Task:
    product = draw.choice(store(draw.data_seed).products)
    cents = product.cents + 100 * draw.rng.randint(3, 40)

    def priced(cents: int) -> tuple[Move, ...]:
        value = f"{cents // 100}.{cents % 100:02}"
        return *edited(product), Click("Stock and pricing"), FillNumber(PRICE, value), Click("Save"), Stop()

    return Task(
        intent=f"Change the price of the {product.title} to {money(cents)}.",
        changes=(update(product, "cents", cents),),
        expert=priced(cents),
        wrong=priced(cents + 100),
    )


@template(SITE, level=3)
def store_restock(draw: Draw) -> Task:
    product = draw.choice(product for product in store(draw.data_seed).products if product.stock < 8)
    count = draw.rng.randint(61, 99)

    def restocked(count: int) -> tuple[Move, ...]:
        moves = (Click("Stock and pricing"), FillNumber(STOCK, str(count)))
        return *edited(product), *moves, Click("Save"), Stop()

    return Task(
        intent=f"The {product.title} has been delivered. Set the number of pieces in stock to {count}.",
        changes=(update(product, "stock", count),),
        expert=restocked(count),
        wrong=restocked(count + 1),
    )


@template(SITE, level=3)
def store_new_category(draw: Draw) -> Task:
    (kind, mistake), use = draw.pair(CATEGORIES), draw.choice(USES)
    name, other = f"{kind} for {use}", f"{mistake} for {use}"

    def created(name: str) -> tuple[Move, ...]:
        opened = (*PRODUCTS[:2], Click("Categories"), Click("Create new category"))
        return *opened, Fill("Name", name), Click("Save"), Stop()

    return Task(
        intent=f'Create a new category with the name "{name}" at the top level, without a description.',
        changes=(Change(SITE, "INSERT INTO category VALUES (?, 1, '', 1)", (name,)),),
        expert=created(name),
        wrong=created(other),
    )
