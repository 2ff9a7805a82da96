"""Index for an environment's corpus, built once and cached on disk for all processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from palestra.cache import cache_folder
from palestra.tools.search import layout
from palestra.tools.search.index import Index
from palestra.tools.search.passages import Passage


@runtime_checkable
class Corpus(Protocol):
    """A collection of texts to search. `key` identifies its content: corpora with equal keys share an index."""

    @property
    def key(self) -> str: ...

    def passages(self) -> Iterable[tuple[str, str, str]]:
        """Iterate over the passages as (id, title, text)."""


def cached_index(corpus: Corpus) -> Index:
    """Return the index for a corpus from the cache folder, or a temporary index if the folder is not writable."""
    folder = cache_folder() / "search" / f"{corpus.key}-f{layout.FORMAT}"
    if not (folder / layout.META).is_file():
        try:
            return Index.build(_passages(corpus), folder)
        except (OSError, ValueError):
            if not (folder / layout.META).is_file():  # otherwise another process has built the index
                return Index.build(_passages(corpus))
    return Index(folder)


def _passages(corpus: Corpus) -> Iterator[Passage]:
    return (Passage(id=passage_id, title=title, text=text) for passage_id, title, text in corpus.passages())
