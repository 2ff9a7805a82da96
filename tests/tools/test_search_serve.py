"""Test the search server and its client: requests from Search-R1 and GEM, invalid requests, and failing servers."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgpack  # type: ignore[import-untyped]
import psutil  # type: ignore[import-untyped]
import pytest

from palestra.cli import main
from palestra.errors import BadValue, ParsingFailed, ToolFailed
from palestra.tools.search import Retriever, SearchTool


def start_server(*options: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "palestra", "search-serve", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().split()[2]
    for _ in range(1200):  # the server prints its address before it listens
        try:
            with urlopen(url.replace("/retrieve", "/health")):
                return process, url
        except OSError:
            threading.Event().wait(0.1)
    raise AssertionError("the server did not start")


def stop_server(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    process.wait(timeout=120)
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    process, url = start_server("--topk", "2")
    yield url
    stop_server(process)


def post(url: str, body: bytes) -> Any:
    with urlopen(Request(url, body, {"Content-Type": "application/json"}), timeout=120) as response:
        return json.load(response)


def test_requests_of_search_r1(server: str) -> None:
    local = SearchTool(topk=2)
    queries = ["an observatory on a river", "salt and silver"]
    reply = post(server, json.dumps({"queries": queries, "topk": 2, "return_scores": True}).encode())
    assert list(reply) == ["result"]
    for query, hits in zip(queries, reply["result"], strict=True):
        wanted = local.hits(query)
        assert [hit["document"]["id"] for hit in hits] == [hit.passage.id for hit in wanted]
        assert [hit["score"] for hit in hits] == [hit.score for hit in wanted]
        assert hits[0]["document"]["contents"] == wanted[0].passage.contents
    bare = post(server, json.dumps({"queries": queries}).encode())["result"]
    assert bare == [[hit["document"] for hit in hits] for hits in reply["result"]]
    one = post(server, json.dumps({"query": queries[0], "return_scores": True}).encode())["result"]
    assert one == reply["result"][0]


def test_requests_of_gem(server: str) -> None:
    body = msgpack.packb({"query": "an observatory", "topk": 3, "return_scores": True})
    with urlopen(Request(server, body), timeout=120) as response:
        result = msgpack.unpackb(response.read())["result"]
    assert [hit["document"]["contents"].split("\n")[0] for hit in result] == [
        f'"{hit.passage.title}"' for hit in SearchTool().hits("an observatory")
    ]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "Expecting"),
        (b"", "Expecting"),
        (b"[1]", "an object"),
        (b"{}", "list of strings"),
        (b'{"queries": []}', "list of strings"),
        (b'{"queries": ["a", 1]}', "list of strings"),
        (b'{"query": "a", "topk": 0}', "from 1 to 1000"),
        (b'{"query": "a", "topk": "3"}', "from 1 to 1000"),
        (b'{"query": "a", "topk": true}', "from 1 to 1000"),
        (json.dumps({"queries": ["a"] * 5000}).encode(), "at most 4096"),
        (b"\xff\xfe\x00", "neither JSON nor MessagePack"),
    ],
)
def test_wrong_requests_are_explained(server: str, body: bytes, message: str) -> None:
    with pytest.raises(HTTPError) as caught:
        post(server, body)
    reply = caught.value.read()
    assert caught.value.code == 400
    assert message in (reply.decode() if reply[:1] == b"{" else msgpack.unpackb(reply)["detail"])
    assert post(server, b'{"query": "river"}')["result"]


def test_the_client_and_the_tool(server: str) -> None:
    assert Retriever(server).search("salt", 2) == SearchTool(topk=2).hits("salt")
    remote = SearchTool(server.removesuffix("/retrieve"), topk=2)
    local = SearchTool(topk=2)
    assert remote.run({"query": "salt"}) == local.run({"query": "salt"})
    assert remote.run({"query": " "}).ok is False

    async def many() -> list[Any]:
        return await asyncio.gather(*(remote.arun({"query": f"town {n}"}) for n in range(100)))

    assert [result.text for result in asyncio.run(many())] == [
        local.run({"query": f"town {n}"}).text for n in range(100)
    ]


def test_several_server_processes_stop_together() -> None:
    process, url = start_server("--workers", "3")
    try:
        helpers = psutil.Process(process.pid).children()
        assert [len(hits.hits("river")) for hits in [SearchTool(url)] * 20] == [3] * 20
    finally:
        stop_server(process)
    _, alive = psutil.wait_procs(helpers, timeout=120)
    assert alive == []


def test_ports_in_use_and_wrong_options(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    port = server.split(":")[2].split("/")[0]
    for options, code in [(["--port", port], 3), (["nowhere"], 2), (["--workers", "0"], 2), (["--mode", "dense"], 2)]:
        assert main(["search-serve", *options]) == code
        assert capsys.readouterr().err.startswith("palestra: ")


class Broken(BaseHTTPRequestHandler):
    """Server whose reply depends on the request path; the first request to /flaky fails."""

    requests = 0

    def do_POST(self) -> None:
        type(self).requests += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        status, body = {
            "/flaky": (200 if self.requests > 1 else 503, b'{"result": [[{"document": {"contents": "T\\ntext"}}]]}'),
            "/text": (200, b"hello"),
            "/other": (200, b'{"hits": []}'),
            "/refused": (422, b"no such field"),
            "/plain": (200, b'{"result": [["T\\nplain"]]}'),
            "/numbers": (200, b'{"result": [[1, 2]]}'),
            "/flat": (200, b'{"result": [{"document": {"contents": "T\\nflat"}, "score": 2}]}'),
            "/none": (200, b'{"result": [[]]}'),
        }[self.path]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def broken() -> Iterator[str]:
    kind = type("CountingBroken", (Broken,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_servers_that_fail(broken: str) -> None:
    assert Retriever(f"{broken}/flaky").search("x")[0].passage.text == "text"  # the client retries
    assert Retriever(f"{broken}/flat").search("x")[0].score == 2
    assert Retriever(f"{broken}/none").search("x") == []
    assert Retriever(f"{broken}/plain").search("x")[0].passage.text == "plain"
    for path in ("/text", "/other", "/numbers"):
        with pytest.raises(ParsingFailed):
            Retriever(broken + path).search("x")
    with pytest.raises(ToolFailed, match="422: no such field"):
        SearchTool(f"{broken}/refused").run({"query": "x"})


def test_an_unreachable_server() -> None:
    with pytest.raises(ToolFailed, match="palestra search-serve"):
        SearchTool("http://127.0.0.1:9/retrieve").run({"query": "x"})
    with pytest.raises(BadValue, match="http"):
        Retriever("localhost:8000")
    with pytest.raises(BadValue, match="set on the search server"):
        SearchTool("http://127.0.0.1:9", mode="hybrid")
