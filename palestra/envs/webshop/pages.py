"""Build the shop's pages from elements in reading order, and format them as text, rich text or HTML.

The three formats are the same as in WebShop. "text" joins the visible elements with [SEP]. "text_rich" marks clickable
elements as [button] ... [button_] and clicked elements as [clicked button]. "html" is an HTML page with WebShop's ids
and classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from palestra.envs.webshop.product import Product

Mode = Literal["text", "text_rich", "html"]
MODES: tuple[Mode, ...] = ("text", "text_rich", "html")

SEARCH, BACK, NEXT, PREV, BUY = "Search", "Back to Search", "Next >", "< Prev", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews", "Attributes")  # "Attributes" is used only with `show_attributes`
PAGE_SIZE = 10

Kind = Literal["text", "heading", "search", "button", "link", "option"]


@dataclass(frozen=True, slots=True)
class Element:
    """A visible element of a page."""

    kind: Kind
    text: str
    name: str = ""  # name of an option, such as "color"
    clicked: bool = False

    @property
    def clickable(self) -> bool:
        return self.kind in ("button", "link", "option")


def search_page(instruction: str) -> list[Element]:
    return [
        Element("heading", "WebShop"),
        Element("text", "Instruction:"),
        Element("text", instruction),
        Element("search", SEARCH),
    ]


def results_page(
    instruction: str, products: Sequence[Product], page: int, total: int, seen: Iterable[str]
) -> list[Element]:
    """Build a page of search results that lists `products`, and mark the asins in `seen` as clicked.

    `total` is the number of results on all pages.
    """
    opened = set(seen)
    elements = [*_head(instruction), Element("button", BACK)]
    elements.append(Element("text", f"Page {page} (Total results: {total})"))
    if page > 1:
        elements.append(Element("button", PREV))
    if page * PAGE_SIZE < total:
        elements.append(Element("button", NEXT))
    for product in products:
        elements.append(Element("link", product.asin, clicked=product.asin in opened))
        elements.append(Element("text", product.name))
        elements.append(Element("text", product.price_tag))
    return elements


def item_page(instruction: str, product: Product, chosen: Mapping[str, str], *, attributes: bool) -> list[Element]:
    elements = [*_head(instruction), Element("button", BACK), Element("button", PREV)]
    for name, values in product.options:
        elements.append(Element("text", name))
        elements += [Element("option", value, name, chosen.get(name) == value) for value in values]
    elements.append(Element("heading", product.name))
    elements.append(Element("text", f"Price: {product.price_tag}"))
    elements.append(Element("text", f"Rating: {product.rating}"))
    elements += [Element("button", name) for name in SUB_PAGES if attributes or name != "Attributes"]
    elements.append(Element("button", BUY))
    return elements


def sub_page(instruction: str, product: Product, name: str) -> list[Element]:
    elements = [*_head(instruction), Element("button", BACK), Element("button", PREV)]
    if name == "Description":
        texts = [product.description]
    elif name == "Features":
        texts = list(product.bullet_points)
    elif name == "Attributes":
        texts = [*product.attributes, product.category, product.query, product.product_category]
    else:
        texts = [text for r in product.reviews for text in (r.title, f"Rating: {r.score}", r.body)]
    texts = [text for text in texts if text] or [f"No {name}"]
    return [*elements, *(Element("text", text) for text in texts)]


def done_page(reward: float) -> list[Element]:
    return [
        Element("heading", "Thank you for shopping with us!"),
        Element("text", "Your score (min 0.0, max 1.0)"),
        Element("text", f"{reward:.4g}"),
    ]


def _head(instruction: str) -> list[Element]:
    return [Element("text", "Instruction:"), Element("text", instruction)]


def format_page(elements: Sequence[Element], mode: Mode) -> str:
    """Format a page as text for the agent."""
    if mode == "text":
        return " [SEP] ".join(element.text for element in elements)
    return "\n".join(map(_rich, elements)) if mode == "text_rich" else _html(elements)


def _rich(element: Element) -> str:
    if element.kind == "search":
        return f"[button] {element.text} [button_]"
    if not element.clickable:
        return element.text
    word = "clicked button" if element.clicked else "button"
    space = {"button": "", "option": "  ", "link": "\n"}[element.kind]
    return f"{space}[{word}] {element.text} [{word}_]"


def _html(elements: Sequence[Element]) -> str:
    body = "\n".join(f"    {_tag(index, element)}" for index, element in enumerate(elements))
    return (
        "<!DOCTYPE html>\n<html>\n  <head><title>WebShop</title></head>\n"
        f'  <body>\n  <div class="container">\n{body}\n  </div>\n  </body>\n</html>'
    )


def _tag(index: int, element: Element) -> str:
    text = escape(element.text, quote=True)
    if element.kind == "search":
        return (
            '<form method="post"><input id="search_input" type="text" name="search_query" placeholder="Search..." '
            f'required><button class="btn" type="submit">{text}</button></form>'
        )
    if element.kind == "button":
        return f'<button class="btn" type="submit">{text}</button>'
    if element.kind == "link":
        return f'<a class="product-link" href="#{text}">{text}</a>'
    if element.kind == "option":
        name, checked = escape(element.name, quote=True), " checked" if element.clicked else ""
        return (
            f'<input type="radio" id="radio_{index}" name="{name}" value="{text}"{checked}>'
            f'<label for="radio_{index}">{text}</label>'
        )
    if element.kind == "heading":
        return f"<h2>{text}</h2>"
    if index and element.text.startswith(("Price:", "Rating:")):
        return f"<h4>{text}</h4>"
    return f"<p>{text}</p>"
