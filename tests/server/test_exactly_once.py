"""Test that calls are executed exactly once and in order, even if requests arrive shuffled or repeatedly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.sync.client import ClientConnection, connect

from tests.server.servers import Client, Server, SessionClient, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def websockets(server: Server) -> Iterator[list[ClientConnection]]:
    """Return two WebSockets, so that requests can arrive in a different order than they were sent."""
    url = f"ws{server.url[4:]}/v1/ws"
    with connect(url) as one, connect(url) as two:
        yield [one, two]


def send(websocket: ClientConnection, requests: list[dict[str, Any]]) -> None:
    websocket.send(msgspec.json.encode(requests).decode())


def receive(websocket: ClientConnection, count: int) -> list[dict[str, Any]]:
    responses: list[dict[str, Any]] = []
    while len(responses) < count:
        message = msgspec.json.decode(websocket.recv(timeout=120))
        responses.extend(message if isinstance(message, list) else [message])
    return responses


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    actions=st.lists(st.sampled_from(["a", "b", "sleep 0.003", "c"]), min_size=1, max_size=8),
    seed=st.integers(0, 2**32),
)
def test_shuffled_and_repeated_requests(
    server: Server, websockets: list[ClientConnection], actions: list[str], seed: int
) -> None:
    """Send all calls in an episode repeatedly and in random order until every call has succeeded."""
    rng = random.Random(seed)
    with server.client() as client:
        play = client.open()
        assert play.reset(seed=1, seq=0).status == 200
        calls = {
            f"{seq}": {"op": "step", "session": play.session, "action": action, "seq": seq, "id": f"{seq}"}
            for seq, action in enumerate(actions, 1)
        }
        done: dict[str, dict[str, Any]] = {}
        rounds = 0
        while len(done) < len(calls):
            rounds += 1
            assert rounds < 500
            requests = [calls[name] for name in calls for _ in range(rng.randint(1, 3))]  # also repeats finished calls
            rng.shuffle(requests)
            cut = rng.randint(0, len(requests))
            parts = [requests[:cut], requests[cut:]]
            for websocket, part in zip(websockets, parts, strict=True):
                if part:
                    send(websocket, part)
            for websocket, part in zip(websockets, parts, strict=True):
                for response in receive(websocket, len(part)):
                    name = response["id"]
                    if "error" in response:
                        assert response["error"]["code"] in ("out_of_order", "session_busy")
                    else:
                        assert done.setdefault(name, response["result"]) == response["result"]
        for seq, action in enumerate(actions, 1):
            outcome = done[f"{seq}"]
            assert (outcome["seq"], outcome["info"]["count"]) == (seq, seq)
            assert outcome["observation"].endswith(action)
        last = play.step("last").data
        assert last["observation"] == " ".join([*actions, "last"])
        play.close()


class Model:
    """Model of a session that checks the result of every call."""

    def __init__(self, client: Client) -> None:
        self.play: SessionClient = client.open()
        self.seq = 0  # sequence number of the next call
        self.names = 0
        self.before: tuple[str, dict[str, Any], int, bytes] | None = None  # the previous call and its response
        self.done: list[str] | None = None
        self.over = self.broken = False

    def call(self, operation: str, **arguments: Any) -> Any:
        """Send a call with a new id and the next sequence number."""
        self.names += 1
        request = {**arguments, "id": f"n{self.names}", "seq": self.seq}
        response = getattr(self.play, operation)(**request)
        self.seq += 1
        self.before = (operation, request, response.status, response.body)
        return response

    def reset(self) -> None:
        response = self.call("reset", seed=3)
        self.done, self.over, self.broken = [], False, False
        assert response.data == {"seq": self.seq - 1, "observation": "started 3", "info": {"seed": 3}}

    def step(self, action: str) -> None:
        response = self.call("step", action=action)
        if self.broken:
            assert response.code == "env_failed"
        elif self.done is None:
            assert response.code == "reset_needed"
        elif self.over:
            assert response.code == "episode_over"
        else:
            self.done.append(action)
            self.broken, self.over = action == "raise", action == "end"
            if self.broken:
                assert response.code == "env_failed"
            else:
                assert response.data["observation"] == " ".join(self.done)
                assert response.data["terminated"] is self.over

    def retry(self) -> None:
        if self.before is not None:
            operation, request, status, body = self.before
            again = getattr(self.play, operation)(**request)
            assert (again.status, again.body) == (status, body)

    def wrong_number(self, offset: int) -> None:
        """Send a call with a wrong sequence number."""
        if offset and self.seq + offset >= 0:
            response = self.play.step("a", id="wrong", seq=self.seq + offset)
            assert (response.code, response.data["error"]["expected"]) == ("out_of_order", self.seq)

    def fork(self) -> None:
        response = self.call("fork")
        if self.broken:
            assert response.code == "env_failed"
        elif self.done is None:
            assert response.code == "reset_needed"
        else:
            forked = SessionClient(self.play.client, response.data["session"])
            if not self.over:
                assert forked.step("x").data["observation"] == " ".join([*self.done, "x"])
            forked.close()


MOVES = st.one_of(
    st.tuples(st.just("reset")),
    st.tuples(st.just("step"), st.sampled_from(["a", "b", "c", "a", "b", "raise", "end"])),
    st.tuples(st.just("retry")),
    st.tuples(st.just("wrong_number"), st.integers(-3, 3)),
    st.tuples(st.just("fork")),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=st.lists(MOVES, max_size=30))
def test_session_matches_its_model(server: Server, moves: list[tuple[Any, ...]]) -> None:
    with server.client() as client:
        model = Model(client)
        for name, *arguments in moves:
            getattr(model, name)(*arguments)
        model.play.close()
