"""Search server with Search-R1's protocol: `POST /retrieve {queries | query, topk, return_scores}`.

The reply to `queries` contains one list of hits per query; the reply to `query` is a single list of hits. A hit is
{"document": {"id", "contents"}, "score"}, or only the document if `return_scores` is false. Requests are JSON, or
MessagePack as sent by GEM's client; replies use the same format as the request.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from palestra.errors import BadValue, InfrastructureError
from palestra.machine import usable_cores
from palestra.optional import require
from palestra.tools.search.index import MODES, Index
from palestra.tools.search.passages import Hit

if TYPE_CHECKING:
    from aiohttp import web

MAX_QUERIES, MAX_HITS, MAX_BYTES = 4_096, 1_000, 16 * 2**20  # per request


def app(index: Index, *, topk: int = 3, mode: str = "bm25") -> web.Application:
    """Return the server as an aiohttp application."""
    if topk < 1 or mode not in MODES:
        raise BadValue(f"`topk` must be at least 1 and `mode` one of {', '.join(MODES)}; got {topk} and {mode!r}")
    aio = require("aiohttp.web", extra="search")
    pool = ThreadPoolExecutor(max(2, usable_cores()), thread_name_prefix="palestra-search")

    async def retrieve(request: web.Request) -> web.Response:
        body = await request.read()
        packed = body[:1] not in (b"{", b"[", b"") and not body[:1].isspace()
        try:
            queries, is_batch, limit, scores = _parse_request(_unpack(body) if packed else json.loads(body), topk)
        except ValueError as err:  # BadValue is a ValueError
            return _response(aio, {"detail": str(err)}, packed, status=400)
        loop = asyncio.get_running_loop()
        try:
            searches = [functools.partial(index.search, query, limit, mode=mode) for query in queries]
            results = await asyncio.gather(*(loop.run_in_executor(pool, search) for search in searches))
        except InfrastructureError as err:  # raised by an encoder that runs on a server
            return _response(aio, {"detail": str(err)}, packed, status=503)
        documents = [[_document(hit, scores) for hit in hits] for hits in results]
        return _response(aio, {"result": documents if is_batch else documents[0]}, packed)

    async def health(_request: web.Request) -> web.Response:
        return _response(aio, {"status": "ok", "passages": len(index), "mode": mode, "topk": topk}, False)

    async def shut_down(_app: web.Application) -> None:
        pool.shutdown(wait=False, cancel_futures=True)

    application: web.Application = aio.Application(client_max_size=MAX_BYTES)
    application.router.add_post("/retrieve", retrieve)
    application.router.add_get("/health", health)
    application.on_cleanup.append(shut_down)
    return application


def serve(
    index: Index,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    topk: int = 3,
    mode: str = "bm25",
    reuse_port: bool = False,
    parent: int | None = None,
) -> None:
    """Serve until interrupted.

    With `reuse_port`, several processes can serve the same port, and the operating system distributes connections among
    them. With `parent`, the server stops when the process with that id ends.
    """
    application = app(index, topk=topk, mode=mode)
    if parent is not None:
        application.on_startup.append(lambda _app: _stop_with(parent))
    require("aiohttp.web", extra="search").run_app(
        application, host=host, port=port, reuse_port=reuse_port or None, print=None, access_log=None
    )


async def _stop_with(parent: int) -> None:
    loop = asyncio.get_running_loop()

    def check() -> None:
        if os.getppid() != parent:  # the parent was killed before it could stop this process
            os.kill(os.getpid(), signal.SIGTERM)
        loop.call_later(1.0, check)

    check()


def _parse_request(body: Any, topk: int) -> tuple[list[str], bool, int, bool]:
    if not isinstance(body, dict):
        raise BadValue("the body must be an object with `queries` or `query`")
    value = body.get("queries", body.get("query"))
    queries = [value] if isinstance(value, str) else value
    if not isinstance(queries, list) or not queries or not all(isinstance(query, str) for query in queries):
        raise BadValue("`queries` must be a list of strings, `query` a string")
    if len(queries) > MAX_QUERIES:
        raise BadValue(f"a request may have at most {MAX_QUERIES} queries, got {len(queries)}")
    limit = topk if body.get("topk") is None else body["topk"]
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_HITS:
        raise BadValue(f"`topk` must be an integer from 1 to {MAX_HITS}, got {limit!r}")
    return queries, not isinstance(value, str), limit, bool(body.get("return_scores", False))


def _document(hit: Hit, scores: bool) -> dict[str, Any]:
    document = {"id": hit.passage.id, "contents": hit.passage.contents}
    return {"document": document, "score": hit.score} if scores else document


def _unpack(body: bytes) -> Any:
    msgpack = require("msgpack", extra="search")
    try:
        return msgpack.unpackb(body)
    except (ValueError, msgpack.UnpackException) as err:
        raise BadValue("the body is neither JSON nor MessagePack") from err


def _response(aio: Any, body: dict[str, Any], packed: bool, status: int = 200) -> web.Response:
    if packed:
        raw = require("msgpack", extra="search").packb(body)
        response = aio.Response(body=raw, status=status, content_type="application/msgpack")
    else:
        response = aio.Response(body=json.dumps(body).encode(), status=status, content_type="application/json")
    result: web.Response = response
    return result
