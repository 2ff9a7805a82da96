"""Write HTML: text is escaped unless it is `Html` already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from urllib.parse import quote, urlencode

STYLE = """body{font:14px/1.5 sans-serif;margin:0 auto;max-width:1000px;padding:0 16px;color:#222}
nav{border-bottom:1px solid #bbb;padding:8px 0;display:flex;gap:14px;align-items:center;flex-wrap:wrap}
table{border-collapse:collapse}td,th{border:1px solid #ccc;padding:3px 8px;text-align:left}
form{margin:6px 0}textarea{width:100%;height:140px}label{margin-right:8px}footer{color:#777;margin-top:24px}"""


class Html(str):
    """Text that is HTML."""

    __slots__ = ()


def text(value: object) -> Html:
    """Return a value as HTML; `Html` is returned unchanged."""
    return value if isinstance(value, Html) else Html(escape(str(value), quote=True))


def join(parts: Iterable[object], between: str = "") -> Html:
    return Html(between.join(text(part) for part in parts))


def tag(name: str, *content: object) -> Html:
    return Html(f"<{name}>{join(content)}</{name.split()[0]}>")


def link(path: str, label: object) -> Html:
    return Html(f'<a href="{escape(path, quote=True)}">{text(label)}</a>')


def path(*parts: object, **query: object) -> str:
    """Return an address on the site: `path("wiki", "River Wen")` is "/wiki/River%20Wen"."""
    address = "/" + "/".join(quote(str(part), safe="") for part in parts)
    return f"{address}?{urlencode(query)}" if query else address


def page(title: str, body: object, *, navigation: object = Html("")) -> Html:
    header = Html(f"<nav>{text(navigation)}</nav>") if navigation else Html("")
    return Html(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{STYLE}</style></head><body>{header}<main>{text(body)}</main></body></html>"
    )


def form(action: str, *content: object, method: str = "post") -> Html:
    return Html(f'<form action="{escape(action, quote=True)}" method="{method}">{join(content)}</form>')


def field(label: str, name: str, value: str = "", *, kind: str = "text") -> Html:
    attributes = f'name="{name}" aria-label="{escape(label, quote=True)}"'
    if kind == "textarea":
        return Html(f"<textarea {attributes}>{escape(value)}</textarea>")
    return Html(
        f'<label>{escape(label)} <input type="{kind}" {attributes} value="{escape(value, quote=True)}"></label>'
    )


def choice(label: str, name: str, options: Sequence[str], chosen: str = "") -> Html:
    items = "".join(f"<option{' selected' if option == chosen else ''}>{escape(option)}</option>" for option in options)
    return Html(f'<label>{escape(label)} <select name="{name}" aria-label="{escape(label)}">{items}</select></label>')


def button(label: str) -> Html:
    return Html(f"<button>{escape(label)}</button>")


def hidden(name: str, value: object) -> Html:
    return Html(f'<input type="hidden" name="{name}" value="{escape(str(value), quote=True)}">')


def items(parts: Iterable[object]) -> Html:
    return Html(f"<ul>{''.join(f'<li>{text(part)}</li>' for part in parts)}</ul>")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Html:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return Html(f"<table><tr>{head}</tr>{body}</table>")


def definitions(facts: Mapping[str, object]) -> Html:
    return table(("Detail", "Value"), facts.items())
