"""Client for search servers that use Search-R1's protocol."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from palestra.errors import BadValue, ParsingFailed, ToolFailed
from palestra.optional import require
from palestra.tools.base import on_tool_loop
from palestra.tools.search.passages import Hit, Passage, passage_from_row

if TYPE_CHECKING:
    import aiohttp

_RETRY_DELAYS = (0.2, 0.5, 1.0)  # seconds
_RETRY_STATUS = frozenset({429, 500, 502, 503, 504})
_sessions: dict[tuple[int, int], aiohttp.ClientSession] = {}  # sessions by process and event loop, to reuse connections


class Retriever:
    """Send queries to a search server at `http://HOST:PORT`; the full URL with /retrieve is accepted too."""

    def __init__(self, url: str, *, timeout: float = 30.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise BadValue(f"a search server's address must start with http:// or https://, got {url!r}")
        self.url = url if parts.path.strip("/") else f"{url.rstrip('/')}/retrieve"
        self.timeout = timeout

    def search(self, query: str, topk: int = 3) -> list[Hit]:
        """Return up to `topk` hits; the synchronous version of `asearch`."""
        return on_tool_loop(self.asearch(query, topk)).result()

    async def asearch(self, query: str, topk: int = 3) -> list[Hit]:
        """Return up to `topk` hits; raise ToolFailed if the server fails, ParsingFailed if its reply is malformed."""
        reply = await self._post({"queries": [query], "topk": topk, "return_scores": True})
        try:
            items = reply["result"]
            if items and isinstance(items[0], list):  # one list of hits per query; some servers omit this outer list
                items = items[0]
            return [_hit(item, number) for number, item in enumerate(items)]
        except (KeyError, TypeError, IndexError, ValueError) as err:
            raise ParsingFailed(f"{self.url} returned no list of hits: {str(reply)[:200]}") from err

    async def _post(self, body: Mapping[str, Any]) -> Any:
        aiohttp = require("aiohttp", extra="search")
        error = ""
        for delay in (*_RETRY_DELAYS, None):
            try:
                timeout = aiohttp.ClientTimeout(total=self.timeout)
                async with _session().post(self.url, json=body, timeout=timeout) as response:
                    if response.status == 200:
                        return await response.json(content_type=None)
                    error = f"status {response.status}: {(await response.text(errors='replace'))[:200]}"
                    if response.status not in _RETRY_STATUS:
                        break
            except TimeoutError as err:
                raise ToolFailed(f"the search server at {self.url} did not reply within {self.timeout:g} s") from err
            except aiohttp.ClientError as err:
                error = f"{type(err).__name__}: {err}"
            except ValueError as err:
                raise ParsingFailed(f"{self.url} returned invalid JSON: {err}") from err
            if delay is not None:
                await asyncio.sleep(delay)
        raise ToolFailed(f"the search server at {self.url} failed: {error}. Start one with `palestra search-serve`")


def _hit(item: Any, number: int) -> Hit:
    """Convert a document with or without a score to a Hit. Some servers return only the text of a document."""
    scored = isinstance(item, dict) and "document" in item
    row = item["document"] if scored else item
    if isinstance(row, str):
        passage = Passage.from_contents(str(number), row)
    else:
        passage = passage_from_row(dict(row), number=number, where="a hit")
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
    """Close all sessions at exit, so that aiohttp does not warn about unclosed sessions."""
    for (pid, _), session in list(_sessions.items()):
        if pid == os.getpid():
            try:
                on_tool_loop(session.close()).result(timeout=2)
            except (FutureTimeout, RuntimeError):
                continue
