"""SearchTool: a model's query -> passages it can read, from a local index, the embedded corpus or a server."""

from __future__ import annotations

import threading
from asyncio import wrap_future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.errors import BadValue
from palestra.tools.base import BadCall, Tool, ToolResult, in_thread, on_tool_loop
from palestra.tools.search.client import Retriever
from palestra.tools.search.hit import Hit, told
from palestra.tools.search.passages import Passage

if TYPE_CHECKING:
    from palestra.tools.search.index import Index
    from palestra.tools.search.kept import Corpus

PAGE = 50  # passages a server is asked for, where a page is put together from them
_opened: dict[str, Index] = {}  # by folder or corpus, so that many environments share one; "" is the embedded corpus
_lock = threading.Lock()


class SearchTool(Tool):
    """Search a collection of texts. Gives the passages that fit a query best.

    query: the words to look for
    """

    name = "search"
    tag = "search"
    body = "query"
    example = {"query": "river that flows past the town"}  # noqa: RUF012  # read only

    def __init__(
        self,
        source: str | Path | Index | Corpus = "",
        *,
        topk: int = 3,
        mode: str = "bm25",
        timeout: float = 30.0,
    ) -> None:
        """`source`: an index's folder, an opened Index, a retriever's address, or "" for the embedded corpus.

        A Corpus, as environments bring it along, is indexed when first searched and kept in the cache folder.
        """
        if topk < 1:
            raise BadValue(f"topk is at least 1, got {topk}")
        self.topk = topk
        self.mode = mode
        self._remote: Retriever | None = None
        self._index: Index | None = None
        self._corpus: Corpus | None = None
        self._folder = ""
        if isinstance(source, str) and source.startswith(("http://", "https://")):
            if mode != "bm25":
                raise BadValue("a server has a mode of its own: palestra search-serve INDEX --mode ...")
            self._remote = Retriever(source, timeout=timeout)
        elif isinstance(source, str | Path):
            self._folder = str(Path(source).absolute()) if source else ""
            self._check()
        else:
            from palestra.tools.search.index import Index

            if isinstance(source, Index):
                self._index = source
            else:
                self._corpus = source
            self._check()

    def _check(self) -> None:
        """Now, not at the first call in the middle of an episode."""
        from palestra.tools.search.index import MODES
        from palestra.tools.search.layout import read_meta

        if self.mode not in MODES:
            raise BadValue(f"a mode is one of {', '.join(MODES)}, got {self.mode!r}")
        meta = self._index.meta if self._index is not None else read_meta(Path(self._folder)) if self._folder else None
        if self.mode != "bm25" and (meta is None or meta.encoder is None):
            where = self._folder or ("the environment's corpus" if self._corpus else "the embedded corpus")
            raise BadValue(f"{where} has no vectors for mode={self.mode!r}; `palestra search-index --dense` makes some")

    def call(self, query: str) -> Any:
        if self._remote is not None:
            return self._asked(self._remote, query)
        return self._result(self._local(_wanted(query)))

    async def acall(self, query: str) -> Any:
        if self._remote is not None:
            return await wrap_future(on_tool_loop(self._asked(self._remote, query)))
        return await in_thread(self.call, query)

    async def _asked(self, remote: Retriever, query: str) -> ToolResult:
        return self._result(await remote.asearch(_wanted(query), self.topk))

    def hits(self, query: str) -> list[Hit]:
        """What was found, with scores, for people and programs."""
        if self._remote is not None:
            return self._remote.search(query, self.topk)
        return self._local(query)

    async def ahits(self, query: str) -> list[Hit]:
        """`hits`, without blocking the event loop."""
        if self._remote is not None:
            return await wrap_future(on_tool_loop(self._remote.asearch(query, self.topk)))
        return await in_thread(self._local, query)

    def page(self, hit: Hit) -> list[Passage]:
        """The whole page that a hit is of: the passages of its title, in order.

        A server is asked for the title, and what it finds of that title is all there is.
        """
        if self._remote is not None:
            return on_tool_loop(_page_of(self._remote, hit)).result()
        return self._page(hit)

    async def apage(self, hit: Hit) -> list[Passage]:
        """`page`, without blocking the event loop."""
        if self._remote is not None:
            return await wrap_future(on_tool_loop(_page_of(self._remote, hit)))
        return await in_thread(self._page, hit)

    def _page(self, hit: Hit) -> list[Passage]:
        index = self._index if self._index is not None else opened(self._folder, self._corpus)
        return [hit.passage] if hit.number is None else index.page(hit.number)

    def _local(self, query: str) -> list[Hit]:
        index = self._index if self._index is not None else opened(self._folder, self._corpus)
        return index.search(query, self.topk, mode=self.mode)

    def _result(self, hits: list[Hit]) -> ToolResult:
        return ToolResult(text=told(hits), info={"hits": [hit.passage.id for hit in hits]})


async def _page_of(remote: Retriever, hit: Hit) -> list[Passage]:
    title = hit.passage.title
    if not title:
        return [hit.passage]
    found = {hit.passage.id: hit.passage}
    found |= {one.passage.id: one.passage for one in await remote.asearch(title, PAGE) if one.passage.title == title}
    if all(name.isdecimal() for name in found):
        return [found[name] for name in sorted(found, key=int)]
    return list(found.values())


def _wanted(query: str) -> str:
    if not query.strip():
        raise BadCall("the query is empty; say what to look for")
    return query.strip()


def opened(folder: str, corpus: Corpus | None = None) -> Index:
    """An index opened once a process; forked children inherit it, which mapped files allow."""
    from palestra.tools.search.corpus import generated
    from palestra.tools.search.index import Index
    from palestra.tools.search.kept import index_of

    name = folder if corpus is None else f"corpus:{corpus.key}"
    with _lock:
        if name not in _opened:
            if corpus is not None:
                _opened[name] = index_of(corpus)
            else:
                _opened[name] = Index(folder) if folder else Index.build(generated())
        return _opened[name]
