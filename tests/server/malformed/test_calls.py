"""Test calls with unknown names, in the wrong state and with invalid bodies."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.server.bad_envs import TRICKY
from tests.server.malformed.bad_requests import ANN, BAD_JSON, BAD_MSGPACK, MEGABYTE
from tests.server.servers import MSGPACK, BackgroundCall, Client, Server, SessionClient

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


def test_a_batch_that_is_too_long(client: Client) -> None:
    response = client.post("/v1/batch", {"requests": [{"op": "status"}] * 100_000})
    assert (response.status, response.code) == (400, "bad_request")
