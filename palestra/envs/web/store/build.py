"""Write the content of a data seed into the tables of django-oscar, in the server's process."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from palestra.envs.web.store.content import APPROVED, GOODS, LOW_STOCK, NOW, Order, Product, Store, store

SESSION = "robin" * 6  # key of the session in which the agent is logged in


def create_tables() -> None:
    from django.core.management import call_command

    call_command("migrate", run_syncdb=True, verbosity=0, interactive=False)


def fill(data_seed: int) -> None:
    """Write all content into the current database, which has empty tables."""
    from django.db import transaction

    content = store(data_seed)
    with transaction.atomic():
        _write_people(content)
        _write_products(content)
        _write_orders(content)
        _write_vouchers(content)
        _write_basket(content)


def _model(app: str, name: str) -> Any:
    from oscar.core.loading import get_model

    return get_model(app, name).objects


def dollars(cents: int) -> Decimal:
    return Decimal(cents) / 100


def _write_people(content: Store) -> None:
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
    from django.contrib.sessions.backends.db import SessionStore
    from django.contrib.sessions.models import Session
    from django.contrib.sites.models import Site

    Site.objects.update_or_create(id=1, defaults={"domain": "store.test", "name": "Tonehouse"})
    _model("address", "Country").create(
        iso_3166_1_a2="US", printable_name="United States", name="United States", is_shipping_country=True
    )
    people = get_user_model().objects
    for customer in (content.user, *content.customers):
        first, last = customer.name.split()
        people.create(
            id=customer.id,
            username=customer.email.partition("@")[0],
            email=customer.email,
            first_name=first,
            last_name=last,
            password="!",
            is_staff=customer == content.user,
            is_superuser=customer == content.user,
            date_joined=NOW - timedelta(days=400 + customer.id),
        )
    user = people.get(id=content.user.id)
    session = {
        SESSION_KEY: str(user.id),
        BACKEND_SESSION_KEY: "oscar.apps.customer.auth_backends.EmailBackend",
        HASH_SESSION_KEY: user.get_session_auth_hash(),
    }
    Session.objects.create(
        session_key=SESSION, session_data=SessionStore().encode(session), expire_date=NOW + timedelta(days=3650)
    )
    for number, address in enumerate(content.addresses):
        _model("address", "UserAddress").create(
            user=user,
            first_name=user.first_name,
            last_name=user.last_name,
            line1=address.street,
            line4=address.city,
            postcode=address.postcode,
            country_id="US",
            is_default_for_shipping=number == 0,
        )


def _write_products(content: Store) -> None:
    category_class = _model("catalogue", "Category").model
    categories = {name: category_class.add_root(name=name) for name in GOODS}
    kind = _model("catalogue", "ProductClass").create(name="Instrument")
    partner = _model("partner", "Partner").create(name="Tonehouse Warehouse")
    products, memberships, records = [], [], []
    product_class, record_class = _model("catalogue", "Product").model, _model("partner", "StockRecord").model
    membership_class = _model("catalogue", "ProductCategory").model
    for product in content.products:
        slug = product.title.lower().replace(" ", "-")
        row = product_class(id=product.id, title=product.title, slug=slug, upc=product.upc, product_class=kind)
        row.date_created = NOW - timedelta(days=500 - product.id)
        products.append(row)
        memberships.append(membership_class(product_id=product.id, category=categories[product.category]))
        records.append(
            record_class(
                id=product.id,
                product_id=product.id,
                partner=partner,
                partner_sku=f"TH-{product.id:03}",
                price_currency="USD",
                price=dollars(product.cents),
                num_in_stock=product.stock,
                low_stock_threshold=LOW_STOCK,
            )
        )
    _model("catalogue", "Product").bulk_create(products)
    _model("catalogue", "ProductCategory").bulk_create(memberships)
    _model("partner", "StockRecord").bulk_create(records)
    _write_reviews(content)


def _write_reviews(content: Store) -> None:
    review_class = _model("reviews", "ProductReview").model
    rows = [
        review_class(
            id=review.id,
            product_id=review.product.id,
            user_id=review.customer.id,
            score=review.score,
            title=review.title,
            body=review.body,
            status=review.status,
        )
        for review in content.reviews
    ]
    for row in rows:
        row.date_created = NOW - timedelta(days=100 - row.id)
    _model("reviews", "ProductReview").bulk_create(rows)
    scores: dict[int, list[int]] = {}
    for review in content.reviews:
        if review.status == APPROVED:
            scores.setdefault(review.product.id, []).append(review.score)
    for number, given in scores.items():
        _model("catalogue", "Product").filter(id=number).update(rating=sum(given) / len(given))


def _write_orders(content: Store) -> None:
    site_id = 1
    for number, order in enumerate(content.orders, 1):
        first, last = order.customer.name.split()
        address = _model("order", "ShippingAddress").create(
            first_name=first, last_name=last, line1=order.street, line4=order.city, postcode="20000", country_id="US"
        )
        total = dollars(order.cents)
        _model("order", "Order").create(
            id=number,
            number=order.number,
            site_id=site_id,
            user_id=order.customer.id,
            currency="USD",
            total_incl_tax=total,
            total_excl_tax=total,
            shipping_incl_tax=0,
            shipping_excl_tax=0,
            shipping_address=address,
            shipping_method="Free shipping",
            shipping_code="free-shipping",
            status=order.status,
            date_placed=order.placed,
        )
        _write_lines(number, order)


def _write_lines(number: int, order: Order) -> None:
    line_class = _model("order", "Line").model
    _model("order", "Line").bulk_create(
        line_class(order_id=number, quantity=quantity, **_line(product, quantity, order.status))
        for product, quantity in order.lines
    )


def _line(product: Product, quantity: int, status: str) -> dict[str, Any]:
    unit, total = dollars(product.cents), dollars(product.cents * quantity)
    return {
        "partner_id": 1,
        "partner_name": "Tonehouse Warehouse",
        "partner_sku": f"TH-{product.id:03}",
        "stockrecord_id": product.id,
        "product_id": product.id,
        "title": product.title,
        "upc": product.upc,
        "line_price_incl_tax": total,
        "line_price_excl_tax": total,
        "line_price_before_discounts_incl_tax": total,
        "line_price_before_discounts_excl_tax": total,
        "unit_price_incl_tax": unit,
        "unit_price_excl_tax": unit,
        "status": status,
        "num_allocated": 0,
    }


def _write_vouchers(content: Store) -> None:
    everything = _model("offer", "Range").create(name="All products", includes_all_products=True)
    for place, voucher in enumerate(content.vouchers):
        condition = _model("offer", "Condition").create(range=everything, type="Count", value=1)
        benefit = _model("offer", "Benefit").create(range=everything, type="Percentage", value=voucher.percent)
        offer = _model("offer", "ConditionalOffer").create(
            name=f"Offer for voucher '{voucher.name}'", offer_type="Voucher", condition=condition, benefit=benefit
        )
        row = _model("voucher", "Voucher").create(
            name=voucher.name,
            code=voucher.code,
            usage="Multi-use",
            start_datetime=NOW - timedelta(days=30 + place),
            end_datetime=NOW + timedelta(days=300 + place),
        )
        row.offers.add(offer)


def _write_basket(content: Store) -> None:
    basket = _model("basket", "Basket").create(owner_id=content.user.id, status="Open")
    for product, quantity in content.basket:
        _model("basket", "Line").create(
            basket=basket,
            line_reference=f"{product.id}_{product.id}",
            product_id=product.id,
            stockrecord_id=product.id,
            quantity=quantity,
            price_currency="USD",
            price_excl_tax=dollars(product.cents),
            price_incl_tax=dollars(product.cents),
        )
