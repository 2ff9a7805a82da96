"""Test the limits of bytes in flight and sessions per token, hidden exception texts, and removed temporary folders."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect as connect_socket

from palestra.errors import BadValue
from palestra.remote.protocol import Fault
from palestra.server import scratch
from palestra.server.budget import ByteBudget
from palestra.server.settings import Settings
from tests.server.bad_envs import TRICKY
from tests.server.raw_http import connect, read_head
from tests.server.servers import GUESS, JSON, MSGPACK, ROOT, Client, Server, SessionClient, serving, until

KILOBYTE, MEGABYTE = 1 << 10, 1 << 20
ANN, BOB = "ann-has-a-token", "bob-has-another"
ANSWER = "x" * (100 * KILOBYTE)
RETRIES = 4_096


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    limits: dict[str, Any] = {
        "max_body": 2 * MEGABYTE,
        "buffer_per_client": 4 * MEGABYTE,
        "buffer": 6 * MEGABYTE,
        "tokens": {ANN: "ann", BOB: "bob"},
        "max_sessions": 8,
    }
    with serving(workers=1, **limits) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.client(token=ANN) as client:
        yield client


@pytest.fixture
def play(client: Client) -> Iterator[SessionClient]:
    """Yield a session whose last step, with the id "x" and the sequence number 1, has a large result."""
    play = client.open()
    play.reset(seed=1)
    assert play.step(ANSWER, id="x", seq=1).status == 200
    yield play
    play.close()


def peak(server: Server) -> int:
    """Return the maximum resident memory of the server process so far."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * KILOBYTE


def socket_of(server: Server) -> Any:
    return connect_socket(
        f"ws{server.url[4:]}/v1/ws", additional_headers={"Authorization": f"Bearer {ANN}"}, max_size=None
    )


def codes(responses: list[dict[str, Any]]) -> Counter[str]:
    return Counter(response["error"]["code"] if "error" in response else "" for response in responses)


def test_many_retries_of_a_large_answer_in_one_message(server: Server, client: Client, play: SessionClient) -> None:
    """Check that as many retries as the budget allows return the answer, and that they need little memory."""
    before = peak(server)
    request = {"op": "step", "session": play.session, "id": "x", "seq": 1, "action": ANSWER}
    with socket_of(server) as ws:
        for action, copies in ((ANSWER, 10), ("y", 1)):  # a large message, and one with a wrong action
            ws.send(json.dumps([{**request, "action": action}] * copies))
        responses: list[dict[str, Any]] = []
        while len(responses) < 11:
            message = json.loads(ws.recv())
            responses += message if isinstance(message, list) else [message]
        assert codes(responses) == {"": 10, "id_reused": 1}
    short = client.open()
    short.reset(seed=1)
    short.step("big 1", id="x", seq=1)
    request = {"op": "step", "session": short.session, "id": "x", "seq": 1, "action": "big 1"}
    with socket_of(server) as ws:
        ws.send(json.dumps([request] * RETRIES))
        responses = []
        while len(responses) < RETRIES:
            message = json.loads(ws.recv())
            responses += message if isinstance(message, list) else [message]
    count = codes(responses)
    assert count.keys() == {"", "capacity"}
    assert count[""] >= 3
    assert all(one["result"]["observation"] == "x" * MEGABYTE for one in responses if "result" in one)
    assert next(one for one in responses if "error" in one)["error"]["retry_after"] > 0
    assert short.step("big 1", id="x", seq=1).data["info"]["count"] == 1  # the result can still be requested
    short.close()
    assert peak(server) - before < 100 * MEGABYTE  # the retries would need 4 GB
    until(lambda: server.number("bytes_in_flight", client) == 0)
    assert server.number("over_budget_total", client) >= count["capacity"]


@pytest.mark.parametrize("kind", [JSON, MSGPACK])
def test_many_retries_in_one_batch_or_vector_step(server: Server, play: SessionClient, kind: str) -> None:
    before = peak(server)
    with server.client(token=ANN, kind=kind) as client:
        request = {"op": "step", "session": play.session, "id": "x", "seq": 1, "action": "y"}
        assert (
            client.post("/v1/batch", {"requests": [request] * 5}).data["responses"][4]["error"]["code"] == "id_reused"
        )
        other = SessionClient(client, client.create().data["session"])
        other.reset(seed=1)
        other.step("big 1", id="z", seq=1)
        request = {"op": "step", "session": other.session, "id": "z", "seq": 1, "action": "big 1"}
        batch = client.post("/v1/batch", {"requests": [request] * RETRIES}).data["responses"]
        assert codes(batch) == {"": 3, "capacity": RETRIES - 3}
        steps = [[other.session, 1, "big 1"]] * RETRIES
        vector = client.post("/v1/steps", {"steps": steps, "id": "z"}).data
        assert len(vector["rows"]) == 1
        assert {error["error"]["code"] for error in vector["errors"]} == {"bad_request"}
        other.close()
    assert peak(server) - before < 100 * MEGABYTE


def test_clients_that_do_not_read_large_answers(server: Server, client: Client) -> None:
    """Check that unread responses use up the budget, other clients are not affected, and the client can continue."""
    play = client.open()
    play.reset(seed=1)
    play.step("big 8", id="x", seq=1)  # larger than the budget, but allowed if nothing else is in flight
    body = b'{"action":"big 8","id":"x","seq":1}'
    head = f"POST /v1/sessions/{play.session}/step HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ANN}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with ExitStack() as stack:
        unread = stack.enter_context(connect(server))
        unread.sendall(head.encode() + body)
        until(lambda: server.number("bytes_in_flight", client) >= 8 * MEGABYTE)
        refused = play.step("big 8", id="x", seq=1)
        assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "capacity", "1")
        large = client.post("/v1/sessions", {"env": TRICKY, "kwargs": {"word": "x" * 100 * KILOBYTE}})
        assert large.code == "capacity"  # large requests are also refused
        vector = client.post("/v1/steps", {"steps": [[play.session, 2, "a"]], "id": "v"})
        assert vector.code == "capacity"  # refused before it is executed
        assert play.status().data["seq"] == 2
        with server.client(token=BOB) as bob:
            other = bob.open(GUESS)
            assert other.reset(seed=1).status == 200
            assert other.close().status == 200
        assert read_head(unread).startswith(b"HTTP/1.1 200")
        left = 8 * MEGABYTE
        while left > 0:
            left -= len(unread.recv(1 << 20))
    until(lambda: server.number("bytes_in_flight", client) == 0)
    assert play.step("big 8", id="x", seq=1).status == 200
    play.close()


def test_a_large_vector_step_is_delivered_in_one_message(server: Server, client: Client) -> None:
    """Check over HTTP and the WebSocket that the response is not refused, although it exceeds the budget."""
    plays = [client.open() for _ in range(3)]
    for play in plays:
        play.reset(seed=1)
    steps = [[play.session, 1, "big 2"] for play in plays]
    with ExitStack() as stack:
        rows = client.post("/v1/steps", {"steps": steps, "id": "v"}).data["rows"]
        assert sorted(row[0] for row in rows) == [0, 1, 2]
        ws = stack.enter_context(socket_of(server))
        steps = [[play.session, 2, "big 2"] for play in plays]
        status = {"op": "status", "session": plays[0].session, "id": "s"}
        ws.send(json.dumps([{"op": "steps", "id": "w", "steps": steps}, status]))
        responses: list[dict[str, Any]] = []
        while len(responses) < 2:
            message = json.loads(ws.recv())
            responses += message if isinstance(message, list) else [message]
        assert codes(responses) == {"": 2}
        vector = next(response["result"] for response in responses if response["id"] == "w")
        assert (len(vector["rows"]), vector["errors"]) == (3, [])
    for play in plays:
        play.close()
    until(lambda: server.number("bytes_in_flight", client) == 0)


def test_incomplete_messages_count(server: Server, client: Client) -> None:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket_of(server)) for _ in range(5)]
        refused = 0
        for ws in sockets:  # each sends most of a frame of 2 MB; the limit is 6 MB
            size = 2 * MEGABYTE - KILOBYTE
            head = bytes([0x81, 0xFF]) + size.to_bytes(8, "big") + bytes(4)
            ws.socket.sendall(head)
            try:
                ws.socket.sendall(bytes(size - 1))
            except OSError:
                refused += 1
        until(lambda: server.number("websockets", client) <= 3)
        assert server.number("bytes_in_flight", client) <= 6 * MEGABYTE
    until(lambda: server.number("bytes_in_flight", client) == 0)


def test_one_of_several_tokens_cannot_use_all_sessions(server: Server, client: Client) -> None:
    plays = [client.open(GUESS) for _ in range(4)]  # half of `max_sessions`
    refused = client.create(GUESS)
    assert (refused.status, refused.code) == (429, "quota")
    with server.client(token=BOB) as bob:
        bob.open(GUESS).close()
    for play in plays:
        play.close()


def test_settings() -> None:
    assert Settings(envs=(GUESS,)).session_quota is None
    assert Settings(envs=(GUESS,), tokens={ANN: "ann"}).session_quota is None
    assert Settings(envs=(GUESS,), tokens={ANN: "ann", BOB: "bob"}).session_quota == 2_048
    assert Settings(envs=(GUESS,), tokens={ANN: "ann", BOB: "bob"}, sessions_per_client=3_000).session_quota == 3_000
    with pytest.raises(BadValue, match="max_body must not exceed buffer_per_client"):
        Settings(envs=(GUESS,), max_body=100, buffer_per_client=50)


def test_the_budget_counts_exactly() -> None:
    budget = ByteBudget(total=100, per_client=60)
    ann, bob, eve = budget.of("ann"), budget.of("bob"), budget.of("eve")
    assert budget.of("ann") is ann
    assert ann.take(500)  # exceeds the limits, but nothing else is in flight
    assert not ann.take(1)
    ann.give_back(500)
    assert ann.take(50)
    assert not ann.take(11)
    assert ann.take(10)
    assert bob.take(40)
    assert not bob.take(1)
    assert not budget.hold(1)
    assert eve.take(30)  # her only message
    for account, size in ((ann, 60), (bob, 40), (eve, 30)):
        account.give_back(size)
    assert (budget.used, ann.used, bob.used, eve.used) == (0, 0, 0, 0)
    assert isinstance(ann.refusal(), Fault)
    assert budget.refused == 2


def failures(client: Client) -> list[dict[str, Any]]:
    """Return the failures that a client receives from a step, an autoreset session, a vector step and a creation."""
    play = client.open()
    play.reset(seed=1)
    single = play.step("raise").data["error"]
    auto = client.open(autoreset="same_step", root=1)
    auto.reset(seq=0)
    within = auto.step("raise", seq=1).data["info"]["failure"]
    rows = client.post("/v1/steps", {"steps": [[auto.session, 2, "raise"]], "id": "v"}).data["rows"]
    created = client.create(kwargs={"fails": True}).data["error"]
    return [single, within, rows[0][5]["failure"], created]


@contextmanager
def command(log: Path, *flags: str) -> Iterator[Server]:
    """Run `palestra serve` with a token."""
    args = [TRICKY, "--import", "tests.server.bad_ids", "--port", "0", "--workers", "1", "--drain", "0", *flags]
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "palestra", "serve", *args],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "PALESTRA_TOKEN": ANN},
        )
    with process:
        assert process.stdout is not None
        port = re.search(r" at http://\S+:(\d+)", process.stdout.readline())
        assert port is not None, log.read_text()
        yield Server(process, f"http://127.0.0.1:{port[1]}", log)
        process.terminate()


@pytest.mark.parametrize("flags", [("--host", "127.0.0.1"), ("--host", "0.0.0.0", "--debug")])
def test_exception_texts_are_sent_on_loopback_or_by_request(flags: tuple[str, ...], tmp_path: Path) -> None:
    with command(tmp_path / "log", *flags) as server, server.client(token=ANN) as client:
        shown = failures(client)
        assert all("failed" in failure["message"] and "Traceback" in failure["trace"] for failure in shown)


def test_exception_texts_are_only_logged_for_other_machines(tmp_path: Path) -> None:
    with command(tmp_path / "log", "--host", "0.0.0.0") as server, server.client(token=ANN) as client:
        hidden = failures(client)
        text = json.dumps(hidden)
        assert not any(secret in text for secret in ("the step failed", "the constructor failed", "Traceback"))
        assert {failure["kind"] for failure in hidden} == {"RuntimeError"}
        logged = [line for line in server.lines if line["event"] == "environment failed"]
        assert len(logged) == len(hidden)
        assert all(line["error"].endswith(" failed") and "Traceback" in line["trace"] for line in logged)
        assert logged[0]["session"] in hidden[0]["message"]


def folder_of_killed_server(temporary: Path) -> Path:
    """Start a server, kill it, and return the folder that it leaves behind."""
    command = [sys.executable, "-m", "palestra", "serve", GUESS, "--port", "0", "--workers", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert b"Serving" in process.stdout.readline()
        process.kill()
    [folder] = [path for path in temporary.glob("palestra-serve-*") if (path / "empty").is_dir()]
    return folder


def test_folders_of_killed_servers_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    foreign = {
        "palestra-serve-notes": "a user's folder without a lock file",
        "palestra-serve-other": "a folder of another program",
    }
    for name, text in foreign.items():
        (tmp_path / name).mkdir(mode=0o700)
        (tmp_path / name / "notes.txt").write_text(text)
    (tmp_path / "palestra-serve-other" / scratch.LOCK).write_text("locked by another program")
    (tmp_path / "palestra-serve-file").write_text("a file")
    (tmp_path / "palestra-serve-link").symlink_to(tmp_path / "target")
    killed = folder_of_killed_server(tmp_path)
    assert stat.S_IMODE(killed.stat().st_mode) == 0o700
    target = tmp_path / "target"
    killed.rename(target)  # a link to a folder that could be removed is not followed
    running = scratch.ScratchFolder()
    scratch.remove_abandoned()
    assert target.is_dir()
    target.rename(killed)
    (killed / "empty" / "link").symlink_to(tmp_path / "palestra-serve-notes")
    with serving(GUESS):
        assert not killed.exists()
        assert running.path.is_dir()
    running.remove()
    left = {path.name for path in tmp_path.iterdir() if path.name.startswith("palestra-serve-")}
    assert left == {*foreign, "palestra-serve-file", "palestra-serve-link"}
    assert all((tmp_path / name / "notes.txt").read_text() == text for name, text in foreign.items())
