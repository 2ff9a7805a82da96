"""Test that our server passes the conformance checks, and that these detect every injected defect."""

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

TOKEN = "a secret token"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(GUESS) as server:
        yield server


def test_our_server_passes(server: Server) -> None:
    assert len(check_server(server.url)) == len(CHECKS)
    assert server.number("sessions") == 0


def test_our_server_passes_with_a_token() -> None:
    with serving(GUESS, tokens={TOKEN: "me"}, any_host=True) as server:
        assert len(check_server(server.url, env=GUESS, token=TOKEN)) == len(CHECKS)


Change = Callable[[str, str, dict[str, Any]], tuple[str, dict[str, Any]] | None]  # arguments: method, path, body


def drop_ids(method: str, path: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return path, {name: value for name, value in body.items() if name not in ("id", "seq")}


def drop_seeds(method: str, path: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return path, {name: value for name, value in body.items() if name != "seed"}


def drop_numbers(method: str, path: str, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return path, {name: value for name, value in body.items() if name != "seq"}


class DefectiveProxy(BaseHTTPRequestHandler):
    """Proxy that changes some of a correct server's requests or responses."""

    protocol_version = "HTTP/1.1"
    target = ""
    change_request: Any = staticmethod(lambda method, path, body: (path, body))
    change_response: Any = staticmethod(lambda path, status, body: (status, body))

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        kind = self.headers.get("Content-Type", "")
        path: str = self.path
        if kind == "application/json" and raw.startswith(b"{") and raw.endswith(b"}"):
            path, body = self.change_request(self.command, path, json.loads(raw))
            raw = json.dumps(body).encode()
        with Client(self.target, kind=self.headers.get("Accept", "application/json")) as client:
            response = client.send(self.command, path, raw or None, {"Content-Type": kind} if kind else {})
        status, data = response.status, response.body
        if response.headers.get("content-type") == "application/json":
            status, value = self.change_response(self.path, status, json.loads(data))
            data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", response.headers["content-type"])
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = do_PUT = handle_any  # noqa: N815

    def log_message(self, *_: Any) -> None: ...


def closed_is_unknown(path: str, status: int, body: Any) -> tuple[int, Any]:
    return (404, {"error": {"code": "unknown_session", "message": ""}}) if status == 410 else (status, body)


def internal_error(path: str, status: int, body: Any) -> tuple[int, Any]:
    return (500, body) if status == 400 else (status, body)


def reversed_batch(path: str, status: int, body: Any) -> tuple[int, Any]:
    return status, {"responses": body["responses"][::-1]} if path.endswith("/batch") else body


def swapped_rows(path: str, status: int, body: Any) -> tuple[int, Any]:
    if path.endswith("/steps"):
        indexes = [row[0] for row in body["rows"]]
        rows = [[index, *row[1:]] for index, row in zip(indexes[::-1], body["rows"], strict=True)]
        return status, {**body, "rows": rows}
    return status, body


def accepts_any_number(path: str, status: int, body: Any) -> tuple[int, Any]:
    if status == 409 and body["error"]["code"] == "out_of_order":
        return 200, {"observation": "", "reward": 0.0, "terminated": False, "truncated": False, "info": {}}
    return status, body


def not_ready(path: str, status: int, body: Any) -> tuple[int, Any]:
    return (503, body) if path == "/ready" else (status, body)


@pytest.mark.parametrize(
    ("change_request", "change_response", "invariant"),
    [
        (drop_ids, None, "exactly once"),
        (drop_numbers, None, "order"),
        (drop_seeds, None, "seeds"),
        (None, closed_is_unknown, "close"),
        (None, internal_error, "errors"),
        (None, reversed_batch, "batch"),
        (None, swapped_rows, "vector"),
        (None, accepts_any_number, "order"),
        (None, not_ready, "health"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_every_defect_is_detected(server: Server, change_request: Any, change_response: Any, invariant: str) -> None:
    both = {"change_request": change_request, "change_response": change_response}
    changes = {name: staticmethod(value) for name, value in both.items() if value is not None}
    handler = type("Handler", (DefectiveProxy,), {"target": server.url, **changes})
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=proxy.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        with pytest.raises(ConformanceError) as caught:
            check_server(f"http://127.0.0.1:{proxy.server_port}")
    finally:
        proxy.shutdown()
        proxy.server_close()
    assert caught.value.invariant == invariant
