"""Generate the content of the shop: products, reviews, customers, orders and coupons."""

from __future__ import annotations

import sqlite3
from functools import lru_cache
from random import Random
from typing import NamedTuple

from palestra.envs.web.suite.app import insert
from palestra.seeding import child_seed

USER = "Robin Vale"  # the agent, who is a customer and a member of the staff
STATES = ("Pending", "Shipped", "Delivered", "Canceled")
SHIPPING = ("Standard", "Express", "Pickup")
TODAY = "2024-01-01"
SCHEMA = """
CREATE TABLE product (sku TEXT PRIMARY KEY, name TEXT, category TEXT, cents INTEGER, stock INTEGER, shown TEXT);
CREATE TABLE review (id INTEGER PRIMARY KEY, sku TEXT, author TEXT, stars INTEGER, text TEXT, state TEXT);
CREATE TABLE orders (number INTEGER PRIMARY KEY, customer TEXT, state TEXT, shipping TEXT, placed TEXT);
CREATE TABLE line (number INTEGER, sku TEXT, quantity INTEGER, cents INTEGER);
CREATE TABLE customer (name TEXT PRIMARY KEY, email TEXT, street TEXT, city TEXT);
CREATE TABLE basket (sku TEXT PRIMARY KEY, quantity INTEGER);
CREATE TABLE wish (sku TEXT PRIMARY KEY);
CREATE TABLE coupon (code TEXT PRIMARY KEY, percent INTEGER);
"""
COMPARED = {
    "product": "sku, name, category, cents, stock, shown",
    "review": "sku, author, stars, text, state",
    "orders": "number, customer, state, shipping",
    "line": "number, sku, quantity, cents",
    "customer": "name, email, street, city",
    "basket": "sku, quantity",
    "wish": "sku",
    "coupon": "code, percent",
}
GOODS = {
    "Garden": ("Rake", "Hose", "Lantern", "Bench", "Planter", "Trowel"),
    "Kitchen": ("Kettle", "Skillet", "Whisk", "Grater", "Teapot", "Ladle"),
    "Office": ("Desk Lamp", "Notebook", "Stapler", "Chair", "Monitor Stand", "Pen Set"),
    "Outdoor": ("Tent", "Backpack", "Compass", "Thermos", "Hammock", "Sleeping Bag"),
    "Toys": ("Puzzle", "Kite", "Robot", "Marble Run", "Yo-Yo", "Dollhouse"),
}
BRANDS = ("Arbor", "Brisk", "Corvo", "Delta", "Ember", "Fjord", "Gale", "Harbor", "Indigo", "Juno", "Kestrel", "Lumen")
PEOPLE = (
    "Ana Costa", "Ben Okoro", "Cleo Marsh", "Dmitri Lang", "Eva Lindqvist", "Felix Ito", "Gita Rao", "Hugo Blanc",
    "Ines Duarte", "Jonas Weber", "Kira Novak", "Liam Quinn", "Mona Haddad", "Nils Berg", "Olga Petrova", "Pablo Ruiz",
)  # fmt: skip
STREETS = ("Mill Lane", "Station Road", "Church Street", "Park View", "High Street", "Bridge Street")
CITIES = ("Ashford", "Brayton", "Calder", "Denholm", "Elmsworth", "Farleigh", "Glenmore", "Harwick")
OPINIONS = (
    "Works as described.",
    "Smaller than I thought.",
    "Broke after two days.",
    "A present for my sister, who loves it.",
    "Good value for the price.",
    "The color is different from the picture.",
)


class Product(NamedTuple):
    sku: str
    name: str
    category: str
    cents: int
    stock: int
    shown: str = "yes"

    @property
    def price(self) -> str:
        return money(self.cents)


class Review(NamedTuple):
    id: int
    sku: str
    author: str
    stars: int
    text: str
    state: str  # "published" or "pending"


class Order(NamedTuple):
    number: int
    customer: str
    state: str
    shipping: str
    placed: str


class Line(NamedTuple):
    number: int  # of the order
    sku: str
    quantity: int
    cents: int  # per piece


def money(cents: int) -> str:
    return f"${cents // 100}.{cents % 100:02}"


class Shop:
    """Everything in the shop's database, for writing tasks."""

    def __init__(self, data_seed: int) -> None:
        rng = Random(child_seed(data_seed, "shop"))  # content must depend only on the seed
        prices = rng.sample(range(400, 20_000), 120)  # all prices differ
        self.products: list[Product] = []
        for category, nouns in GOODS.items():
            for noun in nouns:
                for brand in rng.sample(BRANDS, 2):
                    sku = f"{category[0]}{100 + len(self.products)}"
                    stock = 0 if rng.random() < 0.12 else rng.randint(3, 60)
                    self.products.append(Product(sku, f"{brand} {noun}", category, prices.pop(), stock))
        cities = rng.choices(CITIES, k=len(PEOPLE) + 1)
        self.customers = [
            (name, f"{name.split()[0].lower()}{rng.randint(1, 99)}@post.test", f"{rng.randint(1, 90)} {street}", city)
            for name, street, city in zip((*PEOPLE, USER), rng.choices(STREETS, k=len(PEOPLE) + 1), cities, strict=True)
        ]
        self.orders: list[Order] = []
        self.lines: list[Line] = []
        buyers = [*rng.choices(PEOPLE, k=18), *[USER] * 6]
        rng.shuffle(buyers)
        for number, buyer in enumerate(buyers, 2001):
            placed = f"2023-{1 + (number - 2001) // 2:02}-{rng.randint(1, 28):02}"
            self.orders.append(Order(number, buyer, rng.choice(STATES[:3]), rng.choice(SHIPPING), placed))
            for product in rng.sample(self.products, rng.randint(1, 3)):
                self.lines.append(Line(number, product.sku, rng.randint(1, 4), product.cents))
        mine = [place for place, order in enumerate(self.orders) if order.customer == USER]
        for place, state in zip(mine[:2], ("Pending", "Shipped"), strict=True):
            self.orders[place] = self.orders[place]._replace(state=state)
        self.reviews: list[Review] = []
        for product in rng.sample(self.products, 30):
            for author in rng.sample(PEOPLE, rng.randint(1, 3)):
                self._review(rng, product.sku, author, "published")
        for author in rng.sample(PEOPLE, 5):
            for product in rng.sample(self.products, rng.randint(1, 3)):
                self._review(rng, product.sku, author, "pending")
        self.wishes = [product.sku for product in rng.sample(self.products, 4)]
        self.coupons = [("WELCOME5", 5), ("SPRING10", 10)]

    def _review(self, rng: Random, sku: str, author: str, state: str) -> None:
        text = rng.choice(OPINIONS)
        self.reviews.append(Review(len(self.reviews) + 1, sku, author, rng.randint(1, 5), text, state))

    def product(self, sku: str) -> Product:
        return next(product for product in self.products if product.sku == sku)

    def of(self, category: str) -> list[Product]:
        return [product for product in self.products if product.category == category]

    def total(self, number: int) -> int:
        """Return the price of an order in cents."""
        return sum(line.quantity * line.cents for line in self.lines if line.number == number)

    def sold(self, sku: str) -> int:
        """Return the number of pieces in all orders."""
        return sum(line.quantity for line in self.lines if line.sku == sku)


@lru_cache(maxsize=16)
def shop(data_seed: int) -> Shop:
    return Shop(data_seed)


def fill(database: sqlite3.Connection, content: Shop) -> None:
    insert(database, "product", content.products)
    insert(database, "review", content.reviews)
    insert(database, "orders", content.orders)
    insert(database, "line", content.lines)
    insert(database, "customer", content.customers)
    insert(database, "wish", ((sku,) for sku in content.wishes))
    insert(database, "coupon", content.coupons)
