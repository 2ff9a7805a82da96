"""Test invalid frames and messages on a WebSocket, and clients that disconnect or do not read."""

from __future__ import annotations

import random
import socket
import struct
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection
from websockets.sync.client import connect as connect_socket

from tests.server.malformed.bad_requests import ANN, BAD_JSON, BAD_MSGPACK, LIMIT, MEGABYTE
from tests.server.raw_http import connect, read_all, read_head, request
from tests.server.servers import Server, SessionClient, serving, until


def open_websocket(server: Server) -> ClientConnection:
    headers = {"Authorization": f"Bearer {ANN}"}
    return connect_socket(f"ws{server.url[4:]}/v1/ws", additional_headers=headers, max_size=None)


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
                ws.recv(timeout=120)
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
            assert kind.decode(ws.recv(timeout=120))["error"]["code"] == "bad_request", message[:100]
        assert request(ws, {"op": "unknown", "id": "me"})["id"] == "me"


def test_a_list_with_one_bad_request(server: Server, play: SessionClient) -> None:
    play.reset(seed=1)
    with open_websocket(server) as ws:
        good = {"op": "status", "session": play.session}
        ws.send(msgspec.json.encode([{**good, "id": "1"}, {"op": "eval", "id": "2"}, 3, {**good, "id": "4"}]).decode())
        responses: dict[str, Any] = {}
        while len(responses) < 4:
            message = msgspec.json.decode(ws.recv(timeout=120))
            for response in message if isinstance(message, list) else [message]:
                responses[response.get("id", "")] = response
        assert "result" in responses["1"]
        assert "result" in responses["4"]
        assert responses["2"]["error"]["code"] == responses[""]["error"]["code"] == "bad_request"


@pytest.mark.parametrize("last", ['{"op":"status"}', "1"], ids=["good", "one of them bad"])
def test_a_list_of_100_000_requests(server: Server, last: str) -> None:
    with open_websocket(server) as ws:
        ws.send("[" + '{"op":"status"},' * 99_999 + last + "]")
        response = msgspec.json.decode(ws.recv(timeout=120))
        assert (response["status"], response["error"]["code"]) == (413, "too_large")


def test_clients_that_disconnect_during_a_call(server: Server, play: SessionClient, tmp_path: Path) -> None:
    """Check that the call is still executed, over HTTP and a WebSocket, with and without a closing handshake."""
    play.reset(seed=1)
    first, second = f"wait {tmp_path / 'first'}", f"wait {tmp_path / 'second'}"
    body = msgspec.json.encode({"action": first, "id": "a"})
    head = b"POST /v1/sessions/%b/step HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n" % (
        play.session.encode(),
        ANN.encode(),
    )
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    with connect(server) as sock:
        sock.sendall(head + body)
        until(lambda: play.status().data["busy"])
        # Close the connection with a TCP reset.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    (tmp_path / "first").touch()
    assert play.step(first, id="a").data["info"]["count"] == 1
    ws = connect_socket(f"ws{server.url[4:]}/v1/ws", additional_headers={"Authorization": f"Bearer {ANN}"}, legacy=True)
    ws.send(msgspec.json.encode({"op": "step", "session": play.session, "action": second, "id": "b"}).decode())
    until(lambda: play.status().data["busy"])
    ws.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ws.socket.shutdown(socket.SHUT_RD)
    ws.socket.close()
    (tmp_path / "second").touch()
    assert play.step(second, id="b").data["info"]["count"] == 2


def upgrade(server: Server) -> socket.socket:
    """Open a WebSocket that does not respond to pings."""
    sock = connect(server)
    head = "GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    head += f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==\r\nAuthorization: Bearer {ANN}\r\n\r\n"
    sock.sendall(head.encode())
    assert read_head(sock).startswith(b"HTTP/1.1 101")
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
            for _ in range(3):
                before = play.status().data["seq"]
                stack.enter_context(connect(server)).sendall(head.encode() + body)
                until(lambda: play.status().data["seq"] > before and not play.status().data["busy"])  # noqa: B023
            until(lambda: server.number("websockets", client) == 0)
            until(lambda: server.handles() <= handles)
            read_all(silent)  # returns when the server disconnects
        assert play.step("a").data["info"]["count"] == 5
        assert server.memory() < memory + 64 * MEGABYTE
