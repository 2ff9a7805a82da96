"""The pages of the shop for its staff."""

from __future__ import annotations

import re

from palestra.envs.web.shop.app import SHOP, order_details, shop_page
from palestra.envs.web.shop.content import STATES, money
from palestra.envs.web.suite.app import Call, Redirect, Reply
from palestra.envs.web.suite.markup import (
    button,
    choice,
    definitions,
    field,
    form,
    hidden,
    items,
    link,
    path,
    table,
    tag,
    text,
)

_PRICE = re.compile(r"\$?(\d{1,5})\.(\d\d)")
SECTIONS = {
    "products": "Products",
    "orders": "All orders",
    "reviews": "Pending reviews",
    "customers": "Customers",
    "coupons": "Coupons",
    "sales": "Sales report",
}


@SHOP.get("/dashboard")
def dashboard(call: Call) -> Reply:
    counts = {
        "Products": call.value("SELECT COUNT(*) FROM product"),
        "Orders": call.value("SELECT COUNT(*) FROM orders"),
        "Pending reviews": call.value("SELECT COUNT(*) FROM review WHERE state = 'pending'"),
    }
    sections = items(link(path("dashboard", section), name) for section, name in SECTIONS.items())
    return shop_page("Dashboard", tag("h1", "Dashboard"), definitions(counts), sections)


@SHOP.get("/dashboard/products")
def products(call: Call) -> Reply:
    rows = call.rows("SELECT sku, name, category, cents, stock, shown FROM product ORDER BY name")
    cells = (
        (link(path("dashboard", "product", sku), name), sku, kind, money(cents), stock, shown)
        for sku, name, kind, cents, stock, shown in rows
    )
    listed = table(("Product", "Article number", "Category", "Price", "Stock", "Shown"), cells)
    return shop_page("Products", tag("h1", "Products"), listed)


@SHOP.get("/dashboard/product/<sku>")
def edit_product(call: Call, sku: str) -> Reply:
    rows = call.rows("SELECT name, cents, stock, shown FROM product WHERE sku = ?", sku)
    if not rows:
        return None
    name, cents, stock, shown = rows[0]
    fields = (
        field("Price", "price", money(cents).removeprefix("$")),
        field("Stock", "stock", str(stock)),
        choice("Shown", "shown", ("yes", "no"), shown),
        button("Save"),
    )
    note = {"saved": "The product was saved.", "wrong": "Enter a price such as 12.50, and a number of pieces."}
    message = tag("p", note[call.field("result")]) if call.field("result") in note else text("")
    return shop_page(name, tag("h1", f"Edit {name}"), message, form(path("dashboard", "product", sku), *fields))


@SHOP.post("/dashboard/product/<sku>")
def save_product(call: Call, sku: str) -> Reply:
    price, stock, shown = _PRICE.fullmatch(call.field("price")), call.field("stock"), call.field("shown")
    right = price is not None and stock.isdecimal() and len(stock) < 6 and shown in ("yes", "no")
    if price is not None and right:
        cents = int(price[1]) * 100 + int(price[2])
        update = "UPDATE product SET cents = ?, stock = ?, shown = ? WHERE sku = ?"
        call.rows(update, cents, int(stock), shown, sku)
    return Redirect(path("dashboard", "product", sku, result="saved" if right else "wrong"))


@SHOP.get("/dashboard/orders")
def all_orders(call: Call) -> Reply:
    rows = call.rows("SELECT number, customer, placed, state FROM orders ORDER BY number")
    cells = ((link(path("dashboard", "order", row[0]), f"Order {row[0]}"), *row[1:]) for row in rows)
    return shop_page("All orders", tag("h1", "All orders"), table(("Order", "Customer", "Date", "State"), cells))


@SHOP.get("/dashboard/order/<number>")
def edit_order(call: Call, number: str) -> Reply:
    rows = call.rows("SELECT customer, state, shipping, placed FROM orders WHERE number = ?", number)
    if not rows:
        return None
    customer, state, shipping, placed = rows[0]
    change = form(path("dashboard", "order", number), choice("State", "state", STATES, state), button("Save"))
    details = definitions({"Customer": customer, "Shipping": shipping, "Date": placed, "Current state": state})
    title = f"Order {number}"
    return shop_page(title, tag("h1", title), details, order_details(call, number), change)


@SHOP.post("/dashboard/order/<number>")
def save_order(call: Call, number: str) -> Reply:
    if call.field("state") in STATES:
        call.rows("UPDATE orders SET state = ? WHERE number = ?", call.field("state"), number)
    return Redirect(path("dashboard", "order", number))


@SHOP.get("/dashboard/reviews")
def pending_reviews(call: Call) -> Reply:
    query = (
        "SELECT id, author, name, stars, text FROM review JOIN product USING (sku) WHERE state = 'pending' ORDER BY id"
    )
    cells = (
        (
            *(number, author, name, stars, words),
            form("/dashboard/approve", hidden("id", number), button(f"Approve review {number}")),
            form("/dashboard/delete", hidden("id", number), button(f"Delete review {number}")),
        )
        for number, author, name, stars, words in call.rows(query)
    )
    columns = ("Review", "Author", "Product", "Stars", "Text", "Approve", "Delete")
    return shop_page("Pending reviews", tag("h1", "Pending reviews"), table(columns, cells))


@SHOP.post("/dashboard/approve")
def approve(call: Call) -> Reply:
    call.rows("UPDATE review SET state = 'published' WHERE id = ?", call.field("id"))
    return Redirect("/dashboard/reviews")


@SHOP.post("/dashboard/delete")
def delete(call: Call) -> Reply:
    call.rows("DELETE FROM review WHERE id = ? AND state = 'pending'", call.field("id"))
    return Redirect("/dashboard/reviews")


@SHOP.get("/dashboard/customers")
def customers(call: Call) -> Reply:
    rows = call.rows("SELECT name, email, city FROM customer ORDER BY name")
    return shop_page("Customers", tag("h1", "Customers"), table(("Name", "Email", "City"), rows))


@SHOP.get("/dashboard/coupons")
def coupons(call: Call) -> Reply:
    rows = ((code, f"{percent}%") for code, percent in call.rows("SELECT code, percent FROM coupon ORDER BY code"))
    fields = (field("Code", "code"), field("Percent", "percent"), button("Create coupon"))
    new = form("/dashboard/coupons", *fields)
    return shop_page("Coupons", tag("h1", "Coupons"), table(("Code", "Discount"), rows), new)


@SHOP.post("/dashboard/coupons")
def create_coupon(call: Call) -> Reply:
    code, percent = call.field("code"), call.field("percent")
    if code and percent.isdecimal() and 0 < int(percent[:3]) <= 100 and len(percent) < 4:
        call.rows("INSERT OR IGNORE INTO coupon VALUES (?, ?)", code, int(percent))
    return Redirect("/dashboard/coupons")


@SHOP.get("/dashboard/sales")
def sales(call: Call) -> Reply:
    rows = call.rows(
        "SELECT name, category, SUM(quantity), SUM(quantity * line.cents) FROM line JOIN product USING (sku) "
        "GROUP BY sku ORDER BY name"
    )
    cells = ((name, kind, pieces, money(cents)) for name, kind, pieces, cents in rows)
    return shop_page(
        "Sales report", tag("h1", "Sales report"), table(("Product", "Category", "Pieces", "Revenue"), cells)
    )
