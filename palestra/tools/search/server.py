"""An index -> a server many workers share: `POST /retrieve {queries | query, topk, return_scores}`, as in Search-R1.

`queries` is answered by a list of hits for each of them, `query` by one list. A hit is {"document": {"id", "contents"},
"score"}, and the document alone without `return_scores`. Bodies are JSON; GEM's client sends MessagePack, which is
answered in kind.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from palestra.errors import BadValue, InfrastructureError
from palestra.optional import require
from palestra.tools.search.hit import Hit
from palestra.tools.search.index import MODES, Index

if TYPE_CHECKING:
    from aiohttp import web

MOST_QUERIES, MOST_HITS, MOST_BYTES = 4_096, 1_000, 16 * 2**20  # of one request


def app(index: Index, *, topk: int = 3, mode: str = "bm25") -> web.Application:
    """The server as an aiohttp application, to be run by `serve` or beside others."""
    if topk < 1 or mode not in MODES:
        raise BadValue(f"topk is 1 or more and mode one of {', '.join(MODES)}, got {topk} and {mode!r}")
    aio = require("aiohttp.web", extra="search")
    pool = ThreadPoolExecutor(max(2, os.cpu_count() or 1), thread_name_prefix="palestra-search")

    async def retrieve(request: web.Request) -> web.Response:
        body = await request.read()
        packed = body[:1] not in (b"{", b"[", b"") and not body[:1].isspace()
        try:
            queries, several, most, scores = _asked(_unpacked(body) if packed else json.loads(body), topk)
        except ValueError as err:  # BadValue is one, too
            return _answer(aio, {"detail": str(err)}, packed, status=400)
        loop = asyncio.get_running_loop()
        try:
            found = await asyncio.gather(
                *(loop.run_in_executor(pool, lambda one=one: index.search(one, most, mode=mode)) for one in queries)  # type: ignore[misc]
            )
        except InfrastructureError as err:  # an encoder's server
            return _answer(aio, {"detail": str(err)}, packed, status=503)
        shown = [[_shown(hit, scores) for hit in hits] for hits in found]
        return _answer(aio, {"result": shown if several else shown[0]}, packed)

    async def health(_request: web.Request) -> web.Response:
        return _answer(aio, {"status": "ok", "passages": len(index), "mode": mode, "topk": topk}, False)

    async def stopped(_app: web.Application) -> None:
        pool.shutdown(wait=False, cancel_futures=True)

    made: web.Application = aio.Application(client_max_size=MOST_BYTES)
    made.router.add_post("/retrieve", retrieve)
    made.router.add_get("/health", health)
    made.on_cleanup.append(stopped)
    return made


def serve(
    index: Index,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    topk: int = 3,
    mode: str = "bm25",
    several: bool = False,
    parent: int | None = None,
) -> None:
    """Serve until interrupted. `several`: other processes serve the same port, and the system shares requests out;
    with `parent`, serve no longer than that process lives.
    """
    made = app(index, topk=topk, mode=mode)
    if parent is not None:
        made.on_startup.append(lambda _app: _following(parent))
    require("aiohttp.web", extra="search").run_app(
        made, host=host, port=port, reuse_port=several or None, print=None, access_log=None
    )


async def _following(parent: int) -> None:
    loop = asyncio.get_running_loop()

    def look() -> None:
        if os.getppid() != parent:  # killed, so that nobody ended us
            os.kill(os.getpid(), signal.SIGTERM)
        loop.call_later(1.0, look)

    look()


def _asked(body: Any, topk: int) -> tuple[list[str], bool, int, bool]:
    if not isinstance(body, dict):
        raise BadValue("the body is an object with `queries` or `query`")
    given = body.get("queries", body.get("query"))
    queries = [given] if isinstance(given, str) else given
    if not isinstance(queries, list) or not queries or not all(isinstance(one, str) for one in queries):
        raise BadValue("`queries` is a list of strings, `query` a string")
    if len(queries) > MOST_QUERIES:
        raise BadValue(f"at most {MOST_QUERIES} queries in one request, got {len(queries)}")
    most = topk if body.get("topk") is None else body["topk"]
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST_HITS:
        raise BadValue(f"`topk` is a whole number from 1 to {MOST_HITS}, got {most!r}")
    return queries, not isinstance(given, str), most, bool(body.get("return_scores", False))


def _shown(hit: Hit, scores: bool) -> dict[str, Any]:
    document = {"id": hit.passage.id, "contents": hit.passage.contents}
    return {"document": document, "score": hit.score} if scores else document


def _unpacked(body: bytes) -> Any:
    msgpack = require("msgpack", extra="search")
    try:
        return msgpack.unpackb(body)
    except (ValueError, msgpack.UnpackException) as err:
        raise BadValue("the body is neither JSON nor MessagePack") from err


def _answer(aio: Any, body: dict[str, Any], packed: bool, status: int = 200) -> web.Response:
    if packed:
        raw = require("msgpack", extra="search").packb(body)
        made = aio.Response(body=raw, status=status, content_type="application/msgpack")
    else:
        made = aio.Response(body=json.dumps(body).encode(), status=status, content_type="application/json")
    answer: web.Response = made
    return answer
