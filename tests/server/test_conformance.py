"""The suite for servers that claim the protocol: ours keeps it, and every deliberate defect is named."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from palestra.errors import ConformanceError
from palestra.server.conformance import CHECKS, check_server
from tests.server.servers import GUESS, Client, Server, serving

TOKEN = "a token nobody knows"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(GUESS) as running:
        yield running


def test_ours_keeps_every_law(server: Server) -> None:
    assert len(check_server(server.url)) == len(CHECKS)
    assert server.number("sessions") == 0


def test_ours_keeps_them_with_a_token() -> None:
    with serving(GUESS, tokens={TOKEN: "me"}, any_host=True) as server:
        assert len(check_server(server.url, env=GUESS, token=TOKEN)) == len(CHECKS)


Spoil = Callable[[str, str, dict[str, Any]], tuple[str, dict[str, Any]] | None]  # method, path, body -> what is asked


def forget_ids(method: str, path: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return path, {name: value for name, value in body.items() if name not in ("id", "seq")}


def forget_seeds(method: str, path: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return path, {name: value for name, value in body.items() if name != "seed"}


def forget_numbers(method: str, path: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return path, {name: value for name, value in body.items() if name != "seq"}


class Worse(BaseHTTPRequestHandler):
    """Passes requests on to a good server, after spoiling them or before spoiling the answers."""

    protocol_version = "HTTP/1.1"
    target = ""
    ask: Any = staticmethod(lambda method, path, body: (path, body))
    answer: Any = staticmethod(lambda path, status, body: (status, body))

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        kind = self.headers.get("Content-Type", "")
        path: str = self.path
        if kind == "application/json" and raw.startswith(b"{") and raw.endswith(b"}"):
            path, body = self.ask(self.command, path, json.loads(raw))
            raw = json.dumps(body).encode()
        with Client(self.target, kind=self.headers.get("Accept", "application/json")) as client:
            told = client.send(self.command, path, raw or None, {"Content-Type": kind} if kind else {})
        status, data = told.status, told.body
        if told.headers.get("content-type") == "application/json":
            status, value = self.answer(self.path, status, json.loads(data))
            data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", told.headers["content-type"])
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = do_PUT = handle_any  # noqa: N815

    def log_message(self, *_: Any) -> None: ...


def closed_is_unknown(path: str, status: int, body: Any) -> tuple[int, Any]:
    return (404, {"error": {"code": "unknown_session", "message": ""}}) if status == 410 else (status, body)


def five_hundred(path: str, status: int, body: Any) -> tuple[int, Any]:
    return (500, body) if status == 400 else (status, body)


def unordered(path: str, status: int, body: Any) -> tuple[int, Any]:
    return status, {"responses": body["responses"][::-1]} if path.endswith("/batch") else body


def crossed(path: str, status: int, body: Any) -> tuple[int, Any]:
    if path.endswith("/steps"):
        indexes = [row[0] for row in body["rows"]]
        rows = [[index, *row[1:]] for index, row in zip(indexes[::-1], body["rows"], strict=True)]
        return status, {**body, "rows": rows}
    return status, body


def unnumbered(path: str, status: int, body: Any) -> tuple[int, Any]:
    if status == 409 and body["error"]["code"] == "out_of_order":
        return 200, {"observation": "", "reward": 0.0, "terminated": False, "truncated": False, "info": {}}
    return status, body


def sick(path: str, status: int, body: Any) -> tuple[int, Any]:
    return (503, body) if path == "/ready" else (status, body)


@pytest.mark.parametrize(
    ("ask", "answer", "law"),
    [
        (forget_ids, None, "exactly once"),
        (forget_numbers, None, "order"),
        (forget_seeds, None, "seeds"),
        (None, closed_is_unknown, "close"),
        (None, five_hundred, "errors"),
        (None, unordered, "batch"),
        (None, crossed, "vector"),
        (None, unnumbered, "order"),
        (None, sick, "health"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_every_defect_is_named(server: Server, ask: Any, answer: Any, law: str) -> None:
    spoils = {name: staticmethod(value) for name, value in (("ask", ask), ("answer", answer)) if value is not None}
    handler = type("Spoilt", (Worse,), {"target": server.url, **spoils})
    worse = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=worse.serve_forever, daemon=True)
    thread.start()
    try:
        with pytest.raises(ConformanceError) as caught:
            check_server(f"http://127.0.0.1:{worse.server_port}")
    finally:
        worse.shutdown()
        worse.server_close()
    assert caught.value.invariant == law
