"""Search tool over a local index, the built-in encyclopedia or a search server."""

from __future__ import annotations

import threading
from asyncio import wrap_future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.errors import BadValue
from palestra.tools.base import BadCall, Tool, ToolResult, in_thread, on_tool_loop
from palestra.tools.search.client import Retriever
from palestra.tools.search.passages import Hit, Passage, format_hits

if TYPE_CHECKING:
    from palestra.tools.search.corpus import Corpus
    from palestra.tools.search.index import Index

PAGE_HITS = 50  # number of hits requested from a server to assemble a page
_indexes: dict[str, Index] = {}  # indexes by folder or corpus key; "" is the built-in encyclopedia
_lock = threading.Lock()


class SearchTool(Tool):
    """Search a collection of texts and return the passages that match the query best.

    query: the words to search for
    """

    name = "search"
    tag = "search"
    body = "query"
    example = {"query": "river that flows past the town"}  # noqa: RUF012  # never modified

    def __init__(
        self,
        source: str | Path | Index | Corpus = "",
        *,
        topk: int = 3,
        mode: str = "bm25",
        timeout: float = 30.0,
    ) -> None:
        """Create a tool that searches `source`.

        `source` is the folder of an index, an Index, the URL of a search server, a Corpus (some environments have a
        `corpus` attribute), or "" for the built-in encyclopedia. A Corpus is indexed at the first search, and its index
        is cached on disk.
        """
        if topk < 1:
            raise BadValue(f"`topk` must be at least 1, got {topk}")
        self.topk = topk
        self.mode = mode
        self._remote: Retriever | None = None
        self._index: Index | None = None
        self._corpus: Corpus | None = None
        self._folder = ""
        if isinstance(source, str) and source.startswith(("http://", "https://")):
            if mode != "bm25":
                raise BadValue("`mode` is set on the search server: palestra search-serve INDEX --mode ...")
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
        """Validate the settings now, so that errors do not occur at the first call in the middle of an episode."""
        from palestra.tools.search.index import MODES
        from palestra.tools.search.layout import read_meta

        if self.mode not in MODES:
            raise BadValue(f"`mode` must be one of {', '.join(MODES)}; got {self.mode!r}")
        meta = self._index.meta if self._index is not None else read_meta(Path(self._folder)) if self._folder else None
        if self.mode != "bm25" and (meta is None or meta.encoder is None):
            where = self._folder or ("the environment's corpus" if self._corpus else "the built-in encyclopedia")
            raise BadValue(
                f"{where} has no vectors, which mode={self.mode!r} needs; build it with palestra search-index --dense"
            )

    def call(self, query: str) -> Any:
        if self._remote is not None:
            return self._remote_result(self._remote, query)
        return self._result(self._local(_checked(query)))

    async def acall(self, query: str) -> Any:
        if self._remote is not None:
            return await wrap_future(on_tool_loop(self._remote_result(self._remote, query)))
        return await in_thread(self.call, query)

    async def _remote_result(self, remote: Retriever, query: str) -> ToolResult:
        return self._result(await remote.asearch(_checked(query), self.topk))

    def hits(self, query: str) -> list[Hit]:
        """Return the hits for a query, with their scores."""
        if self._remote is not None:
            return self._remote.search(query, self.topk)
        return self._local(query)

    async def ahits(self, query: str) -> list[Hit]:
        """Like `hits`, but without blocking the event loop."""
        if self._remote is not None:
            return await wrap_future(on_tool_loop(self._remote.asearch(query, self.topk)))
        return await in_thread(self._local, query)

    def page(self, hit: Hit) -> list[Passage]:
        """Return the page that a hit belongs to: all passages with the same title, in order.

        If the tool uses a search server, the page consists of the passages that a search for the title finds.
        """
        if self._remote is not None:
            return on_tool_loop(_remote_page(self._remote, hit)).result()
        return self._page(hit)

    async def apage(self, hit: Hit) -> list[Passage]:
        """Like `page`, but without blocking the event loop."""
        if self._remote is not None:
            return await wrap_future(on_tool_loop(_remote_page(self._remote, hit)))
        return await in_thread(self._page, hit)

    def _page(self, hit: Hit) -> list[Passage]:
        index = self._index if self._index is not None else open_index(self._folder, self._corpus)
        return [hit.passage] if hit.number is None else index.page(hit.number)

    def _local(self, query: str) -> list[Hit]:
        index = self._index if self._index is not None else open_index(self._folder, self._corpus)
        return index.search(query, self.topk, mode=self.mode)

    def _result(self, hits: list[Hit]) -> ToolResult:
        return ToolResult(text=format_hits(hits), info={"hits": [hit.passage.id for hit in hits]})


async def _remote_page(remote: Retriever, hit: Hit) -> list[Passage]:
    title = hit.passage.title
    if not title:
        return [hit.passage]
    passages = {hit.passage.id: hit.passage}
    hits = await remote.asearch(title, PAGE_HITS)
    passages |= {other.passage.id: other.passage for other in hits if other.passage.title == title}
    if all(passage_id.isdecimal() for passage_id in passages):
        return [passages[passage_id] for passage_id in sorted(passages, key=int)]
    return list(passages.values())


def _checked(query: str) -> str:
    if not query.strip():
        raise BadCall("`query` is empty; it must contain the words to search for")
    return query.strip()


def open_index(folder: str, corpus: Corpus | None = None) -> Index:
    """Return the index at `folder`, opened once per process; forked children share its memory-mapped files."""
    from palestra.tools.search.corpus import cached_index
    from palestra.tools.search.encyclopedia import encyclopedia_passages
    from palestra.tools.search.index import Index

    name = folder if corpus is None else f"corpus:{corpus.key}"
    with _lock:
        if name not in _indexes:
            if corpus is not None:
                _indexes[name] = cached_index(corpus)
            else:
                _indexes[name] = Index(folder) if folder else Index.build(encyclopedia_passages())
        return _indexes[name]
