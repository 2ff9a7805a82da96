"""Tasks of the shop's staff on the dashboard."""

from __future__ import annotations

from palestra.envs.web.shop.buying import SITE
from palestra.envs.web.shop.content import GOODS, USER, Product, money, shop
from palestra.envs.web.shop.dashboard import SECTIONS
from palestra.envs.web.suite.app import Change
from palestra.envs.web.suite.tasks import Choose, Click, Draw, Fill, Move, Stop, Task, template


def section(name: str) -> tuple[Move, ...]:
    """Return the moves that open a section of the dashboard."""
    return Click("Dashboard"), Click(SECTIONS[name])


def edit(product: Product) -> tuple[Move, ...]:
    return *section("products"), Click(product.name)


@template(SITE, level=1)
def customer_email(draw: Draw) -> Task:
    first, second = draw.pair(row for row in shop(draw.data_seed).customers if row[0] != USER)
    return Task(
        intent=f"What is the email address of the customer {first[0]}?",
        answer=(first[1],),
        expert=(*section("customers"), Stop(first[1])),
        wrong=(*section("customers"), Stop(second[1])),
        evidence=(first[1],),
    )


@template(SITE, level=2)
def set_price(draw: Draw) -> Task:
    product = draw.choice(shop(draw.data_seed).products)
    cents = product.cents + draw.rng.randint(50, 300)
    price = money(cents).removeprefix("$")
    mistaken = money(cents + 100).removeprefix("$")
    return Task(
        intent=f"Set the price of the {product.name} to ${price}.",
        changes=(Change(SITE, "UPDATE product SET cents = ? WHERE sku = ?", (cents, product.sku)),),
        expert=(*edit(product), Fill("Price", price), Click("Save"), Stop()),
        wrong=(*edit(product), Fill("Price", mistaken), Click("Save"), Stop()),
    )


@template(SITE, level=2)
def restock(draw: Draw) -> Task:
    product = draw.choice(product for product in shop(draw.data_seed).products if product.stock)
    added = draw.rng.randint(10, 40)
    return Task(
        intent=f"{added} more pieces of the {product.name} have arrived. Increase its stock by {added}.",
        changes=(Change(SITE, "UPDATE product SET stock = stock + ? WHERE sku = ?", (added, product.sku)),),
        expert=(*edit(product), Fill("Stock", str(product.stock + added)), Click("Save"), Stop()),
        wrong=(*edit(product), Fill("Stock", str(added)), Click("Save"), Stop()),
        evidence=(str(product.stock),),
    )


@template(SITE, level=2)
def ship_order(draw: Draw) -> Task:
    content = shop(draw.data_seed)
    order = draw.choice(order for order in content.orders if order.state == "Pending")
    opened: tuple[Move, ...] = (*section("orders"), Click(f"Order {order.number}"))
    return Task(
        intent=f"Order {order.number} by {order.customer} is on its way. Set its state to Shipped.",
        changes=(Change(SITE, "UPDATE orders SET state = 'Shipped' WHERE number = ?", (order.number,)),),
        expert=(*opened, Choose("State", "Shipped"), Click("Save"), Stop()),
        wrong=(*opened, Choose("State", "Delivered"), Click("Save"), Stop()),
    )


@template(SITE, level=2)
def approve_review(draw: Draw) -> Task:
    content = shop(draw.data_seed)
    first, second = draw.pair(review for review in content.reviews if review.state == "pending")
    name = content.product(first.sku).name
    return Task(
        intent=f"Approve the pending review number {first.id} of the {name}.",
        changes=(Change(SITE, "UPDATE review SET state = 'published' WHERE id = ?", (first.id,)),),
        expert=(*section("reviews"), Click(f"Approve review {first.id}"), Stop()),
        wrong=(*section("reviews"), Click(f"Approve review {second.id}"), Stop()),
    )


@template(SITE, level=2, held_out=True)
def new_coupon(draw: Draw) -> Task:
    product = draw.choice(shop(draw.data_seed).products)
    code = f"{product.name.split()[0].upper()}{product.sku}"
    percent = draw.rng.randint(11, 60)
    moves: tuple[Move, ...] = (*section("coupons"), Fill("Code", code))
    return Task(
        intent=f"Create a coupon with the code {code} for a discount of {percent}%.",
        changes=(Change(SITE, "INSERT INTO coupon VALUES (?, ?)", (code, percent)),),
        expert=(*moves, Fill("Percent", str(percent)), Click("Create coupon"), Stop()),
        wrong=(*moves, Fill("Percent", str(percent - 10)), Click("Create coupon"), Stop()),
    )


@template(SITE, level=3)
def delete_reviews_by(draw: Draw) -> Task:
    content = shop(draw.data_seed)
    pending = [review for review in content.reviews if review.state == "pending"]
    author = draw.choice(review.author for review in pending)
    removals = tuple(Click(f"Delete review {review.id}") for review in pending if review.author == author)
    fair = next(review.id for review in pending if review.author != author)
    return Task(
        intent=f"Delete all pending reviews by {author}, and no others.",
        changes=(Change(SITE, "DELETE FROM review WHERE author = ? AND state = 'pending'", (author,)),),
        expert=(*section("reviews"), *removals, Stop()),
        wrong=(*section("reviews"), *removals[:-1], Click(f"Delete review {fair}"), Stop()),
    )


@template(SITE, level=3)
def best_seller(draw: Draw) -> Task:
    content = shop(draw.data_seed)
    choices = []
    for kind in GOODS:
        order = sorted(content.of(kind), key=lambda product: content.sold(product.sku))
        if content.sold(order[-1].sku) > content.sold(order[-2].sku) > 0:
            choices.append((kind, order))
    kind, order = draw.choice(choices)
    best, second = order[-1], order[-2]
    return Task(
        intent=f"According to the sales report, which product in the category {kind} was sold most often, in more "
        f"pieces than the {second.name}? Answer with its name.",
        answer=(best.name, f"the {best.name}"),
        expert=(*section("sales"), Stop(best.name)),
        wrong=(*section("sales"), Stop(second.name)),
        evidence=(best.name, str(content.sold(best.sku))),
    )


@template(SITE, level=3)
def hide_sold_out(draw: Draw) -> Task:
    content = shop(draw.data_seed)
    choices = [kind for kind in GOODS if any(not product.stock for product in content.of(kind))]
    kind = draw.choice(choices)
    empty = [product for product in content.of(kind) if not product.stock]
    full = next(product for product in content.of(kind) if product.stock)
    hide: tuple[Move, ...] = (Choose("Shown", "no"), Click("Save"))
    moves = [move for product in empty for move in (*edit(product), *hide)]
    return Task(
        intent=f"Hide all products in the category {kind} that are out of stock, such as the {empty[0].name}: set "
        "Shown to no.",
        changes=tuple(Change(SITE, "UPDATE product SET shown = 'no' WHERE sku = ?", (item.sku,)) for item in empty),
        expert=(*moves, Stop()),
        wrong=(*moves, *edit(full), *hide, Stop()),
    )
