"""Serve the pages of a corpus as a site with a search field, for a browser."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from palestra.browser.sites import Request, Response, SiteFailed
from palestra.tools.search.tool import open_index

if TYPE_CHECKING:
    from palestra.tools.search.corpus import Corpus
    from palestra.tools.search.index import Index

HITS = 10  # maximum number of search results
SNIPPET_CHARS = 160
FORM = '<form action="/search"><input name="q" aria-label="Search"><button>Search</button></form>'
_PAGE = re.compile(r"/page/(\d{1,12})", re.ASCII)


class CorpusSite:
    """A home page, search results, and one page per title. `corpus=None` is the built-in encyclopedia."""

    quick = False  # the index may have to be built first

    def __init__(self, corpus: Corpus | None = None) -> None:
        self.corpus = corpus

    def respond(self, request: Request) -> Response:
        try:
            index = open_index("", self.corpus)
        except OSError as err:
            raise SiteFailed(f"the index of the pages cannot be read or built: {err}") from err
        parts = urlsplit(request.url)
        if parts.path == "/":
            return _html("Home", ["<p>Search for pages by their title or by words in their text.</p>"])
        if parts.path == "/search":
            return _results(index, parse_qs(parts.query).get("q", [""])[0].strip())
        match = _PAGE.fullmatch(parts.path)
        if match is not None and int(match[1]) < len(index):
            passages = index.page(int(match[1]))
            return _html(passages[0].title, [f"<p>{escape(passage.text)}</p>" for passage in passages])
        return _html("Not found", ["<p>There is no such page.</p>"], status=404)


def _results(index: Index, query: str) -> Response:
    hits = index.search(query, HITS) if query else []
    links: dict[str, str] = {}  # one result per page, by title
    for hit in hits:
        title, text = hit.passage.title or hit.passage.id, hit.passage.text
        short = text if len(text) <= SNIPPET_CHARS else f"{text[:SNIPPET_CHARS]} ..."
        links.setdefault(title, f'<p><a href="/page/{hit.number}">{escape(title)}</a> {escape(short)}</p>')
    return _html(f"Results for {query}", links.values() or ["<p>No page matches. Try other words.</p>"])


def _html(title: str, parts: Iterable[str], status: int = 200) -> Response:
    name = escape(title)
    body = f'<!doctype html><title>{name}</title><a href="/">Home</a>{FORM}<h1>{name}</h1>{"".join(parts)}'
    return Response(status=status, headers=(("Content-Type", "text/html; charset=utf-8"),), body=body.encode())
