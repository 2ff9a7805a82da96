"""Test OpenEnv's protocol on our server with OpenEnv's client, over plain HTTP and over a WebSocket."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
from websockets.sync.client import ClientConnection, connect

import palestra
from tests.server.bad_envs import TRICKY
from tests.server.protocols.outside import impatient, openenv_command
from tests.server.raw_http import read_head
from tests.server.servers import Client, Reply, Server, serving, until

CRAFT = "textcraft:Depth2-v0"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(CRAFT, TRICKY) as server:
        yield server


class HttpClient:
    """Client for OpenEnv's HTTP routes."""

    def __init__(self, client: Client, env: str = TRICKY) -> None:
        self.client = client
        self.base = f"/openenv/{env}"

    def reset(self, **data: Any) -> Reply:
        return self.client.post(f"{self.base}/reset", data)

    def step(self, action: str, **data: Any) -> Reply:
        return self.client.post(f"{self.base}/step", {"action": {"action": action}, **data})

    def state(self, query: str = "") -> Any:
        return self.client.get(f"{self.base}/state{query}").data


class SocketClient:
    """Client for OpenEnv's WebSocket."""

    def __init__(self, server: Server, env: str = TRICKY) -> None:
        address = server.url.replace("http", "ws", 1)
        self.held = ExitStack()
        opening = connect(f"{address}/openenv/{env}/ws", proxy=None, max_size=None)
        self.socket: ClientConnection = self.held.enter_context(opening)

    def send(self, kind: str, data: Any = None, **more: Any) -> None:
        self.socket.send(json.dumps({"type": kind, **({} if data is None else {"data": data}), **more}))

    def receive(self) -> Any:
        return json.loads(self.socket.recv(timeout=120))

    def request(self, kind: str, data: Any = None, **more: Any) -> Any:
        self.send(kind, data, **more)
        return self.receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.held.close()


@pytest.mark.slow
def test_openenv_client(server: Server) -> None:
    with palestra.make(CRAFT) as env:
        first, _ = env.reset(seed=11)
        expected: list[list[Any]] = [[first, None, False]]
        actions = []
        while not expected[-1][2]:
            actions.append(env.expert_action())
            step = env.step(str(actions[-1]))
            expected.append([step.observation, step.reward, step.done])
    command = openenv_command("openenv_player.py", f"{server.url}/openenv/{CRAFT}", "11", json.dumps(actions))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    output = json.loads(done.stdout.splitlines()[-1])
    assert output["results"] == expected
    assert output["results"][-1][1:] == [1.0, True]
    assert (output["state"]["episode_id"], output["state"]["step_count"]) == ("mine", len(actions))
    assert "EXECUTION_ERROR" in output["error"]
    assert output["tools"] == output["calls"][:4] == ["reset", "step", "render", "close"]
    assert output["calls"][4:-2] == [text for text, *_ in expected[:-1]]
    assert output["calls"][-2] == f"{expected[-1][0]}\n[reward 1; the episode is over: solved]"
    assert "tool_not_found" in output["calls"][-1]
    assert output["validation"] == []
    until(lambda: server.number("sessions") == 0)


def test_pages_and_openapi(server: Server) -> None:
    with server.client() as client:
        base = f"/openenv/{CRAFT}"
        document = client.get(f"{base}/openapi.json").data
        assert {"/reset", "/step", "/state"} <= document["paths"].keys()
        assert client.get(f"{base}/schema").data["action"]["title"] == "TextAction"
        for page in ("docs", "web"):
            reply = client.get(f"{base}/{page}")
            assert reply.status == 200
            assert reply.headers["content-type"].startswith("text/html")
        assert client.post(f"{base}/web").status == 405


def test_episodes_continue_over_http(server: Server) -> None:
    with server.client() as client:
        plain = HttpClient(client)
        assert plain.state() == {"episode_id": None, "step_count": 0}
        assert plain.step("a").status == 409
        started = plain.reset(seed=5)
        assert started.data == {
            "observation": {
                "text": "started 5",
                "info": {"seed": 5},
                "terminated": False,
                "truncated": False,
                "episode_id": started.data["observation"]["episode_id"],
            },
            "reward": None,
            "done": False,
        }
        assert plain.reset(seed=6, episode_id="b").data["observation"]["text"] == "started 6"
        assert plain.step("one").data["observation"]["text"] == "one"
        assert plain.step("two", episode_id="b").data["observation"]["text"] == "two"
        named = plain.step("three", episode_id=started.data["observation"]["episode_id"])
        assert named.data["observation"]["text"] == "one three"
        assert plain.state()["step_count"] == 2
        assert plain.state("?episode_id=b")["step_count"] == 1
        last = plain.step("end", episode_id="b").data
        assert (last["reward"], last["done"]) == (1.0, True)
        assert plain.step("x", episode_id="b").data["code"] == "episode_over"
        assert server.number("sessions") == 2
        assert client.post(f"{plain.base}/close", {"episode_id": "b"}).data == {"closed": True}
        assert client.post(f"{plain.base}/close", {"episode_id": "b"}).data == {"closed": False}
        gone = plain.step("x", episode_id="b")
        assert (gone.status, gone.data["code"]) == (410, "session_gone")
        assert client.post(f"{plain.base}/close").data == {"closed": True}
        assert server.number("sessions") == 0


def test_repeated_request_id_is_one_step(server: Server, tmp_path: Path) -> None:
    released = tmp_path / "released"
    wait = f"wait {released}"
    with server.client() as client:
        plain = HttpClient(client)
        plain.reset(seed=1)
        responses = [plain.step("a", request_id="1").body for _ in range(3)]
        assert len(set(responses)) == 1
        assert plain.step("b", request_id="2").data["observation"]["text"] == "a b"
        old = plain.step("a", request_id="1")
        assert (old.status, old.data["code"]) == (409, "out_of_order")
        late = plain.step(wait, request_id="3", timeout_s=0.05)
        assert (late.status, late.data["code"]) == (504, "not_yet")
        busy = plain.step("c", request_id="4")
        assert (busy.status, busy.data["code"]) == (409, "session_busy")
        released.touch()
        assert plain.step(wait, request_id="3").data["observation"]["text"] == f"a b {wait}"
        assert plain.step("c", request_id="4").data["observation"]["text"] == f"a b {wait} c"
        assert plain.state()["step_count"] == 4
        client.post(f"{plain.base}/close")


def test_two_clients_do_not_share_an_unnamed_episode() -> None:
    with (
        serving(TRICKY, tokens={"token-of-a": "a", "token-of-b": "b"}) as server,
        server.client(token="token-of-a") as one,
        server.client(token="token-of-b") as two,
    ):
        a, b = HttpClient(one), HttpClient(two)
        for name in ({}, {"episode_id": "x"}):
            a.reset(seed=1, **name)
            assert b.step("a", **name).status == 409
            assert b.reset(seed=2, **name).data["observation"]["text"] == "started 2"
            assert a.step("a", **name).data["observation"]["text"] == "a"


def test_metadata_and_schema(server: Server) -> None:
    with server.client() as client:
        assert client.get(f"/openenv/{CRAFT}/health").data == {"status": "healthy"}
        assert client.get("/openenv/textcraft%3ADepth2-v0/metadata").data["name"] == CRAFT
        schema = client.get(f"/openenv/{CRAFT}/schema").data
        assert list(schema) == ["action", "observation", "state"]
        assert schema["action"]["required"] == ["action"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("step", b"{}", 400),
        ("step", b'{"action": "x"}', 400),
        ("step", b'{"action": {}}', 422),
        ("step", b'{"action": {"action": 1}}', 422),
        ("step", b'{"action": {"action": "a", "text": "b"}}', 422),
        ("step", b'{"action": {"code": "a"}}', 422),
        ("step", b'{"action": {"action": "a"}, "timeout_s": -1}', 400),
        ("reset", b'{"seed": -1}', 422),
        ("reset", b'{"seed": "x"}', 422),
        ("reset", b'{"seed": true}', 422),
        ("reset", b'{"episode_id": 3}', 422),
        ("reset", b"[]", 400),
        ("reset", b"{", 400),
        ("reset", b"\xff\xfe", 400),
        ("nothing", b"{}", 404),
        ("state", b"{}", 405),
        ("../v1/envs", b"{}", 404),
    ],
)
def test_error_codes(server: Server, path: str, body: bytes, status: int) -> None:
    with server.client() as client:
        reply = client.send("POST", f"/openenv/{TRICKY}/{path}", body, {"Content-Type": "application/json"})
        assert reply.status == status
        assert set(reply.data) >= {"detail", "code"}
    assert server.number("sessions") == 0


def test_tools_over_plain_http(server: Server) -> None:
    with server.client() as client:

        def rpc(method: str, **params: Any) -> Any:
            return client.post(
                f"/openenv/{TRICKY}/mcp", {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
            )

        assert [tool["name"] for tool in rpc("tools/list").data["result"]["tools"]][:2] == ["reset", "step"]
        name = rpc("openenv/session/create").data["result"]["session_id"]
        started = rpc("tools/call", session_id=name, name="reset", arguments={"seed": 4}).data["result"]
        assert started["content"][0]["text"] == started["data"] == "started 4"
        stepped = rpc("tools/call", session_id=name, name="step", arguments={"action": "end"}).data["result"]
        assert stepped["structuredContent"]["reward"] == 1.0
        assert rpc("tools/call", session_id="x", name="step", arguments={"action": "a"}).data["error"]["code"] == -32602
        assert rpc("what").data["error"]["code"] == -32601
        assert rpc("openenv/session/close", session_id=name).data["result"]["closed"] is True
        assert rpc("openenv/session/close", session_id=name).data["error"]["code"] == -32602
    assert server.number("sessions") == 0


def test_error_codes_on_the_websocket(server: Server) -> None:
    with SocketClient(server) as talk:
        assert talk.request("state") == {"type": "state", "data": {"episode_id": None, "step_count": 0}}
        assert talk.request("step", {"action": "a"})["data"]["fault"] == "reset_needed"
        talk.socket.send("{")
        assert talk.receive()["data"]["code"] == "INVALID_JSON"
        talk.socket.send("[]")
        assert talk.receive()["data"]["code"] == "VALIDATION_ERROR"
        assert talk.request("what")["data"]["code"] == "UNKNOWN_TYPE"
        assert talk.request("reset", [])["data"]["code"] == "VALIDATION_ERROR"
        assert talk.request("reset", {"seed": -1})["data"]["code"] == "VALIDATION_ERROR"
        assert talk.request("reset", {"seed": 3})["data"]["observation"]["text"] == "started 3"
        assert talk.request("step", {"message": "a"})["data"]["observation"]["text"] == "a"
        assert talk.request("step", {"code": "a"})["data"]["code"] == "VALIDATION_ERROR"
        picture = talk.request("step", {"action": "image 1"})["data"]["observation"]
        assert picture["text"] == "look[image]"
        assert len(base64.b64decode(picture["parts"][1]["image"])) == 1 << 20
        listed = talk.request("mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert len(listed["data"]["result"]["tools"]) == 4
        for action in ("raise", "nan", "reward text"):
            assert talk.request("step", {"action": action})["data"]["fault"] == "env_failed"
            assert talk.request("reset", {"seed": 3})["data"]["observation"]["text"] == "started 3"
        talk.send("close")
        with pytest.raises(Exception, match="1000"):
            talk.receive()
    until(lambda: server.number("sessions") == 0)


def test_late_replies_are_dropped(server: Server, tmp_path: Path) -> None:
    """Check that a client without request ids receives only the reply to its last message."""
    released = tmp_path / "released"
    with SocketClient(server) as talk:
        talk.request("reset", {"seed": 1})
        talk.send("step", {"action": f"wait {released}"})
        with pytest.raises(TimeoutError):
            talk.socket.recv(timeout=0.1)
        talk.send("step", {"action": "b"})
        assert talk.socket.ping().wait(120)  # the server has received all messages
        released.touch()
        assert talk.receive()["data"]["observation"]["text"] == f"wait {released} b"
        with pytest.raises(TimeoutError):
            talk.socket.recv(timeout=0.1)
        assert talk.request("state")["data"]["step_count"] == 2
        for name in ("1", "2", "3"):  # all messages with a request id receive a reply
            talk.send("step", {"action": f"sleep 0.0{name}"}, request_id=name)
        assert [talk.receive()["request_id"] for _ in range(3)] == ["1", "2", "3"]
        again = [talk.request("step", {"action": "c"}, request_id="4") for _ in range(2)]
        assert again[0] == again[1]
        assert talk.request("state")["data"]["step_count"] == 6


def test_session_ends_with_the_websocket(server: Server) -> None:
    talks = [SocketClient(server) for _ in range(5)]
    for talk in talks:
        talk.request("reset")
    assert server.number("sessions") == 5
    talks[0].send("step", {"action": "sleep 30"})  # this step is still running when the client disconnects
    for talk in talks:
        talk.socket.socket.shutdown(socket.SHUT_RDWR)
        talk.held.close()
    until(lambda: server.number("sessions") == 0)
    until(lambda: server.number("websockets") == 0)
    with SocketClient(server) as talk:
        talk.socket.send(json.dumps({"type": "reset"}))
        talk.socket.socket.shutdown(socket.SHUT_RDWR)  # the server may still be creating the environment
    until(lambda: server.number("sessions") == 0)


def test_half_open_websocket_is_closed() -> None:
    with impatient(TRICKY) as server:
        parts = urlsplit(server.url)
        with socket.create_connection((str(parts.hostname), int(parts.port or 0))) as silent:
            key = base64.b64encode(b"0123456789abcdef").decode()
            silent.sendall(
                f"GET /openenv/{TRICKY}/ws HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
            )
            assert read_head(silent).startswith(b"HTTP/1.1 101")
            text = b'{"type":"reset"}'
            mask = b"\x01\x02\x03\x04"
            silent.sendall(
                b"\x81" + bytes([0x80 | len(text)]) + mask + bytes(c ^ mask[i % 4] for i, c in enumerate(text))
            )
            until(lambda: server.number("sessions_opened_total") == 1)
            until(lambda: server.number("sessions") == 0)  # the client does not respond to pings


def test_lost_session_is_reported_once(server: Server) -> None:
    with SocketClient(server) as talk, server.client() as client:
        plain = HttpClient(client)
        talk.request("reset", {"seed": 1})
        plain.reset(seed=2)
        for worker in server.workers():
            worker.kill()
        until(lambda: server.number("sessions") == 0)
        lost = talk.request("step", {"action": "a"})["data"]
        assert (lost["code"], lost["cause"]) == ("SESSION_ERROR", "worker")
        gone = plain.step("a")
        assert (gone.status, gone.data["cause"], gone.data["boundary"]) == (410, "worker", "env")
        until(lambda: client.get("/ready").status == 200)
        assert talk.request("reset", {"seed": 1})["data"]["observation"]["text"] == "started 1"
        assert plain.reset(seed=2).data["observation"]["text"] == "started 2"
        client.post(f"{plain.base}/close")


def test_limits() -> None:
    with serving(TRICKY, max_sessions=1, lease=4.0) as server, server.client() as client:
        plain = HttpClient(client)
        plain.reset(seed=1, episode_id="a")
        full = plain.reset(seed=1, episode_id="b")
        assert (full.status, full.data["code"]) == (503, "capacity")
        with SocketClient(server) as talk:
            assert talk.request("reset")["data"]["code"] == "CAPACITY_REACHED"
            until(lambda: server.number("sessions") == 0)  # the first session's lease has expired
            assert plain.step("x", episode_id="a").data["cause"] == "expired"
            assert talk.request("reset")["type"] == "observation"
