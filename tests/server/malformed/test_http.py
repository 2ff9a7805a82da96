"""Test bytes that are not valid HTTP requests, and requests that are too large, incomplete or not authorized."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect as connect_socket

from palestra.remote.protocol import CODES
from tests.server.malformed.bad_requests import ANN, BOB, LIMIT, MEGABYTE, OK_HEAD
from tests.server.raw_http import connect, raw, read_all, request, statuses
from tests.server.servers import Client, Server, SessionClient

DOCUMENTED = {status for status, _ in CODES.values()} | {200, 201}
INVALID_HTTP = {
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
    "no version": b"GET /health\r\n\r\n",
    "strange version": b"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "spaces": b"GET /he alth HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "null": b"GET /health\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "bare lines": b"GET /health HTTP/1.1\nHost localhost\n\n",
    "bad header": b"GET /health HTTP/1.1\r\nHo st: localhost\r\n\r\n",
    "bytes in the path": b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "connect": b"CONNECT example.org:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "star": b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    "two lengths": OK_HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length and chunks": OK_HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
    "length is not a number": OK_HEAD + b"Content-Length: two\r\n\r\n{}",
    "negative length": OK_HEAD + b"Content-Length: -2\r\n\r\n{}",
    "bad chunk": OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "huge chunk": OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}",
    "chunk without end": OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}xx",
}


def test_invalid_http_is_refused(server: Server) -> None:
    for name, data in INVALID_HTTP.items():
        response = raw(server, data, half=False)
        assert statuses(response), name
        assert {*statuses(response)} <= {400, 401, 405, 408, 413, 415, 421}, name
        assert b'{"error":' in response, name


def test_random_bytes(server: Server) -> None:
    rng = random.Random(0)
    for size in [0, 1, 2, 10, 100, 10_000] * 4:
        response = raw(server, rng.randbytes(size))
        assert {*statuses(response)} <= {400, 408, 413}


def test_requests_with_random_changes(server: Server) -> None:
    whole = OK_HEAD + b'Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{"env": "bad:Trickx"}'
    rng = random.Random(1)
    for _ in range(150):
        changed = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(changed))
            changed[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 4))
        assert {*statuses(raw(server, bytes(changed)))} <= DOCUMENTED


@pytest.mark.parametrize(
    "pieces",
    [
        [b"GET /health HTTP/1.1\r\nX: " + b"x" * MEGABYTE] * 4,
        [b"GET /" + b"x" * MEGABYTE] * 4,
        [b"GET /health HTTP/1.1\r\n" + b"x: y\r\n" * 200_000],
        [OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ", *[b"x" * MEGABYTE] * 24],
        [OK_HEAD + b"Transfer-Encoding: chunked\r\n\r\n2;", *[b"x" * MEGABYTE] * 24],
    ],
    ids=["value", "path", "lines", "trailer", "extension"],
)
def test_oversized_heads(server: Server, pieces: list[bytes]) -> None:
    response = raw(server, *pieces, half=False)  # empty if the server disconnected before we had sent everything
    assert {*statuses(response)} <= {400, 413}


INCOMPLETE = [
    b"",
    b"GET /health HTT",
    OK_HEAD,
    OK_HEAD + b"Content-Length: 100\r\n\r\n{",
    OK_HEAD + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
    # The server responds to this request before its body is complete.
    b"POST /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
]


def test_incomplete_requests_time_out(server: Server) -> None:
    """Check the timeouts for clients that stop sending and for clients that send one byte at a time."""
    with ExitStack() as stack:
        silent = [stack.enter_context(connect(server)) for _ in INCOMPLETE]
        slow = [stack.enter_context(connect(server)) for _ in INCOMPLETE]
        for data, one, other in zip(INCOMPLETE, silent, slow, strict=True):
            one.sendall(data)
            other.sendall(data)
        open_sockets = {*slow}
        end = time.monotonic() + 120
        while open_sockets:
            assert time.monotonic() < end, "the server did not close the connections"
            time.sleep(0.1)
            for sock in [*open_sockets]:
                try:
                    sock.sendall(b"x")
                    sock.settimeout(0.001)
                    if not sock.recv(1 << 16):
                        open_sockets.discard(sock)
                except TimeoutError:
                    continue
                except ConnectionError:
                    open_sockets.discard(sock)
        for data, one in zip(INCOMPLETE, silent, strict=True):
            expected = {400, 405, 408} if data.startswith(b"POST /health") else {408}
            assert {*statuses(read_all(one))} <= expected, data


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_of_100_megabytes(server: Server, client: Client, declared: bool) -> None:
    before = server.memory()
    peak = 0

    def pieces() -> Iterator[bytes]:
        nonlocal peak
        for _ in range(100):
            peak = max(peak, server.memory())
            yield b" " * MEGABYTE

    headers = {"Content-Type": "application/json"}
    if declared:
        headers["Content-Length"] = str(100 * MEGABYTE)
    for path in ("/v1/sessions", "/v1/batch"):
        response = client.send("POST", path, pieces(), headers)
        assert (response.status, response.code) == (413, "too_large")
    assert client.get("/health").status == 200  # the connection can still be used
    assert peak < before + 4 * LIMIT + 16 * MEGABYTE


def test_large_content_length(server: Server) -> None:
    for length in (10**9, 10**15, 10**30):
        response = raw(server, OK_HEAD + b"Content-Length: %d\r\n\r\n{}" % length)
        assert {*statuses(response)} <= {400, 413}


# Authentication.


def test_wrong_tokens(server: Server) -> None:
    for header in (
        None,
        "",
        ANN,
        "Bearer",
        "Bearer ",
        f"Basic {ANN}",
        f"Bearer {ANN}x",
        f"Bearer {ANN[:-1]}",
        f"Bearer {ANN} {ANN}",
        f"Bearer {ANN.upper()}",
        "Bearer " + "x" * 10_000,
        "Bearer \x80\xff",
    ):
        headers = {} if header is None else {"Authorization": header}
        with server.client() as client:
            for path in ("/v1/sessions", "/v1/envs", "/metrics", "/nowhere"):
                response = client.send("POST" if path == "/v1/sessions" else "GET", path, None, headers)
                assert (response.status, response.code) == (401, "unauthorized"), header
                assert response.headers["www-authenticate"] == "Bearer"
            assert client.send("GET", "/health", None, headers).status == 200
    with pytest.raises(InvalidStatus) as refused, connect_socket(f"ws{server.url[4:]}/v1/ws"):
        pytest.fail("the connection was accepted")
    assert refused.value.response.status_code == 401


def test_wrong_host_header(client: Client) -> None:
    for host in ("example.org", "localhost.example.org", "127.0.0.1.example.org", "[::1", "\xff", ""):
        response = client.send("GET", "/health", None, {"Host": host})
        assert (response.status, response.code) == (421, "wrong_host"), host


def test_foreign_origin(client: Client) -> None:
    for origin in ("http://example.org", "null", "http://[", "http://\xc2\xbd", "", "http://localhost:1"):
        response = client.send("GET", "/v1/envs", None, {"Origin": origin})
        assert (response.status, response.code) == (401, "unauthorized"), origin
        assert "access-control-allow-origin" not in response.headers


def test_sessions_of_other_clients(server: Server, play: SessionClient) -> None:
    play.reset(seed=1)
    with server.client(token=BOB) as bob:
        foreign = SessionClient(bob, play.session)
        for response in (
            foreign.status(),
            foreign.step("a"),
            foreign.reset(),
            foreign.fork(),
            foreign.render(),
            foreign.close(),
        ):
            assert (response.status, response.code) == (404, "unknown_session")
        batch = bob.post("/v1/batch", {"requests": [{"op": "step", "session": play.session, "action": "x"}]}).data
        assert batch["responses"][0]["error"]["code"] == "unknown_session"
        with connect_socket(f"ws{server.url[4:]}/v1/ws", additional_headers={"Authorization": f"Bearer {BOB}"}) as ws:
            assert request(ws, {"op": "close", "session": play.session})["error"]["code"] == "unknown_session"
    assert play.step("b").data["observation"] == "b"
