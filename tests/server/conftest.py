"""Server and session for the native protocol tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.servers import Client, Server, SessionClient, serving


@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    with serving(workers=2, log="debug", max_lease=1_000) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client() as client:
        yield client


@pytest.fixture
def play(client: Client) -> Iterator[SessionClient]:
    play = client.open()
    assert play.reset(seed=1).data == {"seq": 0, "observation": "started 1", "info": {"seed": 1}}
    yield play
    assert play.close().status == 200
