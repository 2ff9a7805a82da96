"""Test leases, quotas and timeouts, and that failures of environments and workers end only their sessions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.servers import BackgroundCall, Client, Server, SessionClient, count, serving, start_step, until

MEGABYTE = 1 << 20


def test_lease_is_renewed_by_use_and_expires(server: Server, client: Client) -> None:
    play = kept_by_use(client, lease=0.6, seconds=1.5)
    while play is None:
        play = kept_by_use(client, lease=0.6, seconds=1.5)
    before = server.number("sessions_ended_total", client, cause="expired")
    until(lambda: server.number("sessions_ended_total", client, cause="expired") > before)
    gone = play.step("a")
    assert (gone.status, gone.code, gone.data["error"]["cause"]) == (410, "session_gone", "expired")
    assert play.close().data["cause"] == "expired"
    long = client.create(lease=80_000).data
    assert long["lease"] == 1_000  # the server's maximum
    SessionClient(client, long["session"]).close()


def kept_by_use(client: Client, *, lease: float, seconds: float) -> SessionClient | None:
    """Use a new session for `seconds`; return None if the machine was too busy to use it before its lease expired."""
    start = used = time.monotonic()
    play = client.open(lease=lease)
    while used < start + seconds:
        sent, status = time.monotonic(), play.status().status
        if time.monotonic() - used >= lease:
            return None
        assert status == 200
        used = sent
        time.sleep(0.05)
    return play


def test_lease_does_not_expire_during_a_call(client: Client) -> None:
    play = client.open(lease=2.0)
    play.reset()
    assert play.step("sleep 3").status == 200
    assert play.step("a").status == 200
    play.close()


def test_request_timeout(play: SessionClient, tmp_path: Path) -> None:
    released = tmp_path / "released"
    wait = f"wait {released}"
    first = play.step(wait, id="x", seq=1, timeout=0.05)
    assert (first.status, first.code) == (504, "not_yet")
    assert first.headers["retry-after"] == "1"
    assert play.step(wait, id="x", seq=1, timeout=0.05).code == "not_yet"
    released.touch()
    assert play.step(wait, id="x", seq=1).data["info"]["count"] == 1
    assert count(play) == 2


def test_quotas_and_capacity(tmp_path: Path) -> None:
    released = tmp_path / "released"
    tokens = {"ann-has-a-token": "ann", "bob-has-another": "bob"}
    limits: dict[str, Any] = {"max_sessions": 3, "sessions_per_client": 2, "max_in_flight": 2, "any_kwargs": True}
    with serving(tokens=tokens, **limits) as server:  # noqa: SIM117
        with server.client(token="ann-has-a-token") as ann, server.client(token="bob-has-another") as bob:
            plays = [ann.open(kwargs={"word": "/a/file.txt"}), ann.open()]
            third = ann.create()
            assert (third.status, third.code, third.headers["retry-after"]) == (429, "quota", "5")
            plays[0].reset()
            assert plays[0].fork().code == "quota"
            bobs_play = bob.open()
            full = bob.create()
            assert (full.status, full.code, full.headers["retry-after"]) == (503, "capacity", "5")
            plays[1].close()
            assert ann.create(kwargs={"word": [[[[[["deep"]]]]]]}).code == "bad_value"  # nested too deeply
            plays[1] = ann.open()
            plays[1].reset()
            slow = [start_step(server, play.session, f"wait {released}", token="ann-has-a-token") for play in plays]
            until(lambda: server.number("calls_in_flight", ann) == 2)
            busy = bobs_play.reset()
            assert (busy.status, busy.code, busy.headers["retry-after"]) == (503, "capacity", "1")
            assert bobs_play.close().status == 200  # closing a session frees capacity
            released.touch()
            assert [one.result().status for one in slow] == [200, 200]


def test_too_many_requests() -> None:
    tokens = {"ann-has-a-token": "ann", "bob-has-another": "bob"}
    with serving(tokens=tokens, rate=10.0) as server:  # noqa: SIM117
        with server.client(token="ann-has-a-token") as ann, server.client(token="bob-has-another") as bob:
            play = ann.open()
            responses = [play.status() for _ in range(40)]
            refused = [response for response in responses if response.status != 200]
            assert refused
            assert {(one.status, one.code, one.headers["retry-after"]) for one in refused} == {
                (429, "rate_limited", "1")
            }
            assert bob.create().status == 201  # the rate limit applies to each client separately
            until(lambda: play.status().status == 200)


# Failures of environments and workers.

BROKEN = {
    "raise": ("RuntimeError", "the step failed"),
    "sysexit": ("SystemExit", "3"),
    "cancel": ("CancelledError", ""),
    "mute": ("Mute", "(no message)"),
    "half": ("RuntimeError", "?"),
    "surrogate": ("UnicodeEncodeError", "surrogates not allowed"),
    "object": ("TypeError", "object"),
}


@pytest.mark.parametrize("action", BROKEN)
def test_environment_that_fails(play: SessionClient, action: str) -> None:
    kind, message = BROKEN[action]
    failed = play.step(action)
    error = failed.data["error"]
    assert (failed.status, failed.code, error["boundary"], error["cause"]) == (502, "env_failed", "env", "raised")
    assert error["kind"] == kind
    assert message in error["message"]
    assert error["trace"]
    for later_call in (play.step("a"), play.render(), play.fork()):
        assert (later_call.status, later_call.code) == (502, "env_failed")
    assert play.reset(seed=2).data["observation"] == "started 2"
    assert count(play) == 1


def test_environment_that_cannot_be_created(server: Server, client: Client) -> None:
    before = server.number("sessions", client)
    failed = client.create(kwargs={"fails": True})
    assert (failed.status, failed.code, failed.data["error"]["kind"]) == (502, "env_failed", "RuntimeError")
    refused = client.create(kwargs={"sizes": 1})
    assert (refused.status, refused.code) == (422, "bad_value")
    assert "size" in refused.data["error"]["message"]
    assert server.number("sessions", client) == before


@pytest.mark.parametrize("action", ["nan", "reward inf", "reward none", "reward text", "reward bool"])
def test_invalid_reward_is_a_failure(play: SessionClient, action: str) -> None:
    reply = play.step(action)
    assert (reply.status, reply.code) == (502, "env_failed")
    assert "finite number" in reply.data["error"]["message"]


@pytest.fixture(scope="module")
def frail() -> Iterator[Server]:
    """Run a server with short timeouts and a low memory limit."""
    with serving(workers=2, step_timeout=3.0, memory=600 * MEGABYTE) as server:
        yield server


def test_hanging_call_ends_only_its_session(frail: Server) -> None:
    with frail.client() as client, frail.client() as other:
        plays = [client.open() for _ in range(3)]
        for play in plays:
            play.reset()
        hanging = start_step(frail, plays[0].session, "spin")
        done = 0
        while frail.number("sessions_ended_total", other, cause="deadline") == 0:
            done += 1
            assert [play.step(f"{done}").data["info"]["count"] for play in plays[1:]] == [done, done]
            time.sleep(0.05)
        gone = hanging.result()
        assert (gone.status, gone.code, gone.data["error"]["cause"]) == (410, "session_gone", "deadline")
        assert gone.data["error"]["boundary"] == "env"
        assert plays[0].reset().data["error"]["cause"] == "deadline"
        assert done > 1
        late = client.create(kwargs={"opens": 5.0})
        assert (late.status, late.data["error"]["cause"]) == (410, "deadline")
        for play in plays:
            play.close()
        until(lambda: frail.number("calls_in_flight", other) == 0)
        assert frail.number("worker_deaths_total", other) == 0


def test_closing_during_a_hanging_call_frees_everything(frail: Server) -> None:
    with frail.client() as client:
        before = frail.number("sessions", client)
        play = client.open()
        play.reset()
        hanging = start_step(frail, play.session, "spin")
        play.close()
        assert hanging.result().data["error"]["cause"] == "closed"
        until(lambda: frail.number("calls_in_flight", client) == 0)
        until(lambda: frail.number("worker_sessions", client) == before)


@pytest.mark.parametrize(("seconds", "cause"), [(2.0, "closed"), (20.0, "deadline")])
def test_fork_of_a_session_that_ends_frees_everything(frail: Server, seconds: float, cause: str) -> None:
    with frail.client() as client, frail.client() as other:
        before = frail.number("sessions", client)
        play = client.open(kwargs={"forks": seconds}, lease=3.0)
        play.reset()
        forked = BackgroundCall(lambda: SessionClient(other, play.session).fork())
        until(lambda: play.status().data["busy"])
        if cause == "closed":
            play.close()
        assert forked.result().data["error"]["cause"] == cause
        until(lambda: frail.number("sessions", client) == frail.number("worker_sessions", client) == before)
        until(lambda: frail.number("calls_in_flight", client) == 0)


def test_memory_limit(frail: Server) -> None:
    with frail.client() as client:
        plays = [client.open() for _ in range(2)]
        for play in plays:
            play.reset()
        failed = plays[0].step("eat 1000")
        assert (failed.status, failed.code, failed.data["error"]["cause"]) == (502, "env_failed", "memory")
        assert plays[1].step("a").status == 200
        assert plays[0].reset().status == 200
        for play in plays:
            play.close()


def test_dead_worker_ends_its_sessions_and_is_replaced() -> None:
    with serving(workers=2) as server, server.client() as client:
        workers = {worker.pid for worker in server.workers()}
        plays = [client.open() for _ in range(4)]  # two sessions per worker
        for play in plays:
            play.reset()
        gone = plays[0].step("exit")
        assert (gone.status, gone.code, gone.data["error"]["cause"]) == (410, "session_gone", "crashed")
        assert "exit status 7" in gone.data["error"]["message"]
        responses = [play.step("a") for play in plays[1:]]
        assert sorted(response.status for response in responses) == [200, 200, 410]
        lost = next(response for response in responses if response.status == 410)
        assert (lost.data["error"]["cause"], lost.data["error"]["boundary"]) == ("worker", "env")
        assert server.number("worker_deaths_total", client) == 1
        until(lambda: len(server.workers()) == 2 and server.number("ready", client) == 1)
        assert len({worker.pid for worker in server.workers()} & workers) == 1
        fresh = [client.open() for _ in range(2)]
        assert [play.reset(seed=1).status for play in fresh] == [200, 200]
        for play in (*plays, *fresh):
            assert play.close().status == 200
        assert server.number("sessions", client) == server.number("worker_sessions", client) == 0
