"""Test draining, shutdown, and environment families that run in other interpreters."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

import palestra
from palestra.server.run import create_app
from tests.server.bad_envs import TRICKY
from tests.server.servers import GUESS, JSON, MSGPACK, BackgroundCall, SessionClient, serving, until


def test_draining(tmp_path: Path) -> None:
    """Check that new sessions are refused, open ones continue, and the server exits after the last one."""
    with serving(workers=2, drain=300.0) as server, server.client() as client, server.client() as other:
        released = tmp_path / "released"
        children = server.workers()
        play = client.open()
        play.reset(seed=1)
        slow = BackgroundCall(lambda: SessionClient(other, play.session).step(f"wait {released}"))
        until(lambda: play.status().data["busy"])
        server.process.send_signal(signal.SIGTERM)
        until(lambda: client.get("/ready").status == 503)
        assert client.get("/ready").code == "draining"
        assert client.get("/health").status == 200
        refused = client.create()
        assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "draining", "5")
        try:
            with connect(f"ws{server.url[4:]}/v1/ws"):
                raise AssertionError("the connection was accepted")
        except InvalidStatus as err:
            assert err.response.status_code == 503
        released.touch()
        assert slow.result().data["info"]["count"] == 1
        assert play.fork().code == "draining"
        assert play.step("a").data["info"]["count"] == 2
        assert server.process.poll() is None
        play.close()
        assert server.process.wait(120) == 0
        gone, alive = psutil.wait_procs(children, timeout=120)
        assert (len(gone), alive) == (2, [])
        events = [line["event"] for line in server.lines]
        assert events.index("draining") < events.index("stopping")


def test_draining_has_a_time_limit() -> None:
    with serving(drain=0.3) as server, server.client() as client:
        children = server.workers()
        play = client.open()
        play.reset()
        with connect(f"ws{server.url[4:]}/v1/ws") as ws:
            hanging = BackgroundCall(lambda: play.step("spin"))
            until(lambda: server.number("calls_in_flight") == 1)
            assert server.stop() == 0
            gone = hanging.result()
            assert (gone.status, gone.data["error"]["cause"]) == (410, "stopped")
            try:
                ws.recv(timeout=120)
            except ConnectionClosed as err:
                assert err.rcvd is None or err.rcvd.code == 1012  # WebSocket close code "service restart"
        assert psutil.wait_procs(children, timeout=120)[1] == []


def test_a_second_signal_stops_at_once() -> None:
    with serving(drain=600.0) as server, server.client() as client:
        client.open()
        server.process.send_signal(signal.SIGTERM)
        until(lambda: client.get("/ready").status == 503)
        assert server.stop() == 0


def test_workers_die_with_the_server() -> None:
    """Check that no worker process is left, even if the server is killed."""
    with serving(workers=2) as server:
        children = server.workers()
        assert len(children) == 2
        os.kill(server.process.pid, signal.SIGSTOP)  # a suspended server cannot clean up
        server.process.kill()
        server.process.wait()
        assert psutil.wait_procs(children, timeout=120)[1] == []
        server.process.returncode = 0  # the exit caused by SIGKILL is expected


def test_family_under_another_interpreter(tmp_path: Path) -> None:
    """Check that an interpreter without third-party packages returns the same results in both encodings."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv/bin/python"
    imported = subprocess.run([python, "-c", "import msgspec"], capture_output=True, check=False)
    assert imported.returncode != 0
    with serving("game:", TRICKY, python=[f"game={python}"]) as server:
        commands = [" ".join(worker.cmdline()) for worker in server.workers()]
        assert sum(str(python) in command for command in commands) == 1
        for env_id in (GUESS, "game:Wordle-v0-easy", "game:Sudoku-v0-easy"):
            for kind in (JSON, MSGPACK):
                _same_episode(server.url, env_id, kind)
        with server.client(kind=MSGPACK) as client:  # the same calls, retried in the other encoding
            play = client.open(GUESS)
            play.reset(seed=1)
            with server.client() as plain:
                assert isinstance(
                    SessionClient(plain, play.session).suggest_action(player="random").data["action"], str
                )
            assert isinstance(play.suggest_action(player="random").data["action"], str)
            broken = client.create(GUESS, kwargs={"min_number": 5, "max_number": 1})
            assert (broken.status, broken.code) == (422, "bad_value")
            local = client.open(TRICKY)  # this environment runs in our interpreter
            local.reset()
            assert local.step("a").status == play.close().status == local.close().status == 200


def _same_episode(url: str, env_id: str, kind: str) -> None:
    from tests.server.servers import Client

    with palestra.make(env_id) as env, Client(url, kind=kind) as client:
        play = client.open(env_id)
        observation, info = env.reset(seed=11)
        assert play.reset(seed=11).data == {"seq": 0, "observation": observation, "info": info}
        done, seq = False, 0
        while not done and seq < 12:
            seq += 1
            action = env.expert_action() or env.sample_random_action()
            if seq % 3 == 0:
                action = "nonsense"
            step = env.step(action)
            assert play.step(action).data == {"seq": seq, **step._asdict()}
            done = step.done
        play.close()


def test_unknown_environment_prevents_the_start() -> None:
    for envs in ("game:Nothing-v0", ""):
        done = subprocess.run(
            [sys.executable, "-m", "palestra", "serve", "--port", "0", *([envs] if envs else [])],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_ctrl_c_during_the_start_stops_the_workers_without_an_error() -> None:
    async def start_and_cancel() -> None:
        app = create_app(GUESS, workers=1)

        async def receive() -> dict[str, object]:
            return {"type": "lifespan.startup"}

        async def send(message: object) -> None:
            raise AssertionError(f"the server had started: {message}")

        task = asyncio.create_task(app({"type": "lifespan"}, receive, send))
        while not app.dispatcher.calls.pool.workers:
            await asyncio.sleep(0)
        task.cancel()
        await task
        assert app.dispatcher.calls.pool.workers == []

    before = set(psutil.Process().children())
    asyncio.run(start_and_cancel())
    assert set(psutil.Process().children()) <= before
