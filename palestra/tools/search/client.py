"""A query -> hits from a server that speaks Search-R1's protocol: ours, theirs, or any other."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Mapping
from concurrent.futures import TimeoutError as TookTooLong
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from palestra.errors import BadValue, ParsingFailed, ToolFailed
from palestra.optional import require
from palestra.tools.base import on_tool_loop
from palestra.tools.search.hit import Hit
from palestra.tools.search.passages import Passage, of_row

if TYPE_CHECKING:
    import aiohttp

_PAUSES = (0.2, 0.5, 1.0)  # seconds before a request is tried again
_AGAIN = frozenset({429, 500, 502, 503, 504})
_sessions: dict[tuple[int, int], aiohttp.ClientSession] = {}  # by process and event loop; connections are kept


class Retriever:
    """`http://HOST:PORT` (or the whole address with /retrieve) as something to search in."""

    def __init__(self, url: str, *, timeout: float = 30.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise BadValue(f"a retriever's address begins with http:// or https://, got {url!r}")
        self.url = url if parts.path.strip("/") else f"{url.rstrip('/')}/retrieve"
        self.timeout = timeout

    def search(self, query: str, topk: int = 3) -> list[Hit]:
        """For callers without an event loop."""
        return on_tool_loop(self.asearch(query, topk)).result()

    async def asearch(self, query: str, topk: int = 3) -> list[Hit]:
        """The hits; ToolFailed where the server cannot be reached, ParsingFailed where it says something else."""
        said = await self._posted({"queries": [query], "topk": topk, "return_scores": True})
        try:
            found = said["result"]
            if found and isinstance(found[0], list):  # a list a query; some servers leave the outer one out
                found = found[0]
            return [_hit(item, number) for number, item in enumerate(found)]
        except (KeyError, TypeError, IndexError, ValueError) as err:
            raise ParsingFailed(f"{self.url} answered something else than hits: {str(said)[:200]}") from err

    async def _posted(self, body: Mapping[str, Any]) -> Any:
        aiohttp = require("aiohttp", extra="search")
        said = ""
        for pause in (*_PAUSES, None):
            try:
                within = aiohttp.ClientTimeout(total=self.timeout)
                async with _session().post(self.url, json=body, timeout=within) as answer:
                    if answer.status == 200:
                        return await answer.json(content_type=None)
                    said = f"status {answer.status}: {(await answer.text(errors='replace'))[:200]}"
                    if answer.status not in _AGAIN:
                        break
            except TimeoutError as err:
                raise ToolFailed(f"no answer from {self.url} within {self.timeout:g} s") from err
            except aiohttp.ClientError as err:
                said = f"{type(err).__name__}: {err}"
            except ValueError as err:
                raise ParsingFailed(f"{self.url} answered no JSON: {err}") from err
            if pause is not None:
                await asyncio.sleep(pause)
        raise ToolFailed(f"the search server at {self.url} failed: {said}. `palestra search-serve` starts one")


def _hit(item: Any, number: int) -> Hit:
    """A document with its score, or without one; a document is a row or, on some servers, its text alone."""
    scored = isinstance(item, dict) and "document" in item
    row = item["document"] if scored else item
    if isinstance(row, str):
        passage = Passage.of_contents(str(number), row)
    else:
        passage = of_row(dict(row), number=number, where="a hit")
    return Hit(passage=passage, score=float(item.get("score") or 0.0) if scored else 0.0)


def _session() -> aiohttp.ClientSession:
    aiohttp = require("aiohttp", extra="search")
    loop = asyncio.get_running_loop()
    key = (os.getpid(), id(loop))
    session = _sessions.get(key)
    if session is None or session.closed:
        session = _sessions[key] = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        if len(_sessions) == 1:
            atexit.register(_close)
    return session


def _close() -> None:
    """Say goodbye to servers, or aiohttp complains of sessions that nobody closed."""
    for (pid, _), session in list(_sessions.items()):
        if pid == os.getpid():
            try:
                on_tool_loop(session.close()).result(timeout=2)
            except (TookTooLong, RuntimeError):
                continue
