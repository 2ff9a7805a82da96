"""Test that calls are executed once and in order, retries return the same response, and errors contain the cause."""

from __future__ import annotations

import base64
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.sync.client import connect

import palestra
from tests.server.bad_envs import TRICKY
from tests.server.servers import (
    GUESS,
    JSON,
    MSGPACK,
    BackgroundCall,
    Client,
    Reply,
    Server,
    SessionClient,
    count,
    start_step,
    until,
)

MEGABYTE = 1 << 20


# Calls are executed exactly once and in order.


def test_retry_gets_the_same_response(play: SessionClient) -> None:
    first = play.step("a", id="x", seq=1)
    assert first.data["info"]["count"] == 1
    assert [play.step("a", id="x", seq=1).body for _ in range(3)] == [first.body] * 3
    assert play.step("a", id="x").body == first.body  # the sequence number is optional
    assert count(play) == 2


def test_retry_of_a_reset_an_error_and_a_failure(play: SessionClient) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("reset", {"seed": 5}),
        ("step", {"action": "end"}),
        ("step", {"action": "a"}),  # the episode is over
        ("reset", {"seed": 6}),
        ("step", {"action": "raise"}),
        ("step", {"action": "a"}),  # the environment has failed
        ("reset", {"options": {"raises": True}}),
        ("reset", {}),
    ]
    for seq, (operation, arguments) in enumerate(calls, 1):
        responses = [getattr(play, operation)(id=f"{seq}", seq=seq, **arguments) for _ in range(3)]
        assert len({(response.status, response.body) for response in responses}) == 1
        data = responses[0].data
        assert data.get("error", data)["seq"] == seq


def test_retry_while_the_call_is_running(server: Server, play: SessionClient) -> None:
    first = start_step(server, play.session, "sleep 0.4", id="x", seq=1)
    again = play.step("sleep 0.4", id="x", seq=1)
    assert again.data["info"]["count"] == 1
    assert first.result().body == again.body
    assert count(play) == 2


def test_retry_in_the_other_encoding(server: Server, client: Client) -> None:
    created = client.create(id="create")
    play = SessionClient(client, created.data["session"])
    with server.client(kind=MSGPACK) as packed:
        packed_play = SessionClient(packed, play.session)
        play.reset(seed=1, id="0")
        first = packed_play.step("a", id="1", seq=1)
        assert play.step("a", id="1", seq=1).data == first.data
        assert packed.create(id="create").data == created.data
        assert client.create(id="create").body == created.body
        slow = start_step(server, play.session, "sleep 0.3", id="2")
        assert packed_play.step("sleep 0.3", id="2").data == slow.result().data
    play.close()


def test_calls_out_of_order(play: SessionClient) -> None:
    for seq in (0, 2, 3, 10**18):
        response = play.step("a", id=f"{seq}", seq=seq)
        assert (response.status, response.code) == (409, "out_of_order")
        assert response.data["error"]["expected"] == 1
    assert play.step("a", id="b", seq=1).data["seq"] == 1
    late = play.step("a", id="c", seq=1)  # the sequence number of a previous call
    assert (late.code, late.data["error"]["expected"]) == ("out_of_order", 2)
    assert count(play) == 2


def test_reused_id_is_refused(client: Client, play: SessionClient) -> None:
    first = play.step("a", id="b", timeout=5)
    assert play.step("a", id="b", timeout=7).body == first.body  # a retry may have a different timeout
    others = [play.step("c", id="b"), play.step("c", id="b", seq=1), play.fork(id="b"), play.reset(id="b", seed=1)]
    assert {(response.status, response.code) for response in others} == {(409, "id_reused")}
    reset = play.reset(id="d", seed=1)
    assert play.reset(id="d", seed=1).body == reset.body
    assert play.reset(id="d", seed=2).code == "id_reused"
    # The id of an earlier call is accepted with the next sequence number.
    assert play.step("c", id="d", seq=3).data["seq"] == 3
    created = client.create(id="create", kwargs={})
    assert client.create(id="create").body == created.body
    assert client.create(id="create", lease=7.0).code == "id_reused"
    SessionClient(client, created.data["session"]).close()


def test_retry_with_integers_over_64_bits(client: Client, play: SessionClient) -> None:
    huge = {"unknown_keyword": 10**30}
    assert [client.create(id="huge", kwargs=huge).status for _ in range(2)] == [422, 422]
    first = play.reset(id="huge", options=huge)
    assert play.reset(id="huge", options=huge).body == first.body
    assert first.status in (200, 422)


def test_one_call_at_a_time(server: Server, play: SessionClient, tmp_path: Path) -> None:
    released = tmp_path / "released"
    slow = start_step(server, play.session, f"wait {released}")
    for response in (play.step("a"), play.reset(), play.fork(), play.render(), play.suggest_action(player="random")):
        assert (response.status, response.code) == (409, "session_busy")
        assert response.headers["retry-after"] == "1"
    assert play.status().data["busy"] is True
    released.touch()
    assert slow.result().status == 200
    assert count(play) == 2


def test_repeated_creation_returns_the_same_session(server: Server, client: Client) -> None:
    before = server.number("sessions_opened_total", client)

    def create(name: str) -> Reply:
        with server.client() as client:
            return client.create(TRICKY, kwargs={"opens": 0.3}, id=name)

    # The second request is sent while the first one is running.
    both = [BackgroundCall(lambda: create("once")), BackgroundCall(lambda: create("once"))]
    replies = [*(one.result() for one in both), create("once")]
    assert {reply.status for reply in replies} == {201}
    assert len({reply.body for reply in replies}) == 1
    assert server.number("sessions_opened_total", client) == before + 1
    assert client.create(id="twice").data["session"] != replies[0].data["session"]
    for reply in (replies[0], client.create(id="twice")):
        SessionClient(client, reply.data["session"]).close()


def test_request_id_header(client: Client, play: SessionClient) -> None:
    path = f"/v1/sessions/{play.session}/step"
    first = client.post(path, {"action": "a"}, **{"X-Request-Id": "h"})
    assert first.headers["x-request-id"] == "h"
    assert client.post(path, {"action": "a"}, **{"X-Request-Id": "h"}).body == first.body
    assert count(play) == 2


def test_fork_is_independent(client: Client, play: SessionClient) -> None:
    play.step("a")
    forked = play.fork(id="f", seq=2)
    assert play.fork(id="f", seq=2).body == forked.body
    fork_session = SessionClient(client, forked.data["session"])
    assert fork_session.session != play.session
    assert fork_session.step("b").data["observation"] == "a b"
    assert play.step("c").data["observation"] == "a c"
    assert fork_session.step("d", seq=1).data["info"]["count"] == 3
    assert fork_session.close().status == 200
    assert count(play) == 3


def test_closing_twice(client: Client) -> None:
    play = client.open()
    assert [play.close().data["cause"] for _ in range(3)] == ["closed"] * 3
    assert client.send("DELETE", f"/v1/sessions/{play.session}").status == 200
    for gone in (play.step("a"), play.reset(), play.status(), play.render(), play.fork()):
        assert (gone.status, gone.code, gone.data["error"]["cause"]) == (410, "session_gone", "closed")
    assert SessionClient(client, "never").close().status == 404


def test_closing_during_a_call(server: Server, client: Client, tmp_path: Path) -> None:
    released = tmp_path / "released"
    play = client.open()
    play.reset()
    slow = start_step(server, play.session, f"wait {released}")
    assert play.close().status == 200
    assert slow.result().code == "session_gone"
    released.touch()
    until(lambda: server.number("calls_in_flight", client) == 0)


def test_autoreset(client: Client) -> None:
    assert client.create(autoreset="same_step").code == "bad_request"  # `root` is missing
    play = client.open(autoreset="same_step", root=7)
    first = play.reset().data
    assert (first["observation"], first["episode"], first["reward"]) == ("started 7", 0, 0.0)
    last = play.step("end").data
    assert (last["terminated"], last["episode"], last["info"]["final_observation"]) == (True, 1, "end")
    broken = play.step("raise").data
    assert (broken["reward"], broken["truncated"]) == (None, True)
    assert broken["info"]["failure"]["kind"] == "RuntimeError"
    assert play.step("a").data["info"]["count"] == 1
    assert play.fork().code == play.reset(actions=["a"]).code == "bad_value"
    play.close()


def test_reset_with_actions(play: SessionClient) -> None:
    response = play.reset(seed=4, actions=["a", "b", "end"]).data
    assert (response["observation"], response["reward"], response["terminated"]) == ("a b end", 1.0, True)
    assert play.reset(seed=4, actions=["end", "a"]).code == "episode_over"


# Encodings and transports.


@pytest.mark.parametrize("kind", [JSON, MSGPACK])
def test_large_observations_and_images(server: Server, kind: str) -> None:
    with server.client(kind=kind) as client:
        play = client.open()
        play.reset()
        big = play.step("big 10").data["observation"]
        assert big == "x" * 10 * MEGABYTE
        text, picture = play.step("image 10").data["observation"]
        assert text == {"type": "text", "text": "look"}
        image = picture["image"] if kind == MSGPACK else base64.b64decode(picture["image"])
        assert image == bytes(range(256)) * (10 * MEGABYTE // 256)
        drawn = play.render(mode="image").data["render"]
        assert (drawn if kind == MSGPACK else base64.b64decode(drawn)).startswith(b"\x89PNG")
        assert play.step("y" * 10 * MEGABYTE).data["info"]["count"] == 3
        play.close()


def test_a_batch(client: Client, play: SessionClient, tmp_path: Path) -> None:
    other = client.open(GUESS)
    requests: list[dict[str, Any]] = [
        {"op": "step", "session": play.session, "action": "sleep 0.1", "id": "slow"},
        {"op": "reset", "session": other.session, "seed": 3, "id": "quick"},
        {"op": "step", "session": "unknown", "action": "a", "id": "lost"},
        {"op": "step", "session": play.session, "action": "b", "id": "busy"},
        {"op": "status", "session": other.session},
    ]
    responses = client.post("/v1/batch", {"requests": requests}).data["responses"]
    assert [response.get("id", "") for response in responses] == ["slow", "quick", "lost", "busy", ""]
    assert [response.get("status", 200) for response in responses] == [200, 200, 404, 409, 200]
    assert responses[0]["result"]["observation"] == "sleep 0.1"
    assert responses[1]["result"]["observation"] == palestra.make(GUESS).reset(seed=3)[0]
    released = tmp_path / "released"
    request = {**requests[0], "action": f"wait {released}", "id": "x"}
    late = client.post("/v1/batch", {"requests": [request], "timeout": 0.01}).data["responses"][0]
    assert late["error"]["code"] == "not_yet"
    released.touch()
    assert play.step(f"wait {released}", id="x").status == 200
    other.close()


def test_websocket_serves_many_sessions(server: Server, tmp_path: Path) -> None:
    released = tmp_path / "released"
    with connect(f"ws{server.url[4:]}/v1/ws", max_size=None) as ws:

        def send(*requests: dict[str, Any], packed: bool = False) -> dict[str, Any]:
            """Send messages and return a dict from request ids to responses."""
            if packed:
                ws.send(msgspec.msgpack.encode(list(requests)))
            else:
                ws.send(msgspec.json.encode(list(requests)).decode())
            responses: dict[str, Any] = {}
            while len(responses) < len(requests):
                message = ws.recv(timeout=120)
                assert isinstance(message, bytes) is packed
                data = (msgspec.msgpack if packed else msgspec.json).decode(message)
                for response in data if isinstance(data, list) else [data]:
                    responses[response["id"]] = response.get("result") or response["error"]
            return responses

        created = send(*({"op": "create", "env": TRICKY, "id": f"{i}"} for i in range(20)))
        sessions = [created[f"{i}"]["session"] for i in range(20)]
        send(*({"op": "reset", "session": session, "seed": 1, "id": session} for session in sessions))
        action = f"wait {released}"
        slow = {"op": "step", "session": sessions[0], "action": action, "id": "slow", "timeout": 0.1}
        both = send(slow, {"op": "step", "session": sessions[1], "action": "a", "id": "quick"})
        assert both["quick"]["observation"] == "a"
        assert both["slow"]["code"] == "not_yet"
        released.touch()
        assert send({**slow, "timeout": 30})["slow"]["info"]["count"] == 1
        big = send({"op": "step", "session": sessions[2], "action": "image 1", "id": "p"}, packed=True)["p"]
        assert len(big["observation"][1]["image"]) == MEGABYTE
    with connect(f"ws{server.url[4:]}/v1/ws") as ws:  # sessions stay open when the connection is closed
        closed = send(*({"op": "close", "session": session, "id": session} for session in sessions))
        assert {response["cause"] for response in closed.values()} == {"closed"}


# Monitoring.


def test_health_metrics_and_envs(server: Server, client: Client, play: SessionClient) -> None:
    assert client.get("/health").data == {"status": "healthy"}
    assert client.get("/ready").data == {"status": "ready"}
    assert client.send("HEAD", "/health").body == b""
    play.step("a", id="m")
    play.step("a", id="m")
    play.step("end")
    assert server.number("sessions", client) == server.number("worker_sessions", client) == 1
    assert server.number("ready", client) == 1
    assert server.number("retries_total", client) >= 1
    assert server.number("episodes_total", client) >= 1
    assert server.number("requests_total", client, op="step", code="ok") >= 3
    assert server.number("call_seconds_count", client, op="step") >= 2
    assert server.number("call_seconds_bucket", client, op="step", le="+Inf") >= 2
    assert server.number("worker_resident_bytes", client) > MEGABYTE
    envs = {entry["env"] for entry in client.get("/v1/envs").data["envs"]}
    assert envs == {TRICKY, GUESS}
    assert client.get(f"/v1/envs/{GUESS}").data["id"] == GUESS
    assert client.get("/v1/envs/game:Nothing-v0").code == "unknown_env"


def test_log_lines_are_json_with_ids(server: Server, client: Client) -> None:
    name = uuid.uuid4().hex
    play = client.open()
    play.reset(id=name)
    play.step("raise")
    play.close()
    lines = [line for line in server.lines if line.get("session") == play.session]
    assert [line["event"] for line in lines if line["event"] != "request"] == [
        "session opened",
        "environment failed",
        "session ended",
    ]
    assert {"time", "level", "event", "session", "env", "cause"} <= lines[-2].keys() | lines[-1].keys()
    (line,) = [line for line in lines if line.get("request") == name]
    assert (line["op"], line["code"]) == ("reset", "ok")
