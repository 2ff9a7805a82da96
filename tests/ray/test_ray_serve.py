"""Test the server behind Ray Serve on a local cluster: a session stays on its node and is lost with it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from websockets.sync.client import connect

import palestra
from palestra.errors import InfrastructureError
from tests.server.servers import GUESS, ROOT, Client, SessionClient, until

TOKEN = "token-of-the-cluster"

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def ray_serve(*envs: str, tries: int = 3) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the Ray Serve recipe, with retries because starting Ray can time out on a busy machine."""
    for _ in range(tries - 1):
        with contextlib.suppress(NotStarted), one_ray_serve(*envs) as running:
            yield running
            return
    with one_ray_serve(*envs) as running:
        yield running


class NotStarted(Exception):
    pass


@contextlib.contextmanager
def one_ray_serve(*envs: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tempfile.mkdtemp(prefix="r")  # the length of socket paths is limited
    log = Path(folder) / "errors"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, ROOT / "recipes/serve_on_ray.py", *envs, "--port", str(port), "--address", "local"],
            env={**os.environ, "PALESTRA_TOKEN": TOKEN, "RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        lines = []
        while (line := process.stdout.readline()) != "ready\n":
            if not line:
                raise NotStarted(log.read_text()[-5_000:])
            lines.append(line)
        assert [line.split()[:2] for line in lines] == [["node", "a"], ["node", "b"]]
        yield process, f"http://127.0.0.1:{port}"
    finally:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.wait()
        process.stdout.close()
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        shutil.rmtree(folder, ignore_errors=True)


def test_node_that_dies() -> None:
    with ray_serve(GUESS) as (process, url), contextlib.ExitStack() as stack:
        clients = {name: stack.enter_context(Client(f"{url}/{name}", token=TOKEN)) for name in "ab"}
        plays = {name: [client.open(GUESS) for _ in range(2)] for name, client in clients.items()}
        here = stack.enter_context(palestra.make(GUESS))
        for name, sessions in plays.items():
            for play in sessions:
                assert play.session.startswith(f"{name}.")
                assert play.reset(seed=5).data["observation"] == here.reset(seed=5)[0]
                step = here.step("\\boxed{2}")
                assert play.step("\\boxed{2}").data == {"seq": 1, **step._asdict()}
            others = clients["b" if name == "a" else "a"]
            assert SessionClient(others, sessions[0].session).status().code == "unknown_session"
        with Client(f"{url}/a") as anonymous:
            assert (anonymous.create(GUESS).status, anonymous.get("/health").status) == (401, 200)
        with connect(f"ws{url[4:]}/b/v1/ws", additional_headers={"Authorization": f"Bearer {TOKEN}"}) as ws:
            ws.send(json.dumps({"op": "status", "session": plays["b"][0].session, "id": "w"}))
            assert json.loads(ws.recv(timeout=30))["result"]["seq"] == 2
        remote = {name: stack.enter_context(palestra.make(f"{url}/{name}/{GUESS}", token=TOKEN)) for name in "ab"}
        for env in remote.values():
            assert env.reset(seed=5)[0] == here.reset(seed=5)[0]

        # Kill one node without a shutdown, like a power failure.
        (replica,) = [one for one in psutil.Process(process.pid).children(recursive=True) if "Replica:a" in one.name()]
        children = replica.children(recursive=True)
        assert children
        replica.kill()
        for play in plays["b"]:
            play.reset(seed=6)
            here.reset(seed=6)
            step = here.step("\\boxed{3}")
            assert play.step("\\boxed{3}").data == {"seq": 3, **step._asdict()}
        until(lambda: _lost(plays["a"][0]), 120)
        assert [_lost(play) for play in plays["a"]] == [True, True]
        with pytest.raises(InfrastructureError):
            remote["a"].step("\\boxed{1}")
        here.reset(seed=5)
        assert remote["b"].step("\\boxed{2}").observation == here.step("\\boxed{2}").observation
        assert psutil.wait_procs(children, timeout=10)[1] == []
        fresh = clients["a"].open(GUESS)
        assert fresh.reset(seed=5).data["observation"] == here.reset(seed=5)[0]

        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert psutil.wait_procs(family, timeout=20)[1] == []


def _lost(play: SessionClient) -> bool:
    """Return whether the session is reported as lost. Ray itself responds until a replica is running again."""
    response = play.status()
    assert response.status in (404, 500, 503)
    return response.status == 404 and response.data["error"]["kind"] == "SessionLost"
