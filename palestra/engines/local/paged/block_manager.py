"""Pages of the KV cache: allocation, reference counts, and sharing between sequences with a common prefix."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from palestra.engines.local.paged.layout import PAGE

PADDING_PAGE = 0  # page for the keys and values of padding; never allocated
ROOT = 0  # parent of a sequence's first page

PrefixKey = tuple[int, bytes]  # id of the preceding page's content, and the page's own token ids


class Prefix(NamedTuple):
    """Pages that hold the beginning of a sequence, with one reference to each."""

    ids: bytes  # their token ids as 32-bit integers
    pages: list[int]
    content: int  # content id of the last page


class BlockManager:
    """Allocates `pages` pages, of which page 0 is reserved for padding.

    A full page is registered under its token ids and everything before them, so a later sequence with the same
    beginning uses the page instead of computing it again. Pages that no sequence uses stay registered until their
    memory is needed; the least recently used are reused first.
    """

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self._free = list(range(pages - 1, PADDING_PAGE, -1))
        self._references = [0] * pages
        self._index: dict[PrefixKey, int] = {}  # registered pages
        self._keys: dict[int, PrefixKey] = {}  # page -> key under which it is registered
        self._content: dict[int, int] = {}  # registered page -> id of its content and everything before it
        self._unused: dict[int, None] = {}  # registered pages without a reference, least recently used first
        self._last_content = ROOT
        self.evicted = 0

    @property
    def free_pages(self) -> int:
        """Number of pages that no sequence uses."""
        return len(self._free) + len(self._unused)

    def match(self, ids: bytes, limit: int, prefix: Prefix | None = None) -> tuple[list[int], int]:
        """Return up to `limit` pages that hold the beginning of `ids`, with one reference to each.

        `ids` are 32-bit integers. `prefix` is a likely beginning of `ids`. The caller gives up its references, and if
        `ids` start with it, its pages need not be looked up. Also returns the content id of the last page, for
        `register`.
        """
        pages: list[int] = []
        content = ROOT
        if prefix is not None:
            if len(prefix.pages) <= limit and ids.startswith(prefix.ids):
                pages, content = prefix.pages, prefix.content
            else:
                self.release(prefix.pages)
        for at in range(len(pages), limit):
            page = self._index.get((content, ids[at * PAGE * 4 : (at + 1) * PAGE * 4]))
            if page is None:
                break
            if self._references[page] == 0:
                del self._unused[page]
            self._references[page] += 1
            pages.append(page)
            content = self._content[page]
        return pages, content

    def allocate(self, count: int) -> list[int] | None:
        """Return `count` pages with one reference each, or None if not enough pages are unused."""
        if count > self.free_pages:
            return None
        pages = []
        for _ in range(count):
            if self._free:
                page = self._free.pop()
            else:
                page = next(iter(self._unused))
                self._unregister(page)
                self.evicted += 1
            self._references[page] = 1
            pages.append(page)
        return pages

    def register(self, content: int, pages: Sequence[int], ids: bytes) -> int:
        """Let other sequences use full pages, which hold `ids` and follow the page whose content id is `content`.

        Returns the content id of the last page. If another page is already registered for the same content, other
        sequences use that one.
        """
        for at, page in enumerate(pages):
            key = (content, ids[at * PAGE * 4 : (at + 1) * PAGE * 4])
            registered = self._index.get(key)
            if registered is None:
                self._last_content += 1
                content = self._last_content
                self._index[key], self._keys[page], self._content[page] = page, key, content
            else:
                content = self._content[registered]
        return content

    def release(self, pages: Sequence[int]) -> None:
        """Drop one reference to each page."""
        for page in reversed(pages):  # the end of a sequence is reused before its beginning
            self._references[page] -= 1
            if self._references[page] == 0:
                if page in self._keys:
                    self._unused[page] = None
                else:
                    self._free.append(page)

    def limit(self, pages: int) -> None:
        """Allocate only the first `pages` pages from now on, because there is no memory for the others."""
        for page in [page for page in self._unused if page >= pages]:
            self._unregister(page)
        self._free = [page for page in self._free if page < pages]
        self.pages = min(self.pages, pages)

    def forget_all(self) -> None:
        """Unregister every page, after the weights have changed."""
        for page in list(self._unused):
            self._unregister(page)
            self._free.append(page)
        self._index.clear()
        self._keys.clear()
        self._content.clear()

    def _unregister(self, page: int) -> None:
        del self._unused[page], self._index[self._keys.pop(page)], self._content[page]


def to_bytes(ids: Sequence[int]) -> bytes:
    """Return token ids as 32-bit integers."""
    return array("I", ids).tobytes()  # several times as fast as "i"


def pages_for(tokens: int) -> int:
    """Return the number of pages that hold `tokens` tokens."""
    return -(-tokens // PAGE)
