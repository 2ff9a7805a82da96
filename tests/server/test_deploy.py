"""Test the files in deploy/: run the nginx configuration, and check the options in the systemd unit and container."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

import palestra
from palestra.agents import FunctionAgent
from palestra.rollout import Task, Trajectory, stream
from tests.server.servers import GUESS, ROOT, BackgroundCall, Client, Server, SessionClient, serving, until

DEPLOY = ROOT / "deploy"
TOKEN = "token-of-the-cluster"


@contextlib.contextmanager
def nginx(nodes: dict[str, Server], folder: Path) -> Iterator[str]:
    """Run nginx with deploy/nginx.conf on a free port, and yield its URL."""
    own = ROOT / ".cache/nginx/usr/sbin/nginx"
    program = str(own) if own.exists() else shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin")
    assert program, "nginx is not installed; `make balancer` downloads it"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = (DEPLOY / "nginx.conf").read_text()
    for old, new in (("8101", nodes["a"].url), ("8102", nodes["b"].url)):
        assert text.count(f"127.0.0.1:{old}") == 2
        text = text.replace(f"127.0.0.1:{old}", new.removeprefix("http://"))
    assert "listen 8100;" in text
    (folder / "palestra.conf").write_text(text.replace("listen 8100;", f"listen 127.0.0.1:{port};"))
    places = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}"
        f"http {{ access_log off; {places} include {folder}/palestra.conf; }}"
    )
    process = subprocess.Popen([program, "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log"])
    try:
        until(lambda: _listens(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(120)


def _listens(port: int) -> bool:
    with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def test_sessions_stay_on_their_node_behind_nginx(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        settings: dict[str, Any] = {"tokens": {TOKEN: "ann"}, "any_host": True}
        nodes = {name: stack.enter_context(serving(node=name, **settings)) for name in "ab"}
        url = stack.enter_context(nginx(nodes, tmp_path))
        client = stack.enter_context(Client(url, token=TOKEN))
        here = stack.enter_context(palestra.make(GUESS))
        plays = [client.open(GUESS) for _ in range(16)]  # session names start with the node's name
        homes = [play.session.partition(".")[0] for play in plays]
        assert {*homes} == {"a", "b"}
        with nodes["a"].client(token=TOKEN) as direct:
            assert nodes["a"].number("sessions", direct) == homes.count("a")
        for play in plays:
            assert play.reset(seed=3).data["observation"] == here.reset(seed=3)[0]
            assert play.step("\\boxed{2}").data == {"seq": 1, **here.step("\\boxed{2}")._asdict()}
        again = [client.post("/v1/sessions", {"env": GUESS}, **{"X-Request-Id": "once"}) for _ in range(4)]
        assert len({reply.body for reply in again}) == 1

        for name in "ab":
            node_plays = [play for play in plays if play.session.startswith(name)]
            body = {"requests": [{"op": "status", "session": play.session} for play in node_plays]}
            for path, headers in ((f"/{name}/v1/batch", {}), ("/v1/batch", {"X-Palestra-Node": name})):
                responses = client.post(path, body, **headers).data["responses"]
                assert [response["result"]["seq"] for response in responses] == [2] * len(node_plays)
            with connect(f"ws{url[4:]}/{name}/v1/ws", additional_headers={"Authorization": f"Bearer {TOKEN}"}) as ws:
                ws.send(json.dumps({"op": "status", "session": node_plays[0].session, "id": "w"}))
                assert json.loads(ws.recv(timeout=120))["result"]["seq"] == 2
            env = stack.enter_context(palestra.make(f"{url}/{name}/{GUESS}", token=TOKEN))
            assert env.reset(seed=3)[0] == here.reset(seed=3)[0]
        with Client(url) as anonymous:
            assert anonymous.create(GUESS).status == 401

        nodes["a"].process.kill()  # only sessions on this node are lost
        nodes["a"].process.wait()
        nodes["a"].process.returncode = 0
        for play, home in zip(plays, homes, strict=True):
            assert SessionClient(client, play.session).status().status == (200 if home == "b" else 502)
        fresh = [client.open(GUESS) for _ in range(8)]
        assert {play.session.partition(".")[0] for play in fresh} == {"b"}


async def _slowly(*_: object) -> str:
    await asyncio.sleep(0.02)  # so that restarts happen during episodes
    return "\\boxed{5}"


def test_a_rolling_restart_behind_nginx_loses_no_episode(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"tokens": {TOKEN: "ann"}, "any_host": True}
    restarted = threading.Event()
    episodes: list[Trajectory] = []

    async def tasks(url: str) -> AsyncIterator[Task]:
        for seed in count():
            if restarted.is_set():
                return
            yield Task(env_id=f"{url}/{GUESS}", seed=seed, kwargs={"token": TOKEN, "recover": "replay"})

    async def play(url: str) -> None:
        async with stream(FunctionAgent(_slowly), tasks(url), concurrency=8, retries=0) as played:
            async for episode in played:
                episodes.append(episode)  # noqa: PERF401  # read by the other thread

    with contextlib.ExitStack() as stack:
        nodes = {name: contextlib.ExitStack() for name in "ab"}
        servers = {}
        for name, node in nodes.items():
            stack.callback(node.close)
            servers[name] = node.enter_context(serving(node=name, **settings))
        url = stack.enter_context(nginx(servers, tmp_path))
        playing = BackgroundCall(lambda: asyncio.run(play(url)))
        for name, node in nodes.items():
            before = len(episodes)
            until(lambda before=before: len(episodes) > before + 4)  # type: ignore[misc]
            port = int(servers[name].url.rpartition(":")[2])
            node.close()
            servers[name] = node.enter_context(serving(node=name, port=port, **settings))
        restarted.set()
        playing.result()
    assert [episode.failure for episode in episodes] == [None] * len(episodes)
    with palestra.make(GUESS) as here:
        for episode in episodes:
            here.reset(seed=episode.seed)
            for turn in episode.turns:
                assert (turn.reward, turn.terminated) == here.step(turn.action.text)[1:3]


def test_options_of_the_unit_and_the_container() -> None:
    """Check that the command supports every option and that every copied file exists."""
    unit = (DEPLOY / "palestra-serve.service").read_text()
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.M)
    (defaults,) = re.findall(r"PALESTRA_SERVE=(.*?)'", unit)
    _parse(shlex.split(command.replace("$PALESTRA_SERVE", defaults))[2:])
    container = (DEPLOY / "Containerfile").read_text().replace("\\\n", "")
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", container, re.M)
    (arguments,) = re.findall(r"^CMD (\[.*\])$", container, re.M)
    _parse([*json.loads(entry)[2:], *json.loads(arguments)])
    for sources in re.findall(r"^COPY ([^-].*) \S+$", container, re.M):
        assert all((ROOT / source).exists() for source in sources.split())
    (extras,) = re.findall(r"^ARG EXTRAS=(.*)$", container, re.M)
    project = (ROOT / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in project for extra in extras.split(","))


def _parse(args: list[str]) -> None:
    import argparse

    from palestra.cli import serve

    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "error", pytest.fail)
        options = parser.parse_args(args)
    assert options.envs
    assert options.token_file
