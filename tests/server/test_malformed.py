"""Test that malformed requests return documented errors, leak no resources and do not affect other sessions."""

from __future__ import annotations

import os
import random
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as connect_socket

from palestra.remote.protocol import CODES
from tests.server.bad_envs import TRICKY
from tests.server.raw_http import OtherClient, check_isolation, connect, raw, read_all, statuses
from tests.server.servers import MSGPACK, ROOT, BackgroundCall, Client, Server, SessionClient, serving, until

ANN, BOB = "ann-has-a-token", "bob-has-another"
DOCUMENTED = {status for status, _ in CODES.values()} | {200, 201}
MEGABYTE = 1 << 20
LIMIT = 2 * MEGABYTE


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    settings: dict[str, Any] = {"tokens": {ANN: "ann", BOB: "bob"}, "max_body": LIMIT, "request_timeout": 1.0}
    with serving(workers=2, **settings) as server:
        yield server


@pytest.fixture(scope="module")
def other_client(server: Server) -> Iterator[OtherClient]:
    other_client = OtherClient(server, BOB)
    other_client.check()
    yield other_client
    other_client.stop()


@pytest.fixture(autouse=True)
def no_side_effects(server: Server, other_client: OtherClient) -> Iterator[None]:
    with check_isolation(server, other_client, ANN):
        yield


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client(token=ANN) as client:
        yield client


@pytest.fixture
def play(client: Client) -> Iterator[SessionClient]:
    play = client.open()
    yield play
    with client.__class__(client.url, token=ANN) as fresh:  # the connection of `client` may be broken after the test
        assert fresh.send("DELETE", f"/v1/sessions/{play.session}").status == 200


# Conformance with the OpenAPI document.


def schemathesis(server: Server, folder: Path, session: str, *options: str) -> None:
    (folder / "schemathesis.toml").write_text(f'[parameters]\n"path.session" = "{session}"\n' if session else "")
    arguments = ["--max-examples", "2", "--no-color", "-H", f"Authorization: Bearer {ANN}", *options]
    # Documented 5xx responses are allowed, and an environment may reject data that is valid according to the schema.
    arguments += ["--exclude-checks", "not_a_server_error,positive_data_acceptance"]
    if "CI" in os.environ:
        arguments.append("--generation-deterministic")
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json", *arguments],
        cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.server.schema_hooks", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.search(r"([\d,]+) generated, ([\d,]+) passed", done.stdout)
    assert counts is not None
    assert counts[1] == counts[2]


@pytest.mark.slow
def test_openapi_schema_of_a_session(server: Server, play: SessionClient, tmp_path: Path) -> None:
    play.reset(seed=1)
    excluded = ["--exclude-operation-id", "close", "--exclude-operation-id", "deleteSession"]
    with closing_all(server):
        schemathesis(server, tmp_path, play.session, "--phases", "coverage,fuzzing", *excluded)


@pytest.mark.slow
def test_openapi_schema_of_call_sequences(server: Server, tmp_path: Path) -> None:
    with closing_all(server):
        schemathesis(server, tmp_path, "", "--phases", "examples,stateful")


@contextmanager
def closing_all(server: Server) -> Iterator[None]:
    """Close all sessions that were opened according to the log."""
    try:
        yield
    finally:
        lines = server.lines
        opened = {line["session"] for line in lines if line["event"] == "session opened" and line["client"] == "ann"}
        ended = {line["session"] for line in lines if line["event"] == "session ended"}
        with server.client(token=ANN) as client:
            for session in opened - ended:
                assert client.send("DELETE", f"/v1/sessions/{session}").status in (200, 404)


def test_every_error_code_is_documented(client: Client) -> None:
    document = client.get("/openapi.json").data
    operations = [value for path in document["paths"].values() for name, value in path.items() if name != "parameters"]
    descriptions = " ".join(
        response["description"] for operation in operations for response in operation["responses"].values()
    )
    assert [code for code in CODES if f"{code}:" not in descriptions] == []
    assert len({operation["operationId"] for operation in operations}) == len(operations) == 17


# Bytes that are not valid HTTP requests.

OK_HEAD = b"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + ANN.encode() + b"\r\n"
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
        end = time.monotonic() + 20
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


# Invalid calls.


def test_unknown_names(client: Client) -> None:
    for name in ("unknown", "", "..", "%2e%2e", "x" * 10_000, "%00", "%ff", "a%2Fb", "🙂".encode().hex(), "{session}"):
        for method, rest in (("GET", ""), ("DELETE", ""), ("POST", "/step"), ("POST", "/close"), ("POST", "/nothing")):
            body, headers = (b'{"action":"a"}' if rest == "/step" else b"{}"), {"Content-Type": "application/json"}
            assert client.send(method, f"/v1/sessions/{name}{rest}", body, headers).status in (404, 405)
    responses = [
        client.create(env) for env in ("game:Nothing-v0", "bad:tricky-v0", "x" * 256, "../../etc/passwd", "\0")
    ]
    assert {(response.status, response.code) for response in responses} == {(404, "unknown_env")}


def test_calls_in_the_wrong_state(play: SessionClient) -> None:
    for early in (
        play.step("a"),
        play.render(),
        play.fork(),
        play.suggest_action(player="random"),
        play.suggest_action(player="expert"),
    ):
        assert (early.status, early.code) == (409, "reset_needed")
    assert play.reset(seed=1).status == 200
    assert play.step("end").data["terminated"] is True
    for _ in range(3):
        late = play.step("a")
        assert (late.status, late.code) == (409, "episode_over")
    assert play.reset(seed=1).data["observation"] == "started 1"


def test_concurrent_steps_of_one_session(server: Server, play: SessionClient) -> None:
    play.reset(seed=1)

    def steps() -> list[int]:
        with server.client(token=ANN) as client:
            return [SessionClient(client, play.session).step("sleep 0.002").status for _ in range(20)]

    threads = [BackgroundCall(steps) for _ in range(8)]
    codes = [status for thread in threads for status in thread.result()]
    assert {*codes} <= {200, 409}
    assert play.step("last").data["info"]["count"] == codes.count(200) + 1


# Invalid bodies.

BAD_JSON = [
    b"",
    b"{",
    b"[]",
    b"null",
    b'"x"',
    b"\xff\xfe",
    b"\x00",
    b'{"env": "\xff"}',
    b'{"env": "\\ud800"}',
    b'{"env": "\\udc00\\ud800"}',
    b'{"env": 1}',
    b'{"env": ["bad:Tricky-v0"]}',
    b'{"env": "bad:Tricky-v0", "lease": NaN}',
    b'{"env": "bad:Tricky-v0", "lease": Infinity}',
    b'{"env": "bad:Tricky-v0", "lease": 1e999}',
    b'{"env": "bad:Tricky-v0", "lease": -1}',
    b'{"env": "bad:Tricky-v0", "lease": 0}',
    b'{"env": "bad:Tricky-v0", "timeout": "soon"}',
    b'{"env": "bad:Tricky-v0", "root": ' + b"9" * 400 + b"}",
    b'{"env": "bad:Tricky-v0", "root": -1}',
    b'{"env": "bad:Tricky-v0", "autoreset": "same_step"}',
    b'{"env": "bad:Tricky-v0", "autoreset": "now", "root": 1}',
    b'{"env": "bad:Tricky-v0", "kwargs": []}',
    b'{"env": "bad:Tricky-v0", "kwargs": {"size": ' + b"9" * 5_000 + b"}}",
    b'{"env": "bad:Tricky-v0", "kwargs": {"size": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    b'{"env": "bad:Tricky-v0", "kwargs": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    b'{"env": "bad:Tricky-v0", "op": "step"}',
    b'{"env": "bad:Tricky-v0", "id": "' + b"x" * 1_000 + b'"}',
    b'{"env": "bad:Tricky-v0", "more": 1}',
    b'{"env": "bad:Tricky-v0"} {}',
    b"[" * 1_000_000,
]
BAD_MSGPACK = [
    b"\xc1",
    b"\x90",
    b"\xc0",
    b"\xdf\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\x81\xa3env\xa1\xff",
    b"\x81\xa3env\xa3\xed\xa0\x80",
    b"\x81\x90\x01",
    b"\x81\x80\x01",
    b"\x82\xa3env\xadbad:Tricky-v0\xa5lease\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"\x82\xa3env\xadbad:Tricky-v0\xa5lease\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00",
    b"\x82\xa3env\xadbad:Tricky-v0\xa6kwargs\x81\xa4size" + b"\x91" * 100_000,
    b"\x82\xa3env\xadbad:Tricky-v0\xa6kwargs\x81\xa4size\xc7\x0c\xff" + b"\xff" * 12,
    b"\x91" * 1_000_000,
]
BAD_KEYWORDS: list[Any] = [
    {"size": -1},
    {"nothing": 1},
    {"word": "/etc/passwd"},
    {"word": "..", "size": 1},
    {"word": "C:"},
    {"word": "~root"},
    {"word": "a.b"},
    {"word": "x" * 2_000},
    {"word": ["/etc/passwd"]},
    {"word": {"a": [{"b": "/etc/passwd"}]}},
    {"word": {"/etc/passwd": 1}},
    {"word": [[[[[[1]]]]]]},
    {"tools": ["python"]},
    {"wrappers": []},
    {"seed": 1},
]


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/batch", "step"])
def test_bad_json(client: Client, play: SessionClient, path: str) -> None:
    for body in BAD_JSON:
        url = f"/v1/sessions/{play.session}/step" if path == "step" else path
        response = client.send("POST", url, body, {"Content-Type": "application/json"})
        assert (response.status, response.code) == (400, "bad_request"), body[:100]
        assert len(response.body) < 1_000


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/batch", "step"])
def test_bad_msgpack(client: Client, play: SessionClient, path: str) -> None:
    for body in BAD_MSGPACK:
        url = f"/v1/sessions/{play.session}/step" if path == "step" else path
        response = client.send("POST", url, body, {"Content-Type": MSGPACK})
        assert (response.status, response.code) == (400, "bad_request"), body[:100]


@pytest.mark.parametrize("kind", ["application/json", MSGPACK])
def test_forbidden_keywords(server: Server, kind: str) -> None:
    with server.client(token=ANN, kind=kind) as client:
        for kwargs in BAD_KEYWORDS:
            response = client.create(TRICKY, kwargs=kwargs)
            assert (response.status, response.code) == (422, "bad_value"), kwargs


def test_keywords_that_only_msgpack_can_encode(server: Server) -> None:
    with server.client(token=ANN, kind=MSGPACK) as client:
        for value in (b"bytes", msgspec.msgpack.Ext(5, b"x"), {1: 2, None: 3, b"k": 4}, {(1, 2): 3}):
            response = client.create(TRICKY, kwargs={"word": value})
            assert (response.status, response.code) == (422, "bad_value")


def test_unsupported_content_types(client: Client, play: SessionClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "a/b/c;;;"):
        response = client.send("POST", f"/v1/sessions/{play.session}/step", b"{}", {"Content-Type": kind})
        assert (response.status, response.code) == (415, "unsupported_media")


def test_actions_of_all_kinds(play: SessionClient) -> None:
    play.reset(seed=1)
    for number, action in enumerate(["", "\0", "\ufffe\U0010ffff", "x" * MEGABYTE, "'\"\\</script>", "🙂" * 1_000], 1):
        assert play.step(action).data["info"]["count"] == number


# WebSocket.


def open_websocket(server: Server) -> ClientConnection:
    headers = {"Authorization": f"Bearer {ANN}"}
    return connect_socket(f"ws{server.url[4:]}/v1/ws", additional_headers=headers, max_size=None)


def request(ws: ClientConnection, data: Any) -> Any:
    ws.send(msgspec.json.encode(data).decode())
    return msgspec.json.decode(ws.recv(timeout=30))


def frame(opcode: int, data: bytes = b"", *, fin: bool = True, mask: bool = True, reserved: int = 0) -> bytes:
    head = bytes([(fin << 7) | (reserved << 4) | opcode])
    if len(data) < 126:
        head += bytes([(mask << 7) | len(data)])
    else:
        head += bytes([(mask << 7) | 127]) + struct.pack("!Q", len(data))
    return head + (bytes(4) if mask else b"") + data


BAD_FRAMES = {
    "unmasked": (frame(1, b"{}", mask=False), 1002),
    "reserved bits": (frame(1, b"{}", reserved=7), 1002),
    "unknown kind": (frame(3, b"{}"), 1002),
    "long ping": (frame(9, b"x" * 200), 1002),
    "fragmented ping": (frame(9, b"x", fin=False), 1002),
    "continuation without a start": (frame(0, b"{}"), 1002),
    "two starts": (frame(1, b"{", fin=False) + frame(1, b"}"), 1002),
    "invalid UTF-8": (frame(1, b"\xff"), 1007),
    "close with one byte": (frame(8, b"\x03"), 1002),
    "too large": (frame(2, b"x" * (LIMIT + 1)), 1009),
    "declared too large": (b"\x82\xff" + struct.pack("!Q", 1 << 62), 1009),
    "too large in fragments": (frame(2, b"x" * LIMIT, fin=False) + frame(0, b"x" * LIMIT, fin=False), 1009),
    "endless fragments": (frame(2, b"x", fin=False) + frame(0, b"", fin=False) * 100_000, 1009),
    "garbage": (random.Random(2).randbytes(10_000), None),
}


def test_bad_frames(server: Server) -> None:
    for name, (data, code) in BAD_FRAMES.items():
        with open_websocket(server) as ws:
            with suppress(OSError):  # the server may already have disconnected
                ws.socket.sendall(data)
            with pytest.raises(ConnectionClosed) as closed:
                ws.recv(timeout=30)
            # `rcvd` is None if the server disconnected without a close frame.
            if code is not None and closed.value.rcvd is not None:
                assert closed.value.rcvd.code == code, name


def test_invalid_messages(server: Server) -> None:
    with open_websocket(server) as ws:
        messages: list[str | bytes] = [
            "",
            "x",
            "{}",
            "1",
            "null",
            '"step"',
            '{"op": "eval"}',
            '{"op": 1}',
            '{"id": "a"}',
        ]
        messages += [BAD_JSON[-1].decode(), "[" * 100_000 + "]" * 100_000, '{"op": "step", "action": "\\ud800"}']
        messages += BAD_MSGPACK[:-1]
        for message in messages:
            ws.send(message)
            kind = msgspec.json if isinstance(message, str) else msgspec.msgpack
            assert kind.decode(ws.recv(timeout=30))["error"]["code"] == "bad_request", message[:100]
        assert request(ws, {"op": "unknown", "id": "me"})["id"] == "me"


def test_a_list_with_one_bad_request(server: Server, play: SessionClient) -> None:
    play.reset(seed=1)
    with open_websocket(server) as ws:
        good = {"op": "status", "session": play.session}
        ws.send(msgspec.json.encode([{**good, "id": "1"}, {"op": "eval", "id": "2"}, 3, {**good, "id": "4"}]).decode())
        responses: dict[str, Any] = {}
        while len(responses) < 4:
            message = msgspec.json.decode(ws.recv(timeout=30))
            for response in message if isinstance(message, list) else [message]:
                responses[response.get("id", "")] = response
        assert "result" in responses["1"]
        assert "result" in responses["4"]
        assert responses["2"]["error"]["code"] == responses[""]["error"]["code"] == "bad_request"


@pytest.mark.parametrize("last", ['{"op":"status"}', "1"], ids=["good", "one of them bad"])
def test_a_list_of_100_000_requests(server: Server, last: str) -> None:
    with open_websocket(server) as ws:
        ws.send("[" + '{"op":"status"},' * 99_999 + last + "]")
        response = msgspec.json.decode(ws.recv(timeout=30))
        assert (response["status"], response["error"]["code"]) == (413, "too_large")


def test_a_batch_that_is_too_long(client: Client) -> None:
    response = client.post("/v1/batch", {"requests": [{"op": "status"}] * 100_000})
    assert (response.status, response.code) == (400, "bad_request")


def test_clients_that_disconnect_during_a_call(server: Server, play: SessionClient) -> None:
    """Check that the call is still executed, over HTTP and a WebSocket, with and without a closing handshake."""
    play.reset(seed=1)
    body = b'{"action":"sleep 0.3","id":"a"}'
    head = b"POST /v1/sessions/%b/step HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n" % (
        play.session.encode(),
        ANN.encode(),
    )
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with connect(server) as sock:
        sock.sendall(head + body)
        time.sleep(0.05)
        # Close the connection with a TCP reset.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert play.step("sleep 0.3", id="a").data["info"]["count"] == 1
    ws = connect_socket(f"ws{server.url[4:]}/v1/ws", additional_headers={"Authorization": f"Bearer {ANN}"}, legacy=True)
    ws.send(msgspec.json.encode({"op": "step", "session": play.session, "action": "sleep 0.3", "id": "b"}).decode())
    time.sleep(0.05)
    ws.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ws.socket.shutdown(socket.SHUT_RD)
    ws.socket.close()
    assert play.step("sleep 0.3", id="b").data["info"]["count"] == 2


def upgrade(server: Server) -> socket.socket:
    """Open a WebSocket that does not respond to pings."""
    sock = connect(server)
    head = "GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    head += f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\nAuthorization: Bearer {ANN}\r\n\r\n"
    sock.sendall(head.encode())
    assert sock.recv(1 << 16).startswith(b"HTTP/1.1 101")
    return sock


def test_clients_that_do_not_read() -> None:
    """Check that the server disconnects half-open WebSockets and clients that never read a 10 MB response."""
    with serving(tokens={ANN: "ann"}, request_timeout=1.0, ping=0.5) as server, server.client(token=ANN) as client:
        play = client.open()
        play.reset(seed=1)
        handles, memory = server.handles(), server.memory()
        body = b'{"action":"big 10"}'
        head = f"POST /v1/sessions/{play.session}/step HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ANN}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with ExitStack() as stack:
            silent = stack.enter_context(upgrade(server))
            unread = stack.enter_context(upgrade(server))
            message = msgspec.json.encode({"op": "step", "session": play.session, "action": "big 10", "id": "1"})
            unread.sendall(frame(1, message))
            until(lambda: play.status().data["seq"] == 2 and not play.status().data["busy"])
            for _ in range(5):
                before = play.status().data["seq"]
                stack.enter_context(connect(server)).sendall(head.encode() + body)
                until(lambda: play.status().data["seq"] > before and not play.status().data["busy"])  # noqa: B023
            until(lambda: server.number("websockets", client) == 0)
            until(lambda: server.handles() <= handles)
            read_all(silent)  # returns when the server disconnects
        assert play.step("a").data["info"]["count"] == 7
        assert server.memory() < memory + 64 * MEGABYTE
