"""Server for tests of malformed requests, which must not affect a client that plays at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.server.malformed.bad_requests import ANN, BOB, LIMIT
from tests.server.raw_http import OtherClient, check_isolation
from tests.server.servers import Client, Server, SessionClient, serving


@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    settings: dict[str, Any] = {"tokens": {ANN: "ann", BOB: "bob"}, "max_body": LIMIT, "request_timeout": 1.0}
    with serving(workers=2, **settings) as server:
        yield server


@pytest.fixture(scope="package")
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
