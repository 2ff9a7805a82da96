"""Wikis behind an address: MediaWiki's action API and Kiwix's server -> pages with links.

A server that cannot be reached, or that answers with something else, is an infrastructure failure (EnvFailed,
ParsingFailed) after a few tries; a page that it does not have is None.
"""

from __future__ import annotations

import http.client
import json
import posixpath
import re
import time
from html.parser import HTMLParser
from random import Random
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlencode, urlsplit
from urllib.request import Request, urlopen

from palestra.envs.games.wiki import Key, WikiPage
from palestra.errors import BadValue, EnvFailed, ParsingFailed

TIMEOUT = 10.0  # seconds a request may take
PAUSES = (0.2, 1.0)  # seconds before a request is tried again
LARGEST = 20_000_000  # bytes of an answer
MOST_LINKS = 300  # of a page that are shown
KEPT = 2_000  # pages kept at hand

_LETTERS = "abcdefghijklmnoprstuvw"
_SCHEMES = frozenset({"http", "https", "ftp", "mailto", "geo", "tel", "data", "javascript"})
_NAMESPACES = frozenset(
    {"Category", "File", "Help", "Image", "MediaWiki", "Module", "Portal", "Special", "Talk", "Template", "User"}
)  # where they stand before a colon, there is no article
_AGAIN = frozenset({429, 500, 502, 503, 504})
_BLANKS = re.compile(r"\s+")
_AGENT = {"User-Agent": "palestra (WikiGame)"}


def wiki_at(source: str, *, timeout: float = TIMEOUT) -> MediaWiki | Kiwix:
    """`mediawiki:https://HOST/w/api.php` or `kiwix:http://HOST:PORT/content/BOOK`."""
    kind, _, url = source.partition(":")
    if kind == "mediawiki":
        return MediaWiki(url, timeout=timeout)
    if kind == "kiwix":
        return Kiwix(url, timeout=timeout)
    raise BadValue(
        f"a wiki reads mediawiki:https://HOST/w/api.php or kiwix:http://HOST:PORT/content/BOOK, got {source!r}"
    )


class _Served:
    """What both have in common: requests, retries, pages kept at hand."""

    local = False

    def __init__(self, url: str, *, timeout: float = TIMEOUT) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise BadValue(f"a wiki's address begins with http:// or https://, got {url!r}")
        if timeout <= 0:
            raise BadValue(f"timeout is a number of seconds above 0, got {timeout!r}")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self._kept: dict[Key, WikiPage | None] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}

    def page(self, key: Key) -> WikiPage | None:
        if key not in self._kept:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[key] = self._fetched(str(key))
        return self._kept[key]

    def neighbours(self, key: Key) -> tuple[Key, ...]:
        page = self.page(key)
        return () if page is None else tuple(other for _, other in page.links)

    def _fetched(self, title: str) -> WikiPage | None:
        raise EnvFailed(f"{type(self).__name__} does not say how it gets {title!r}")

    def _got(self, url: str) -> tuple[bytes, str] | None:
        """What is at an address, and where it led; None where there is nothing (404)."""
        for pause in (*PAUSES, None):
            try:
                with urlopen(Request(url, headers=_AGENT), timeout=self.timeout) as answer:  # noqa: S310  # http(s), checked above
                    return answer.read(LARGEST), answer.geturl()
            except HTTPError as err:
                err.close()
                if err.code == 404:
                    return None
                failure = f"status {err.code}"
                if err.code not in _AGAIN:
                    break  # trying again would not help
            except (URLError, TimeoutError, ConnectionError, http.client.HTTPException) as err:
                failure = f"{type(err).__name__}: {err}"
            if pause is None:
                break
            time.sleep(pause)
        raise EnvFailed(f"the wiki at {self.url} cannot be reached: {failure}")


class MediaWiki(_Served):
    """A wiki's `api.php`: Wikipedia's, or any other's."""

    def _asked(self, **query: str | int) -> dict[str, Any]:
        got = self._got(f"{self.url}?{urlencode({**query, 'format': 'json', 'formatversion': 2})}")
        if got is None:
            raise EnvFailed(f"there is no api.php at {self.url} (status 404)")
        try:
            said = json.loads(got[0])
        except ValueError as err:
            raise ParsingFailed(f"{self.url} answered with something that is no JSON: {got[0][:80]!r}") from err
        if not isinstance(said, dict):
            raise ParsingFailed(f"{self.url} answered with a {type(said).__name__}, not with an object")
        return said

    def _fetched(self, title: str) -> WikiPage | None:
        said = self._asked(action="parse", page=title, prop="text|links", redirects=1)
        code = said.get("error", {}).get("code") if isinstance(said.get("error"), dict) else None
        if code in ("missingtitle", "invalidtitle", "pagecannotexist"):
            return None
        try:
            parsed = said["parse"]
            found = _Reader(parsed["text"])
            real = {link["title"] for link in parsed["links"] if link["ns"] == 0 and link.get("exists", False)}
            name = parsed["title"]
        except (KeyError, TypeError) as err:
            raise ParsingFailed(f"{self.url} answered action=parse with something else: {str(said)[:200]}") from err
        shown = [title for title in found.titles() if title in real and title != name]
        shown += sorted(real - set(shown) - {name})  # links without a title attribute, in templates
        return _page(name, name, found.text, [(title, title) for title in shown])

    def random(self, rng: Random) -> Key:
        """A page from a place in the alphabet that `rng` draws, so that a seed always begins alike."""
        begin = "".join(rng.choices(_LETTERS, k=2)).capitalize()
        for where in (begin, ""):
            said = self._asked(
                action="query", list="allpages", apfrom=where, apnamespace=0, apfilterredir="nonredirects", aplimit=50
            )
            try:
                titles = [str(page["title"]) for page in said["query"]["allpages"]]
            except (KeyError, TypeError) as err:
                raise ParsingFailed(
                    f"{self.url} answered list=allpages with something else: {str(said)[:200]}"
                ) from err
            if titles:
                return rng.choice(titles)
        raise EnvFailed(f"the wiki at {self.url} has no pages")


class Kiwix(_Served):
    """A book on a `kiwix-serve`: `http://HOST:PORT/content/BOOK`; a key is a path within it."""

    def __init__(self, url: str, *, timeout: float = TIMEOUT) -> None:
        super().__init__(url, timeout=timeout)
        root, slash, self.book = self.url.partition("/content/")
        if not slash or not self.book or "/" in self.book:
            raise BadValue(f"a Kiwix book is at http://HOST:PORT/content/BOOK, got {url!r}")
        self.root = root

    def _fetched(self, title: str) -> WikiPage | None:
        for _ in range(5):
            got = self._got(f"{self.url}/{quote(title, safe='/')}")
            if got is None:
                return None
            found = _Reader(got[0].decode("utf-8", "replace"))
            if not found.moved:
                break
            title = self._path(title, found.moved) or title
        else:
            raise ParsingFailed(f"{self.url}/{title} is moved on and on")
        if not found.heading:
            raise ParsingFailed(f"{self.url}/{title} has no heading: is it a page of a wiki?")
        links: dict[str, Key] = {}
        for href, shown in found.links:
            path = self._path(title, href)
            if path is not None and path != title:
                links.setdefault(shown or unquote(path).replace("_", " "), path)
        return _page(title, found.heading, found.text, list(links.items()))

    def _path(self, here: str, href: str) -> str | None:
        """Where a link leads within the book; None where it leads out of it."""
        path = unquote(href.partition("#")[0].partition("?")[0])
        if not path or path.startswith("//") or path.partition(":")[0].lower() in _SCHEMES:
            return None
        inside = f"/content/{self.book}/"
        whole = posixpath.normpath(posixpath.join(posixpath.dirname(f"{inside}{here}"), path))
        found = whole.removeprefix(inside)
        name = posixpath.basename(found)
        if found == whole or name.partition(":")[0] in _NAMESPACES or found.startswith(("_", "-/", "I/", "M/", "X/")):
            return None
        return found

    def random(self, rng: Random) -> Key:
        """A page among those the server suggests for letters that `rng` draws."""
        for letters in (2, 1, 1, 1):
            term = "".join(rng.choices(_LETTERS, k=letters))
            got = self._got(f"{self.root}/suggest?{urlencode({'content': self.book, 'term': term, 'count': 50})}")
            if got is None:
                raise EnvFailed(f"the server at {self.root} has no book {self.book!r}")
            try:
                paths = [str(one["path"]) for one in json.loads(got[0]) if one.get("kind") == "path"]
            except (ValueError, KeyError, TypeError, AttributeError) as err:
                raise ParsingFailed(f"{self.root}/suggest answered with something else: {got[0][:80]!r}") from err
            if paths:
                return rng.choice(paths)
        raise EnvFailed(f"the server at {self.root} suggests no page of {self.book!r}")


def _page(key: Key, title: str, text: str, links: list[tuple[str, Key]]) -> WikiPage:
    fine = [(shown, other) for shown, other in links if not set("{}\n") & set(shown) and len(shown) <= 200]
    return WikiPage(key=key, title=title, text=text, links=tuple(fine[:MOST_LINKS]))


class _Reader(HTMLParser):
    """The paragraphs, the heading and the links of a wiki's page."""

    _DEAF = frozenset({"script", "style", "table", "sup", "figure"})
    _EMPTY = frozenset({"br", "img", "hr", "meta", "link", "input", "wbr", "source", "area", "base", "col", "embed"})

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.heading = self.moved = ""
        self.links: list[tuple[str, str]] = []  # address and title
        self._stack: list[str] = []
        self._pieces: list[str] = []
        self._name = ""
        self.feed(html)
        self.close()
        self.text = _BLANKS.sub(" ", "".join(self._pieces)).strip()
        self.heading = _BLANKS.sub(" ", self.heading or self._name).strip()

    def titles(self) -> list[str]:
        return list(dict.fromkeys(title for _, title in self.links if title))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "meta" and (given.get("http-equiv") or "").lower() == "refresh":
            _, _, self.moved = (given.get("content") or "").partition("=")
            self.moved = self.moved.strip("'\" ")
        if tag == "a" and given.get("href") and not self._deaf:
            self.links.append((given["href"] or "", given.get("title") or ""))
        if tag not in self._EMPTY:
            self._stack.append("heading" if tag == "h1" and not self.heading else tag)

    def handle_endtag(self, tag: str) -> None:
        wanted = "heading" if tag == "h1" else tag
        if wanted in self._stack:  # what was left open inside closes with it
            while self._stack.pop() != wanted:
                pass
        if tag == "p":
            self._pieces.append(" ")

    def handle_data(self, data: str) -> None:
        if "heading" in self._stack:
            self.heading += data
        elif "title" in self._stack:
            self._name += data
        elif "p" in self._stack and not self._deaf:
            self._pieces.append(data)

    @property
    def _deaf(self) -> bool:
        return not self._DEAF.isdisjoint(self._stack)
