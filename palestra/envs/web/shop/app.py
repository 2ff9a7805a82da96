"""The pages of the shop for its customers; dashboard.py has those for its staff."""

from __future__ import annotations

from palestra.envs.web.shop.content import COMPARED, GOODS, SCHEMA, SHIPPING, TODAY, USER, fill, money, shop
from palestra.envs.web.suite.app import Call, Redirect, Reply, SqlApp
from palestra.envs.web.suite.markup import (
    Html,
    button,
    choice,
    definitions,
    field,
    form,
    hidden,
    items,
    join,
    link,
    page,
    path,
    table,
    tag,
    text,
)

STARS = ("5", "4", "3", "2", "1")
MAX_QUANTITY = 99

SHOP = SqlApp("shop", SCHEMA, fill, shop)
SHOP.compared = COMPARED


def shop_page(title: str, *body: object) -> Html:
    search = form("/search", field("Search products", "q"), button("Search"), method="get")
    places = (("/", "Shop"), ("/basket", "Basket"), ("/wishlist", "Wishlist"), ("/orders", "My orders"))
    more = (("/account", "Account"), ("/dashboard", "Dashboard"))
    return page(f"{title} - Shop", join(body), navigation=join((*(link(*place) for place in (*places, *more)), search)))


def quantity_of(entered: str) -> int | None:
    """Return a number of pieces from 0 to 99, or None."""
    return int(entered) if entered.isdecimal() and len(entered) < 3 else None


@SHOP.get("/")
def home(call: Call) -> Reply:  # noqa: ARG001  # all handlers have the same signature
    categories = items(link(path("category", name), name) for name in GOODS)
    return shop_page("Home", tag("h1", "Shop"), tag("p", f"Welcome, {USER}."), tag("h2", "Categories"), categories)


def _listed(rows: list[tuple[object, ...]]) -> Html:
    cells = ((link(path("product", sku), name), money(int(str(cents)))) for sku, name, cents in rows)
    return table(("Product", "Price"), cells) if rows else tag("p", "No products found.")


@SHOP.get("/category/<name>")
def category(call: Call, name: str) -> Reply:
    if name not in GOODS:
        return None
    query = "SELECT sku, name, cents FROM product WHERE category = ? AND shown = 'yes' ORDER BY name"
    return shop_page(name, tag("h1", name), _listed(call.rows(query, name)))


@SHOP.get("/search")
def search(call: Call) -> Reply:
    query = "SELECT sku, name, cents FROM product WHERE shown = 'yes' AND name LIKE '%' || ? || '%' ORDER BY name"
    words = call.field("q")
    return shop_page("Search", tag("h1", "Search results"), _listed(call.rows(query, words) if words else []))


@SHOP.get("/product/<sku>")
def product(call: Call, sku: str) -> Reply:
    rows = call.rows("SELECT name, category, cents, stock FROM product WHERE sku = ? AND shown = 'yes'", sku)
    if not rows:
        return None
    name, kind, cents, stock = rows[0]
    reviews = call.rows("SELECT author, stars, text FROM review WHERE sku = ? AND state = 'published' ORDER BY id", sku)
    wished = call.value("SELECT 1 FROM wish WHERE sku = ?", sku)
    buy = form("/basket", hidden("sku", sku), field("Quantity", "quantity", "1"), button("Add to basket"))
    return shop_page(
        name,
        tag("h1", name),
        definitions({"Article number": sku, "Category": kind, "Price": money(cents)}),
        buy if stock else tag("p", "This product is out of stock."),
        form(path("wish", sku), button("Remove from wishlist" if wished else "Add to wishlist")),
        tag("h2", "Reviews"),
        items(f"{author}, {stars} stars: {words}" for author, stars, words in reviews),
        tag("h2", "Write a review"),
        form(
            path("review", sku),
            choice("Stars", "stars", STARS),
            field("Review", "text", kind="textarea"),
            button("Send review"),
        ),
    )


@SHOP.post("/review/<sku>")
def review(call: Call, sku: str) -> Reply:
    if call.field("stars") in STARS and call.value("SELECT 1 FROM product WHERE sku = ?", sku):
        insertion = "INSERT INTO review (sku, author, stars, text, state) VALUES (?, ?, ?, ?, 'pending')"
        call.rows(insertion, sku, USER, int(call.field("stars")), call.field("text"))
    return Redirect(path("product", sku))


@SHOP.post("/wish/<sku>")
def wish(call: Call, sku: str) -> Reply:
    removed = call.database.execute("DELETE FROM wish WHERE sku = ?", (sku,)).rowcount
    if not removed and call.value("SELECT 1 FROM product WHERE sku = ?", sku):
        call.rows("INSERT INTO wish VALUES (?)", sku)
    return Redirect(path("product", sku))


@SHOP.get("/wishlist")
def wishlist(call: Call) -> Reply:
    query = "SELECT sku, name, cents FROM product JOIN wish USING (sku) ORDER BY name"
    return shop_page("Wishlist", tag("h1", "Wishlist"), _listed(call.rows(query)))


@SHOP.get("/basket")
def basket(call: Call) -> Reply:
    query = "SELECT sku, name, quantity, cents FROM basket JOIN product USING (sku) ORDER BY name"
    rows = call.rows(query)
    if not rows:
        return shop_page("Basket", tag("h1", "Basket"), tag("p", "Your basket is empty."))
    cells = (
        (
            link(path("product", sku), name),
            quantity,
            money(quantity * cents),
            form("/remove", hidden("sku", sku), button(f"Remove {name}")),
        )
        for sku, name, quantity, cents in rows
    )
    total = money(sum(quantity * cents for _, _, quantity, cents in rows))
    order = form("/order", choice("Shipping", "shipping", SHIPPING), button("Place order"))
    listed = table(("Product", "Quantity", "Price", "Action"), cells)
    return shop_page("Basket", tag("h1", "Basket"), listed, tag("p", f"Total: {total}"), order)


@SHOP.post("/basket")
def add_to_basket(call: Call) -> Reply:
    sku, quantity = call.field("sku"), quantity_of(call.field("quantity"))
    if quantity and call.value("SELECT stock FROM product WHERE sku = ? AND shown = 'yes'", sku):
        update = "INSERT INTO basket VALUES (?1, ?2) ON CONFLICT DO UPDATE SET quantity = MIN(?3, quantity + ?2)"
        call.rows(update, sku, quantity, MAX_QUANTITY)
    return Redirect("/basket")


@SHOP.post("/remove")
def remove(call: Call) -> Reply:
    call.rows("DELETE FROM basket WHERE sku = ?", call.field("sku"))
    return Redirect("/basket")


@SHOP.post("/order")
def place_order(call: Call) -> Reply:
    shipping = call.field("shipping")
    if shipping not in SHIPPING or not call.value("SELECT 1 FROM basket"):
        return Redirect("/basket")
    number = call.value("SELECT MAX(number) + 1 FROM orders")
    call.rows("INSERT INTO orders VALUES (?, ?, 'Pending', ?, ?)", number, USER, shipping, TODAY)
    call.rows("INSERT INTO line SELECT ?, sku, quantity, cents FROM basket JOIN product USING (sku)", number)
    call.rows("DELETE FROM basket")
    return Redirect(path("order", number))


@SHOP.get("/orders")
def orders(call: Call) -> Reply:
    rows = call.rows("SELECT number, placed, state FROM orders WHERE customer = ? ORDER BY number DESC", USER)
    cells = ((link(path("order", number), f"Order {number}"), placed, state) for number, placed, state in rows)
    return shop_page("My orders", tag("h1", "My orders"), table(("Order", "Date", "State"), cells))


def order_details(call: Call, number: str) -> Html:
    """Return the products of an order and its price."""
    query = "SELECT name, quantity, line.cents FROM line JOIN product USING (sku) WHERE number = ? ORDER BY name"
    rows = call.rows(query, number)
    cells = ((name, quantity, money(quantity * cents)) for name, quantity, cents in rows)
    total = money(sum(quantity * cents for _, quantity, cents in rows))
    return join((table(("Product", "Quantity", "Price"), cells), tag("p", f"Total: {total}")))


@SHOP.get("/order/<number>")
def order(call: Call, number: str) -> Reply:
    query = "SELECT state, shipping, placed FROM orders WHERE number = ? AND customer = ?"
    rows = call.rows(query, number, USER)
    if not rows:
        return None
    state, shipping, placed = rows[0]
    cancel = form(path("cancel", number), button("Cancel order")) if state == "Pending" else text("")
    details = definitions({"State": state, "Shipping": shipping, "Date": placed})
    return shop_page(f"Order {number}", tag("h1", f"Order {number}"), details, order_details(call, number), cancel)


@SHOP.post("/cancel/<number>")
def cancel(call: Call, number: str) -> Reply:
    update = "UPDATE orders SET state = 'Canceled' WHERE number = ? AND customer = ? AND state = 'Pending'"
    call.rows(update, number, USER)
    return Redirect(path("order", number))


@SHOP.get("/account")
def account(call: Call) -> Reply:
    email, street, city = call.rows("SELECT email, street, city FROM customer WHERE name = ?", USER)[0]
    fields = (field("Email", "email", email), field("Street", "street", street), field("City", "city", city))
    saved = tag("p", "Your account was saved.") if call.field("saved") else text("")
    return shop_page("Account", tag("h1", f"Account of {USER}"), saved, form("/account", *fields, button("Save")))


@SHOP.post("/account")
def save_account(call: Call) -> Reply:
    values = [call.field(name) for name in ("email", "street", "city")]
    if all(values):
        call.rows("UPDATE customer SET email = ?, street = ?, city = ? WHERE name = ?", *values, USER)
    return Redirect(path("account", saved="1"))
