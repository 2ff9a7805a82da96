"""A corpus that an environment brings along -> its index, built once and kept in the cache folder for every process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from palestra.cache import cache_folder
from palestra.tools.search import layout
from palestra.tools.search.index import Index
from palestra.tools.search.passages import Passage


@runtime_checkable
class Corpus(Protocol):
    """Texts to search in. Two with the same `key` hold the same texts: another key, another index."""

    @property
    def key(self) -> str: ...

    def passages(self) -> Iterable[tuple[str, str, str]]:
        """Id, title and text of each."""


def index_of(corpus: Corpus) -> Index:
    """The index of a corpus, from the cache folder; in a temporary place where that cannot be written."""
    folder = cache_folder() / "search" / f"{corpus.key}-f{layout.FORMAT}"
    if not (folder / layout.META).is_file():
        try:
            return Index.build(_passages(corpus), folder)
        except (OSError, ValueError):
            if not (folder / layout.META).is_file():  # else another process was quicker, which is as well
                return Index.build(_passages(corpus))
    return Index(folder)


def _passages(corpus: Corpus) -> Iterator[Passage]:
    return (Passage(id=name, title=title, text=text) for name, title, text in corpus.passages())
