"""Summarize the database of django-oscar in small tables, which are compared after an episode."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

QUERIES = {
    "product": """
        SELECT product.title, product.upc, product.is_public AS public, record.partner_sku AS sku,
            CAST(round(100 * record.price) AS INTEGER) AS cents,
            record.num_in_stock - coalesce(record.num_allocated, 0) AS stock,
            record.low_stock_threshold AS threshold, product.description
        FROM catalogue_product AS product LEFT JOIN partner_stockrecord AS record ON record.product_id = product.id""",
    "membership": """
        SELECT product.title AS product, category.name AS category
        FROM catalogue_productcategory JOIN catalogue_product AS product ON product.id = product_id
        JOIN catalogue_category AS category ON category.id = category_id""",
    "category": """
        SELECT name, depth, description, is_public AS public FROM catalogue_category""",
    "basket": """
        SELECT user.email, basket.status, product.title AS product, line.quantity
        FROM basket_line AS line JOIN basket_basket AS basket ON basket.id = line.basket_id
        JOIN auth_user AS user ON user.id = basket.owner_id JOIN catalogue_product AS product ON product.id = product_id
        WHERE basket.status IN ('Open', 'Saved')""",
    "basket_voucher": """
        SELECT user.email, voucher.code FROM basket_basket_vouchers AS used
        JOIN basket_basket AS basket ON basket.id = used.basket_id JOIN auth_user AS user ON user.id = basket.owner_id
        JOIN voucher_voucher AS voucher ON voucher.id = used.voucher_id WHERE basket.status = 'Open'""",
    "wish": """
        SELECT user.email, list.name AS list, line.title AS product, line.quantity
        FROM wishlists_line AS line JOIN wishlists_wishlist AS list ON list.id = line.wishlist_id
        JOIN auth_user AS user ON user.id = list.owner_id""",
    "review": """
        SELECT product.title AS product, user.email, score, review.title, body, status
        FROM reviews_productreview AS review JOIN catalogue_product AS product ON product.id = product_id
        LEFT JOIN auth_user AS user ON user.id = user_id""",
    "vote": """
        SELECT review_id, user.email, delta FROM reviews_vote JOIN auth_user AS user ON user.id = user_id""",
    "orders": """
        SELECT number, user.email, orders.status, CAST(round(100 * total_incl_tax) AS INTEGER) AS cents,
            shipping_method AS shipping, address.line1 AS street, address.line4 AS city
        FROM order_order AS orders LEFT JOIN auth_user AS user ON user.id = user_id
        LEFT JOIN order_shippingaddress AS address ON address.id = shipping_address_id""",
    "line": """
        SELECT number, title AS product, quantity, line.status,
            CAST(round(100 * line_price_incl_tax) AS INTEGER) AS cents
        FROM order_line AS line JOIN order_order AS orders ON orders.id = order_id""",
    "note": """
        SELECT number, message, note_type AS kind FROM order_ordernote JOIN order_order AS orders
        ON orders.id = order_id WHERE note_type <> 'System'""",
    "customer": """
        SELECT email, first_name, last_name, is_active AS active, is_staff AS staff FROM auth_user""",
    "address": """
        SELECT user.email, address.first_name, address.last_name, line1 AS street, line4 AS city, postcode,
            country_id AS country, is_default_for_shipping AS shipping_default,
            is_default_for_billing AS billing_default, line2 || line3 || state || phone_number || notes AS more
        FROM address_useraddress AS address JOIN auth_user AS user ON user.id = user_id""",
    "voucher": """
        SELECT voucher.name, code, usage, benefit.type AS benefit, CAST(round(100 * benefit.value) AS INTEGER) AS value,
            range.name AS range
        FROM voucher_voucher AS voucher LEFT JOIN voucher_voucher_offers AS link ON link.voucher_id = voucher.id
        LEFT JOIN offer_conditionaloffer AS offer ON offer.id = link.conditionaloffer_id
        LEFT JOIN offer_benefit AS benefit ON benefit.id = offer.benefit_id
        LEFT JOIN offer_range AS range ON range.id = benefit.range_id""",
    "alert": """
        SELECT coalesce(user.email, alert.email) AS email, product.title AS product, status
        FROM customer_productalert AS alert JOIN catalogue_product AS product ON product.id = product_id
        LEFT JOIN auth_user AS user ON user.id = user_id""",
}
UNCHANGED = (  # further tables that are compared; no task changes them
    "auth_group",
    "catalogue_attributeoptiongroup",
    "catalogue_option",
    "catalogue_productattribute",
    "catalogue_productclass",
    "catalogue_productimage",
    "catalogue_productrecommendation",
    "communication_communicationeventtype",
    "django_flatpage",
    "offer_range",
    "partner_partner",
    "shipping_orderanditemcharges",
    "shipping_weightbased",
    "voucher_voucherset",
)
COMPARED = dict.fromkeys((*QUERIES, *UNCHANGED), "*")


def summarize(path: Path) -> sqlite3.Connection:
    """Return the summary of a database as a new database in memory."""
    target = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None, uri=True)
    target.execute("ATTACH ? AS source", (f"file:{path}?mode=ro",))
    for table, query in QUERIES.items():
        target.execute(f"CREATE TABLE main.{table} AS {query}")
    for table in UNCHANGED:
        target.execute(f"CREATE TABLE main.{table} AS SELECT * FROM source.{table}")  # noqa: S608
    target.execute("DETACH source")
    return target


def serialize(path: Path) -> bytes:
    with closing(summarize(path)) as database:
        return database.serialize()
