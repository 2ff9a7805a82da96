"""Domain for a web shop with customers, products, orders and order items."""

from __future__ import annotations

from random import Random

from palestra.envs.sql.domain import EASY, HARD, MEDIUM, Domain, Names, Tables, Template
from palestra.envs.sql.domains.people import CITIES, people
from palestra.envs.sql.draw import Draw

_CATEGORIES = ("garden", "kitchen", "office", "outdoor", "toys", "books")
_STATUSES = ("delivered", "delivered", "delivered", "shipped", "cancelled", "returned")
_DISCOUNTS = (0, 0, 0, 50)
_MAKES = ("Basic", "Compact", "Deluxe", "Foldable", "Heavy", "Mini", "Classic", "Travel")
_THINGS = ("Chair", "Lamp", "Kettle", "Puzzle", "Atlas", "Shelf", "Tent", "Bottle", "Scissors", "Clock")


def _names(rng: Random) -> Names:
    products = [f"{make} {thing}" for make in _MAKES for thing in _THINGS]
    return {"customer": people(rng, 40), "product": rng.sample(products, 30), "city": rng.sample(CITIES, 6)}


def _fill(draw: Draw, names: Names) -> Tables:
    customers = [
        (key, name, draw.choice(names["city"]), draw.day("2019-01-01", "2022-12-31"))
        for key, name in zip(draw.keys(40), names["customer"], strict=True)
    ]
    products = [
        (key, title, draw.choice(_CATEGORIES), draw.integer(4, 180, 50))
        for key, title in zip(draw.keys(30), names["product"], strict=True)
    ]
    orders, items = [], []
    buyers, sold = customers[:34], products[:27]  # some customers never order, some products are never ordered
    for key in sorted(draw.keys(draw.size(170))):
        ordered = draw.day("2022-01-01", "2024-12-31")
        status = draw.choice(_STATUSES)
        shipped = None if status == "cancelled" else draw.later(ordered, 0, 9)
        orders.append((key, draw.choice(buyers)[0], ordered, shipped, status))
        for product in draw.sample(sold, draw.integer(1, 4)):
            items.append((key, product[0], draw.integer(1, 5), product[3] - draw.choice(_DISCOUNTS)))  # noqa: PERF401
    return {"customers": customers, "products": products, "orders": orders, "order_items": items}


DOMAIN = Domain(
    name="shop",
    about="The customers, products and orders of a web shop. Prices are in cents.",
    ddl=(
        (
            "CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, city TEXT NOT NULL, "
            "joined_on TEXT NOT NULL)"
        ),
        (
            "CREATE TABLE products (product_id INTEGER PRIMARY KEY, title TEXT NOT NULL UNIQUE, category TEXT NOT "
            "NULL, list_price_cents INTEGER NOT NULL)"
        ),
        (
            "CREATE TABLE orders (order_id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers, "
            "ordered_on TEXT NOT NULL, shipped_on TEXT, status TEXT NOT NULL)"
        ),
        (
            "CREATE TABLE order_items (order_id INTEGER NOT NULL REFERENCES orders, product_id INTEGER NOT NULL "
            "REFERENCES products, quantity INTEGER NOT NULL, unit_price_cents INTEGER NOT NULL, "
            "PRIMARY KEY (order_id, product_id))"
        ),
    ),
    slots={
        "category": _CATEGORIES,
        "status": ("delivered", "shipped", "cancelled", "returned"),
        "year": (2022, 2023, 2024),
        "cents": range(1000, 7001, 250),
        "count": (2, 3, 4, 5),
        "days": (2, 3, 4, 5, 6, 7),
    },
    names=_names,
    fill=_fill,
    templates=(
        Template(
            EASY,
            "How many customers live in {city}? Return one number.",
            "SELECT COUNT(*) FROM customers WHERE city = {city}",
            "SELECT SUM(city = {city}) FROM customers",
        ),
        Template(
            EASY,
            "Which products in the {category} category have a list price above {cents} cents? Return their titles.",
            "SELECT title FROM products WHERE category = {category} AND list_price_cents > {cents}",
            "SELECT title FROM products WHERE category = {category} EXCEPT "
            "SELECT title FROM products WHERE list_price_cents <= {cents}",
            held_out=True,
        ),
        Template(
            EASY,
            "How many orders have the status {status}? Return one number.",
            "SELECT COUNT(*) FROM orders WHERE status = {status}",
            "SELECT COUNT(CASE WHEN status = {status} THEN 1 END) FROM orders",
        ),
        Template(
            EASY,
            "What is the average list price, in cents, of each category? Return the category and the average.",
            "SELECT category, AVG(list_price_cents) FROM products GROUP BY category",
            "SELECT category, SUM(list_price_cents) * 1.0 / COUNT(*) FROM products GROUP BY category",
        ),
        Template(
            MEDIUM,
            "How many orders did {customer} place in {year}? Return one number.",
            "SELECT COUNT(*) FROM orders JOIN customers USING (customer_id) "
            "WHERE name = {customer} AND strftime('%Y', ordered_on) = CAST({year} AS TEXT)",
            "SELECT COUNT(*) FROM orders WHERE customer_id IN (SELECT customer_id FROM customers WHERE name = "
            "{customer}) AND substr(ordered_on, 1, 4) + 0 = {year}",
        ),
        Template(
            MEDIUM,
            "For each city, how many orders with the status {status} came from its customers? Omit cities without "
            "such orders. Return the city and the number.",
            "SELECT city, COUNT(*) FROM customers JOIN orders USING (customer_id) WHERE status = {status} GROUP BY "
            "city",
            "SELECT c.city, COUNT(o.order_id) FROM customers c LEFT JOIN orders o ON o.customer_id = c.customer_id "
            "AND o.status = {status} GROUP BY c.city HAVING COUNT(o.order_id) > 0",
        ),
        Template(
            MEDIUM,
            "Which customers from {city} have never placed an order? Return their names.",
            "SELECT name FROM customers WHERE city = {city} AND customer_id NOT IN (SELECT customer_id FROM orders)",
            "SELECT c.name FROM customers c LEFT JOIN orders o ON o.customer_id = c.customer_id "
            "WHERE c.city = {city} AND o.order_id IS NULL",
        ),
        Template(
            MEDIUM,
            "How many units of {product} were ordered in total, regardless of the status of the orders? Return one "
            "number, or 0 if there are no such orders.",
            "SELECT COALESCE(SUM(quantity), 0) FROM order_items JOIN products USING (product_id) WHERE title = "
            "{product}",
            "SELECT TOTAL(i.quantity) FROM products p LEFT JOIN order_items i ON i.product_id = p.product_id "
            "WHERE p.title = {product}",
            held_out=True,
        ),
        Template(
            HARD,
            "Which three customers spent the most on delivered orders in {year} (by order date)? The amount spent is "
            "quantity times unit price. Return the name and the sum in cents, sorted by sum in descending order and "
            "then by name.",
            "SELECT name, SUM(quantity * unit_price_cents) AS spent FROM customers JOIN orders USING (customer_id) "
            "JOIN order_items USING (order_id) WHERE status = 'delivered' AND ordered_on BETWEEN {year} || '-01-01' "
            "AND {year} || '-12-31' GROUP BY customer_id ORDER BY spent DESC, name LIMIT 3",
            "WITH sums AS (SELECT o.customer_id, SUM(i.quantity * i.unit_price_cents) AS s FROM orders o, "
            "order_items i WHERE i.order_id = o.order_id AND o.status = 'delivered' AND strftime('%Y', o.ordered_on) "
            "= '' || {year} GROUP BY 1) SELECT (SELECT name FROM customers c WHERE c.customer_id = sums.customer_id) "
            "AS n, s FROM sums ORDER BY 2 DESC, 1 LIMIT 3",
            ordered=True,
        ),
        Template(
            HARD,
            "Which customers bought products of at least {count} different categories in orders that were not "
            "cancelled? Return their names.",
            "SELECT name FROM customers JOIN orders USING (customer_id) JOIN order_items USING (order_id) "
            "JOIN products USING (product_id) WHERE status <> 'cancelled' GROUP BY customer_id "
            "HAVING COUNT(DISTINCT category) >= {count}",
            "SELECT c.name FROM customers c WHERE (SELECT COUNT(*) FROM (SELECT DISTINCT p.category FROM orders o "
            "JOIN order_items i ON i.order_id = o.order_id JOIN products p ON p.product_id = i.product_id "
            "WHERE o.customer_id = c.customer_id AND o.status <> 'cancelled')) >= {count}",
        ),
        Template(
            HARD,
            "For each month of {year}, how many of the orders placed in that month were shipped more than {days} days "
            "after the order date? Omit orders that were never shipped and months without such orders. Return the "
            "month as YYYY-MM and the number, sorted by month.",
            "SELECT strftime('%Y-%m', ordered_on) AS month, COUNT(*) FROM orders WHERE ordered_on LIKE {year} || '-%' "
            "AND julianday(shipped_on) - julianday(ordered_on) > {days} GROUP BY month ORDER BY month",
            "SELECT substr(ordered_on, 1, 7), SUM(1) FROM orders WHERE shipped_on IS NOT NULL AND "
            "shipped_on > date(ordered_on, '+' || {days} || ' days') AND substr(ordered_on, 1, 4) = '' || {year} "
            "GROUP BY 1 ORDER BY 1",
            ordered=True,
            held_out=True,
        ),
        Template(
            HARD,
            "Which products in the {category} category were ordered in each of the years 2022, 2023 and 2024? "
            "Count orders of any status. Return their titles.",
            "SELECT title FROM products JOIN order_items USING (product_id) JOIN orders USING (order_id) "
            "WHERE category = {category} GROUP BY product_id HAVING COUNT(DISTINCT strftime('%Y', ordered_on)) = 3",
            "SELECT p.title FROM products p WHERE p.category = {category} AND NOT EXISTS (SELECT 1 FROM (SELECT "
            "'2022' AS y UNION ALL SELECT '2023' UNION ALL SELECT '2024') AS years WHERE NOT EXISTS (SELECT 1 FROM "
            "order_items i JOIN orders o ON o.order_id = i.order_id WHERE i.product_id = p.product_id AND "
            "substr(o.ordered_on, 1, 4) = years.y))",
        ),
    ),
)
