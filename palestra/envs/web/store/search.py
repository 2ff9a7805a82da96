"""Search for products in the database of the episode.

django-oscar searches through Haystack, whose engines need a server or an index in files; its engine for databases does
not know categories, the order of results and pages. These functions replace its query.
"""

from __future__ import annotations

from typing import Any

COLUMNS = {"date_created": "date_created", "price": "stockrecords__price", "rating": "rating", "title_exact": "title"}


def use_database() -> None:
    """Let Haystack search in the database."""
    from haystack.backends.simple_backend import SimpleSearchBackend, SimpleSearchQuery

    SimpleSearchQuery.build_query = _query
    SimpleSearchBackend.search = _search


def _query(query: Any) -> dict[str, Any]:
    """Return the values that results must have, by field."""
    values: dict[str, Any] = {}
    nodes = [query.query_filter]
    while nodes:
        for child in nodes.pop().children:
            if hasattr(child, "children"):
                nodes.append(child)
            else:
                values[child[0].partition("__")[0]] = getattr(child[1], "query_string", child[1])
    return values or {"is_public": "true"}


def _search(_: Any, query: dict[str, Any], **options: Any) -> dict[str, Any]:
    from django.db.models import Q
    from haystack.models import SearchResult
    from oscar.core.loading import get_model

    products = get_model("catalogue", "Product").objects.filter(is_public=True).exclude(structure="child")
    for word in str(query.get("content", "")).split():
        products = products.filter(Q(title__icontains=word) | Q(upc__icontains=word) | Q(description__icontains=word))
    if "category" in query:
        products = products.filter(categories__in=query["category"])
    order = [str(name) for name in options.get("sort_by") or ()]
    columns = [("-" if name.startswith("-") else "") + COLUMNS[name.lstrip("-")] for name in order]
    products = products.order_by(*columns, "id").distinct()
    kind = options.get("result_class") or SearchResult
    results = []
    for product in products[options.get("start_offset") or 0 : options.get("end_offset")]:
        result = kind("catalogue", "product", product.pk, 0)
        result._object = product
        results.append(result)
    return {"results": results, "hits": products.count()}
