"""Generate the content of the store from a seed: products, customers, orders, reviews, coupons and the agent's cart."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import Random
from typing import NamedTuple

from palestra.seeding import child_seed

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
USER = "robin@tonehouse.test"  # the agent, who is a customer and a member of the staff
FIRST_NAME, LAST_NAME = "Robin", "Vale"
GOODS = {
    "Keys": ("Stage Piano", "Synthesizer", "Accordion", "Melodica", "Organ", "Celesta"),
    "Percussion": ("Snare Drum", "Cajon", "Tambourine", "Marimba", "Djembe", "Cymbal Set"),
    "Recording": ("Microphone", "Mixer", "Headphones", "Preamp", "Field Recorder", "Monitor Speaker"),
    "Strings": ("Violin", "Cello", "Ukulele", "Mandolin", "Banjo", "Harp"),
    "Wind": ("Flute", "Clarinet", "Trumpet", "Oboe", "Trombone", "Recorder"),
}
BRANDS = ("Alder", "Bellamy", "Corda", "Dorian", "Encore", "Forte", "Gavotte", "Halcyon", "Lyra", "Maple", "Novum")
PEOPLE = (
    "Ada Brandt", "Basil Moreau", "Carla Nunes", "Dev Malhotra", "Esme Walker", "Finn Aalto", "Grace Obi",
    "Hiro Tanaka", "Ilse Krueger", "Joao Prado", "Karim Saleh", "Lucia Ferri", "Milan Horvat", "Nadia Petit",
)  # fmt: skip
STREETS = ("Quay Street", "Orchard Road", "Lime Avenue", "Castle Hill", "Baker Row", "Tower Lane")
CITIES = ("Aldwick", "Brentmoor", "Carrow", "Dunsford", "Eastholm", "Fenwick")
STATUSES = ("Pending", "Being processed", "Shipped", "Complete", "Cancelled")
PENDING, APPROVED = 0, 1  # states of a review
OPINIONS = (
    ("Warm sound", "It sounds much warmer than my old one."),
    ("Arrived damaged", "There was a scratch on the side."),
    ("Great for beginners", "My daughter learned her first song in a week."),
    ("Too heavy", "I can hardly carry it to a rehearsal."),
    ("Good value", "You will not find a better one for this price."),
    ("Hard to tune", "It loses its tuning after every song."),
    ("Well made", "Every part feels solid."),
    ("Not as pictured", "The color is darker than in the picture."),
)
SHIPPING = {"Free shipping": 0, "Courier": 1250}  # the price in cents
LOW_STOCK = 5  # threshold for an alert


class Product(NamedTuple):
    id: int
    title: str
    category: str
    upc: str
    cents: int
    stock: int

    @property
    def price(self) -> str:
        return money(self.cents)


class Customer(NamedTuple):
    id: int
    name: str
    email: str


class Order(NamedTuple):
    number: str
    customer: Customer
    status: str
    placed: datetime
    street: str
    city: str
    lines: tuple[tuple[Product, int], ...]  # products and quantities

    @property
    def cents(self) -> int:
        return sum(product.cents * quantity for product, quantity in self.lines)


class Review(NamedTuple):
    id: int
    product: Product
    customer: Customer
    score: int
    title: str
    body: str
    status: int


class Voucher(NamedTuple):
    name: str
    code: str
    percent: int


class Address(NamedTuple):
    street: str
    city: str
    postcode: str


def money(cents: int) -> str:
    return f"${cents // 100:,}.{cents % 100:02}"


class Store:
    """All content for one data seed. `basket` contains the products in the agent's basket."""

    def __init__(self, data_seed: int) -> None:
        rng = Random(child_seed(data_seed, "store"))
        prices = rng.sample(range(1900, 90_000, 5), 60)  # all prices differ
        products: list[Product] = []
        for category, nouns in GOODS.items():
            for noun in nouns:
                for brand in rng.sample(BRANDS, 2):
                    number = len(products) + 1
                    stock = rng.choice((0, rng.randint(1, LOW_STOCK - 1), *[rng.randint(8, 60)] * 6))
                    upc = f"{rng.randint(10_000, 99_999)}{number:02}"
                    products.append(Product(number, f"{brand} {noun}", category, upc, prices.pop(), stock))
        self.products = tuple(products)
        self.user = Customer(1, f"{FIRST_NAME} {LAST_NAME}", USER)
        names = rng.sample(PEOPLE, len(PEOPLE))
        self.customers = tuple(
            Customer(number, name, f"{name.split()[0].lower()}{rng.randint(10, 99)}@post.test")
            for number, name in enumerate(names, 2)
        )
        self.orders = self._orders(rng)
        self.reviews = self._reviews(rng)
        self.vouchers = tuple(
            Voucher(f"{season} sale", f"{season.upper()}{percent}", percent)
            for season, percent in zip(("Spring", "Autumn"), rng.sample(range(5, 30), 2), strict=True)
        )
        self.basket = tuple((product, rng.randint(1, 3)) for product in rng.sample(self.in_stock, 2))
        self.addresses = tuple(
            Address(f"{rng.randint(1, 90)} {street}", city, f"{rng.randint(10_000, 99_999)}")
            for street, city in zip(rng.sample(STREETS, 2), rng.sample(CITIES, 2), strict=True)
        )

    @property
    def in_stock(self) -> list[Product]:
        """Products of which there are enough for every task."""
        return [product for product in self.products if product.stock > LOW_STOCK]

    def of(self, category: str) -> list[Product]:
        return [product for product in self.products if product.category == category]

    def orders_of(self, customer: Customer) -> list[Order]:
        return [order for order in self.orders if order.customer == customer]

    def _orders(self, rng: Random) -> tuple[Order, ...]:
        buyers = [*rng.choices(self.customers, k=18), *[self.user] * 5]
        rng.shuffle(buyers)
        statuses = [*STATUSES[:3] * 4, *rng.choices(STATUSES, k=len(buyers) - 12)]
        rng.shuffle(statuses)
        orders = []
        for place, (buyer, status) in enumerate(zip(buyers, statuses, strict=True)):
            placed = NOW - timedelta(days=7 * (len(buyers) - place), hours=rng.randint(0, 20))
            lines = tuple((product, rng.randint(1, 4)) for product in rng.sample(self.products, rng.randint(1, 3)))
            street = f"{rng.randint(1, 90)} {rng.choice(STREETS)}"
            orders.append(Order(str(4001 + place), buyer, status, placed, street, rng.choice(CITIES), lines))
        return tuple(orders)

    def _reviews(self, rng: Random) -> tuple[Review, ...]:
        reviews: list[Review] = []
        reviewed = rng.sample(self.products, 26)
        for place, product in enumerate(reviewed):
            waiting = place >= 20
            for customer in rng.sample(self.customers, 1 if waiting else rng.randint(1, 3)):
                title, body = rng.choice(OPINIONS)
                status = PENDING if waiting else APPROVED
                number = len(reviews) + 1
                reviews.append(Review(number, product, customer, rng.randint(1, 5), title, body, status))
        return tuple(reviews)


@lru_cache(maxsize=16)
def store(data_seed: int) -> Store:
    return Store(data_seed)
