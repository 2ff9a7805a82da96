"""Test vector steps, which step many sessions in one request with the guarantees of a single step."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.sync.client import connect

import palestra
from tests.server.bad_envs import TRICKY
from tests.server.servers import (
    GUESS,
    JSON,
    MSGPACK,
    ROOT,
    BackgroundCall,
    Client,
    Reply,
    Server,
    SessionClient,
    serving,
    until,
)

FIELDS = ("observation", "reward", "terminated", "truncated", "info")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(workers=2, step_timeout=10.0) as server:
        yield server


def started_sessions(client: Client, number: int) -> list[SessionClient]:
    plays = [client.open() for _ in range(number)]
    for play in plays:
        assert play.reset(seed=1, seq=0).status == 200
    return plays


def step(client: Client, steps: list[tuple[str, int, str]], **more: Any) -> Reply:
    return client.post("/v1/steps", {"steps": steps, **more})


def outcomes(reply: Reply | dict[str, Any]) -> dict[int, Any]:
    """Return a dict from the index of each step to its result or error code; no index may occur twice."""
    data = reply.data if isinstance(reply, Reply) else reply
    results = [(row[0], dict(zip(FIELDS, row[1:6], strict=True))) for row in data["rows"]]
    results += [(missed["index"], missed["error"]["code"]) for missed in data["errors"]]
    assert len(results) == len(dict(results))
    return dict(results)


def single_result(reply: Reply) -> dict[str, Any]:
    return {name: reply.data[name] for name in FIELDS}


@pytest.mark.parametrize("kind", [JSON, MSGPACK])
def test_rows_equal_single_steps(server: Server, kind: str) -> None:
    actions = ["a", "end", "raise", "nan", "reward none", "object", "surrogate", "mute", "b", "big 1", "image 1"]
    with server.client(kind=kind) as client:
        plays, references = started_sessions(client, len(actions)), started_sessions(client, len(actions))
        steps = [(play.session, 1, action) for play, action in zip(plays, actions, strict=True)]
        invalid = [("unknown", 1, "a"), (plays[0].session, 7, "a")]
        results = outcomes(step(client, [*steps, *invalid], id="x"))
        for index, (reference, action) in enumerate(zip(references, actions, strict=True)):
            one = reference.step(action, seq=1)
            assert results[index] == (one.code or single_result(one)), action
        assert (results[3], results[4]) == ("env_failed", "env_failed")
        assert (results[len(actions)], results[len(actions) + 1]) == ("unknown_session", "out_of_order")
        assert sorted(results) == list(range(len(actions) + 2))
        again = outcomes(step(client, [(play.session, 2, "a") for play in plays[:3]]))
        assert again[0]["observation"] == "a a"
        assert (again[1], again[2]) == ("episode_over", "env_failed")
        for play in [*plays, *references]:
            play.close()


@pytest.mark.parametrize(("kind", "other"), [(JSON, JSON), (JSON, MSGPACK), (MSGPACK, JSON), (MSGPACK, MSGPACK)])
def test_retry_gets_the_same_rows(server: Server, kind: str, other: str) -> None:
    with server.client(kind=kind) as client, server.client(kind=other) as second:
        plays = started_sessions(client, 40)
        steps = [(play.session, 1, "raise" if i == 5 else f"{i}") for i, play in enumerate(plays)]
        first = outcomes(step(client, steps, id="x"))
        assert [first[i]["observation"] for i in range(40) if i != 5] == [f"{i}" for i in range(40) if i != 5]
        assert outcomes(step(second, steps, id="x")) == first
        assert outcomes(step(second, steps[::-1], id="x")) == {39 - i: result for i, result in first.items()}
        one = SessionClient(second, plays[7].session).step("7", id="x", seq=1)
        assert single_result(one) == first[7]
        assert one.data["seq"] == 1
        mixed = outcomes(step(second, [(plays[8].session, 2, "next"), steps[7]], id="x"))
        assert (mixed[0]["observation"], mixed[1]) == ("8 next", first[7])
        assert SessionClient(second, plays[9].session).step("10", id="y", seq=1).code == "out_of_order"
        for play in plays:
            play.close()


def test_timeout_and_retry(server: Server, tmp_path: Path) -> None:
    released = tmp_path / "released"
    with server.client() as client:
        plays = started_sessions(client, 3)
        wait = f"wait {released}"
        steps = [(play.session, 1, action) for play, action in zip(plays, ("a", wait, "b"), strict=True)]
        results = outcomes(step(client, steps, id="x", timeout=0.1))
        while "not_yet" in (results[0], results[2]):  # on a busy machine
            results = outcomes(step(client, steps, id="x", timeout=0.1))
        assert results[1] == "not_yet"
        assert [results[i]["observation"] for i in (0, 2)] == ["a", "b"]
        released.touch()
        again = outcomes(step(client, steps, id="x"))
        assert again == {**results, 1: again[1]}
        assert again[1]["observation"] == wait

        def repeat() -> dict[int, Any]:
            with server.client() as client:
                return outcomes(step(client, [(plays[1].session, 2, "sleep 0.2")], id="y"))

        both = [BackgroundCall(repeat), BackgroundCall(repeat)]
        assert both[0].result() == both[1].result() != {}
        for play in plays:
            play.close()


def test_session_that_ends_during_a_vector_step(server: Server) -> None:
    with server.client() as client, server.client() as other:
        plays = started_sessions(client, 4)
        actions = ["a", "spin", "spin", "b"]
        steps = [(play.session, 1, action) for play, action in zip(plays, actions, strict=True)]
        running = BackgroundCall(lambda: outcomes(step(client, steps)))
        until(lambda: SessionClient(other, plays[3].session).status().data["seq"] == 2)
        SessionClient(other, plays[1].session).close()
        results = running.result()
        # Session 1 was closed, and session 2 exceeded the step timeout.
        assert (results[1], results[2]) == ("session_gone", "session_gone")
        assert (results[0]["observation"], results[3]["observation"]) == ("a", "b")
        for play in plays:
            play.close()
    until(lambda: server.number("sessions") == 0)
    until(lambda: server.number("calls_in_flight") == 0)


def test_worker_that_dies_during_a_vector_step() -> None:
    with serving(workers=2) as server, server.client() as client:
        plays = started_sessions(client, 12)
        steps = [(play.session, 1, "exit" if i == 4 else "a") for i, play in enumerate(plays)]
        results = outcomes(step(client, steps))
        assert sorted(results) == list(range(12))
        assert results[4] == "session_gone"
        good = {i for i in results if results[i] != "session_gone"}
        assert len(good) >= 6  # the six sessions on the other worker succeed
        after = outcomes(step(client, [(play.session, 2, "b") for play in plays]))
        lost = {i for i in after if after[i] == "session_gone"}
        assert lost >= set(range(12)) - good
        assert all(after[i]["observation"] == "a b" for i in set(range(12)) - lost)
        assert len(lost) == 6


def test_steps_over_the_capacity_are_refused_one_by_one() -> None:
    with serving(workers=1, max_in_flight=3) as server, server.client() as client:
        plays = started_sessions(client, 5)
        results = outcomes(step(client, [(play.session, 1, "a") for play in plays]))
        assert [results[i] if isinstance(results[i], str) else "ok" for i in range(5)] == ["ok"] * 3 + ["capacity"] * 2
        assert outcomes(step(client, [(play.session, 1, "a") for play in plays[3:]]))[1]["observation"] == "a"
        url = f"{server.url}/{GUESS}"
        with palestra.make_vec(url, num_envs=4, seed=3) as vec, palestra.make_vec(GUESS, num_envs=4, seed=3) as here:
            assert vec.reset() == here.reset()
            assert vec.step(["\\boxed{5}"] * 4) == here.step(["\\boxed{5}"] * 4)


def test_every_step_counts_against_the_rate() -> None:
    with serving(rate=50.0) as server, server.client() as client:
        play = client.open()
        play.reset(seed=1, seq=0)
        steps = [(play.session, 1, "a")] * 200  # the limit is exceeded by 150 steps, which takes 3 seconds
        start = time.monotonic()
        assert outcomes(step(client, steps, id="x"))[0]["observation"] == "a"
        response = step(client, steps, id="x")
        assert (response.status, response.code) == (429, "rate_limited")
        wait = response.data["error"]["retry_after"]  # seconds until the next step is allowed
        assert 3.0 - (time.monotonic() - start) < wait <= 3.1
        until(lambda: step(client, steps[:1], id="x").status == 200)
        assert time.monotonic() - start > 2.9


def test_vector_loses_only_the_env_that_takes_too_long(server: Server) -> None:
    with palestra.make_vec(f"{server.url}/{TRICKY}", num_envs=4, seed=1, step_timeout=4.0) as vec:
        vec.reset()
        observations, rewards, _, truncated, infos = vec.step(["a", "b", "spin", "c"])
        assert [observations[i] for i in (0, 1, 3)] == ["a", "b", "c"]
        assert infos[2]["failure"].cause == "deadline"
        assert truncated[2]
        assert rewards[2] != rewards[2]
        assert not any("failure" in infos[i] for i in (0, 1, 3))
        observations, _, _, _, infos = vec.step(["d"] * 4)
        assert [observations[i] for i in (0, 1, 3)] == ["a d", "b d", "c d"]
        assert "failure" not in infos[2]  # the env has been reset


def test_over_the_websocket(server: Server) -> None:
    with server.client() as client, connect(f"ws{server.url[4:]}/v1/ws") as ws:
        plays = started_sessions(client, 3)
        steps = [(play.session, 1, "a") for play in plays]
        ws.send(msgspec.msgpack.encode({"op": "steps", "id": "x", "steps": steps}))
        response = msgspec.msgpack.decode(ws.recv(timeout=120, decode=False))
        assert response["id"] == "x"
        assert [outcomes(response["result"])[i]["observation"] for i in range(3)] == ["a"] * 3
        ws.send(msgspec.json.encode({"op": "steps", "id": "y", "steps": [["x", -1, "a"]]}).decode())
        assert msgspec.json.decode(ws.recv(timeout=120))["error"]["code"] == "bad_request"
        for play in plays:
            play.close()


def test_worker_without_msgspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the server encodes the results of an interpreter that has no msgspec."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv/bin/python"
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert subprocess.run([python, "-c", "import msgspec"], capture_output=True, check=False).returncode != 0
    with serving(GUESS, TRICKY, python=[f"bad={python}"]) as server, server.client() as client:
        actions = ["a", "surrogate", "end", "nan", "b"]
        plays, references = started_sessions(client, 5), started_sessions(client, 5)
        steps = [(play.session, 1, action) for play, action in zip(plays, actions, strict=True)]
        results = outcomes(step(client, steps, id="x"))
        ones = [reference.step(action, seq=1) for reference, action in zip(references, actions, strict=True)]
        assert results == {i: one.code or single_result(one) for i, one in enumerate(ones)}
        assert results[1] == "env_failed"
        assert outcomes(step(client, steps, id="x")) == results


MOVES = st.lists(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", "end", "raise"]), st.sampled_from([0, 0, 0, -1, 2])),
        min_size=1,
        max_size=6,
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=MOVES, twice=st.booleans())
def test_vector_steps_equal_single_steps_in_order(
    server: Server, moves: list[list[tuple[int, str, int]]], twice: bool
) -> None:
    """Check that vector steps have the same results as single steps, with and without retries."""
    with server.client() as client:
        plays, references = started_sessions(client, 4), started_sessions(client, 4)
        seqs = [1] * 4
        for number, move in enumerate(moves):
            # At most one step per session.
            chosen = list({who: (who, action, offset) for who, action, offset in move}.values())
            steps = [(plays[who].session, max(0, seqs[who] + offset), action) for who, action, offset in chosen]
            results = outcomes(step(client, steps, id=f"{number}"))
            for index, (who, action, offset) in enumerate(chosen):
                one = references[who].step(action, seq=max(0, seqs[who] + offset), id=f"{number}")
                assert results[index] == (one.code or single_result(one))
                seqs[who] += one.code != "out_of_order"
            if twice:
                assert outcomes(step(client, steps, id=f"{number}")) == results
        for play in [*plays, *references]:
            play.close()
