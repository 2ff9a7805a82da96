"""Wikis served over HTTP: MediaWiki's action API and kiwix-serve.

If the server is unreachable (after a few retries) or returns unexpected content, the methods raise EnvFailed or
ParsingFailed. For a page that does not exist, they return None.
"""

from __future__ import annotations

import http.client
import json
import posixpath
import re
import time
from abc import ABC, abstractmethod
from html.parser import HTMLParser
from random import Random
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import Request, urlopen

from palestra.envs.games.wiki import Key, WikiPage
from palestra.errors import BadValue, EnvFailed, ParsingFailed

TIMEOUT = 10.0  # seconds per request
PAUSES = (0.2, 1.0)  # seconds before each retry
LARGEST = 20_000_000  # maximum size of a response in bytes
MAX_LINKS = 300  # maximum number of links per page
CACHE_SIZE = 2_000  # maximum number of cached pages

_LETTERS = "abcdefghijklmnoprstuvw"
_SCHEMES = frozenset({"http", "https", "ftp", "mailto", "geo", "tel", "data", "javascript"})
# A title with one of these prefixes before a colon is not an article.
_NAMESPACES = frozenset(
    {"Category", "File", "Help", "Image", "MediaWiki", "Module", "Portal", "Special", "Talk", "Template", "User"}
)
_RETRIED_STATUSES = frozenset({429, 500, 502, 503, 504})
_WHITESPACE = re.compile(r"\s+")
_AGENT = {"User-Agent": "palestra (WikiGame)"}


def wiki_at(source: str, *, timeout: float = TIMEOUT) -> MediaWiki | Kiwix:
    """Return the wiki for `mediawiki:https://HOST/w/api.php` or `kiwix:http://HOST:PORT/content/BOOK`."""
    kind, _, url = source.partition(":")
    if kind == "mediawiki":
        return MediaWiki(url, timeout=timeout)
    if kind == "kiwix":
        return Kiwix(url, timeout=timeout)
    raise BadValue(
        f"wiki must be mediawiki:https://HOST/w/api.php or kiwix:http://HOST:PORT/content/BOOK, got {source!r}"
    )


class _HttpWiki(ABC):
    """Base class for wikis on an HTTP server, with retries and a page cache."""

    local = False

    def __init__(self, url: str, *, timeout: float = TIMEOUT) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise BadValue(f"a wiki's URL must start with http:// or https://, got {url!r}")
        if timeout <= 0:
            raise BadValue(f"timeout must be a positive number of seconds, got {timeout!r}")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self._cache: dict[Key, WikiPage | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}

    def page(self, key: Key) -> WikiPage | None:
        if key not in self._cache:
            if len(self._cache) >= CACHE_SIZE:
                self._cache.clear()
            self._cache[key] = self._fetch_page(str(key))
        return self._cache[key]

    def neighbours(self, key: Key) -> tuple[Key, ...]:
        page = self.page(key)
        return () if page is None else tuple(other for _, other in page.links)

    @abstractmethod
    def _fetch_page(self, title: str) -> WikiPage | None:
        """Load a page from the server, or return None if it does not exist."""

    def _fetch(self, url: str) -> tuple[bytes, str] | None:
        """Return the content at `url` and the final URL after redirects, or None for status 404."""
        for pause in (*PAUSES, None):
            try:
                with urlopen(Request(url, headers=_AGENT), timeout=self.timeout) as response:  # noqa: S310  # http(s), checked in __init__
                    return response.read(LARGEST), response.geturl()
            except HTTPError as err:
                err.close()
                if err.code == 404:
                    return None
                failure = f"status {err.code}"
                if err.code not in _RETRIED_STATUSES:
                    break  # a retry would not help
            except (URLError, TimeoutError, ConnectionError, http.client.HTTPException) as err:
                failure = f"{type(err).__name__}: {err}"
            if pause is None:
                break
            time.sleep(pause)
        raise EnvFailed(f"the wiki at {self.url} is not reachable: {failure}")


class MediaWiki(_HttpWiki):
    """A MediaWiki site, such as Wikipedia, addressed by its `api.php`."""

    def _query(self, **query: str | int) -> dict[str, Any]:
        response = self._fetch(f"{self.url}?{urlencode({**query, 'format': 'json', 'formatversion': 2})}")
        if response is None:
            raise EnvFailed(f"there is no api.php at {self.url} (status 404)")
        try:
            reply = json.loads(response[0])
        except ValueError as err:
            raise ParsingFailed(f"{self.url} did not return JSON: {response[0][:80]!r}") from err
        if not isinstance(reply, dict):
            raise ParsingFailed(f"{self.url} returned a JSON {type(reply).__name__} instead of an object")
        return reply

    def _fetch_page(self, title: str) -> WikiPage | None:
        reply = self._query(action="parse", page=title, prop="text|links", redirects=1)
        code = reply.get("error", {}).get("code") if isinstance(reply.get("error"), dict) else None
        if code in ("missingtitle", "invalidtitle", "pagecannotexist"):
            return None
        try:
            parsed = reply["parse"]
            parser = _PageParser(parsed["text"])
            existing = {link["title"] for link in parsed["links"] if link["ns"] == 0 and link.get("exists", False)}
            name = parsed["title"]
        except (KeyError, TypeError) as err:
            raise ParsingFailed(f"{self.url} returned an unexpected reply to action=parse: {str(reply)[:200]}") from err
        titles = [title for title in parser.titles() if title in existing and title != name]
        titles += sorted(existing - set(titles) - {name})  # links in templates have no title attribute
        return _make_page(name, name, parser.text, [(title, title) for title in titles])

    def random(self, rng: Random) -> Key:
        """Return the title of a page near a random alphabetical position, so that the seed determines the page."""
        prefix = "".join(rng.choices(_LETTERS, k=2)).capitalize()
        for first in (prefix, ""):
            reply = self._query(
                action="query", list="allpages", apfrom=first, apnamespace=0, apfilterredir="nonredirects", aplimit=50
            )
            try:
                titles = [str(page["title"]) for page in reply["query"]["allpages"]]
            except (KeyError, TypeError) as err:
                raise ParsingFailed(
                    f"{self.url} returned an unexpected reply to list=allpages: {str(reply)[:200]}"
                ) from err
            if titles:
                return rng.choice(titles)
        raise EnvFailed(f"the wiki at {self.url} has no pages")


class Kiwix(_HttpWiki):
    """A book on a kiwix-serve server, `http://HOST:PORT/content/BOOK`; a key is a path within the book."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT) -> None:
        super().__init__(url, timeout=timeout)
        root, slash, self.book = self.url.partition("/content/")
        if not slash or not self.book or "/" in self.book:
            raise BadValue(f"a Kiwix book's URL must be http://HOST:PORT/content/BOOK, got {url!r}")
        self.root = root

    def _fetch_page(self, title: str) -> WikiPage | None:
        for _ in range(5):
            response = self._fetch(f"{self.url}/{quote(title, safe='/')}")
            if response is None:
                return None
            parser = _PageParser(response[0].decode("utf-8", "replace"))
            if not parser.redirect:
                break
            title = self._path(title, parser.redirect) or title
        else:
            raise ParsingFailed(f"{self.url}/{title} redirects too many times")
        if not parser.heading:
            raise ParsingFailed(f"{self.url}/{title} has no heading; it is probably not a wiki page")
        links: dict[str, Key] = {}
        for href, link in parser.links:
            path = self._path(title, href)
            if path is not None and path != title:
                links.setdefault(link or unquote(path).replace("_", " "), path)
        return _make_page(title, parser.heading, parser.text, list(links.items()))

    def _path(self, page: str, href: str) -> str | None:
        """Return the path of a link within the book, or None if it leads elsewhere."""
        path = unquote(href.partition("#")[0].partition("?")[0])
        if not path or path.startswith("//") or path.partition(":")[0].lower() in _SCHEMES:
            return None
        inside = f"/content/{self.book}/"
        whole = posixpath.normpath(posixpath.join(posixpath.dirname(f"{inside}{page}"), path))
        inner = whole.removeprefix(inside)
        name = posixpath.basename(inner)
        if inner == whole or name.partition(":")[0] in _NAMESPACES or inner.startswith(("_", "-/", "I/", "M/", "X/")):
            return None
        return inner

    def random(self, rng: Random) -> Key:
        """Return the path of a page that the server suggests for random letters."""
        for letters in (2, 1, 1, 1):
            term = "".join(rng.choices(_LETTERS, k=letters))
            response = self._fetch(
                f"{self.root}/suggest?{urlencode({'content': self.book, 'term': term, 'count': 50})}"
            )
            if response is None:
                raise EnvFailed(f"the server at {self.root} has no book {self.book!r}")
            try:
                paths = [str(item["path"]) for item in json.loads(response[0]) if item.get("kind") == "path"]
            except (ValueError, KeyError, TypeError, AttributeError) as err:
                raise ParsingFailed(f"{self.root}/suggest returned an unexpected reply: {response[0][:80]!r}") from err
            if paths:
                return rng.choice(paths)
        raise EnvFailed(f"the server at {self.root} suggests no page in {self.book!r}")


def _make_page(key: Key, title: str, text: str, links: list[tuple[str, Key]]) -> WikiPage:
    usable = [(link, other) for link, other in links if not set("{}\n") & set(link) and len(link) <= 200]
    return WikiPage(key=key, title=title, text=text, links=tuple(usable[:MAX_LINKS]))


class _PageParser(HTMLParser):
    """Extract a wiki page's paragraphs, heading and links."""

    _SKIPPED_TAGS = frozenset({"script", "style", "table", "sup", "figure"})
    _VOID_TAGS = frozenset(
        {"br", "img", "hr", "meta", "link", "input", "wbr", "source", "area", "base", "col", "embed"}
    )

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.heading = self.redirect = ""
        self.links: list[tuple[str, str]] = []  # address and title
        self._stack: list[str] = []
        self._pieces: list[str] = []
        self._name = ""
        self.feed(html)
        self.close()
        self.text = _WHITESPACE.sub(" ", "".join(self._pieces)).strip()
        self.heading = _WHITESPACE.sub(" ", self.heading or self._name).strip()

    def titles(self) -> list[str]:
        return list(dict.fromkeys(title for _, title in self.links if title))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "meta" and (attributes.get("http-equiv") or "").lower() == "refresh":
            _, _, self.redirect = (attributes.get("content") or "").partition("=")
            self.redirect = self.redirect.strip("'\" ")
        if tag == "a" and attributes.get("href") and not self._skipping:
            self.links.append((attributes["href"] or "", attributes.get("title") or ""))
        if tag not in self._VOID_TAGS:
            self._stack.append("heading" if tag == "h1" and not self.heading else tag)

    def handle_endtag(self, tag: str) -> None:
        opened = "heading" if tag == "h1" else tag
        if opened in self._stack:  # also close inner tags that have no end tag
            while self._stack.pop() != opened:
                pass
        if tag == "p":
            self._pieces.append(" ")

    def handle_data(self, data: str) -> None:
        if "heading" in self._stack:
            self.heading += data
        elif "title" in self._stack:
            self._name += data
        elif "p" in self._stack and not self._skipping:
            self._pieces.append(data)

    @property
    def _skipping(self) -> bool:
        return not self._SKIPPED_TAGS.isdisjoint(self._stack)
