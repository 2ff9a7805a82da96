"""Test environments on AgentGym and OpenEnv servers: our own servers, OpenEnv's server, and faulty servers."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve

import palestra
from palestra.errors import BadValue, EnvFailed, EpisodeOver, ResetNeeded, UnknownKeyword
from palestra.registry.agentgym_tasks import TASKS, family_envs
from palestra.remote import AgentGymEnv, OpenEnvEnv
from palestra.wrappers import Horizon
from tests.server.bad_envs import TRICKY
from tests.server.protocols.outside import free_port, openenv_command, started
from tests.server.servers import GUESS, Server, serving, until

ENVS = ["babyai:GoToRedBall-v0", "babyai:OpenDoorLoc-v0", "textcraft:Depth1-v0", "textcraft:Depth2-v0"]
ENVS += ["search:World-v0-1hop", "webshop:Shop-v0"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(*ENVS, TRICKY, GUESS) as server:
        yield server


def test_vector_of_adapter_envs(server: Server) -> None:
    url = f"agentgym+{server.url}/agentgym/textcraft"
    with palestra.make_vec(url, num_envs=3, backend="thread", seed=1, data_len=50) as vec:
        first, _ = vec.reset()
        assert len(set(map(str, first))) == 3
        assert vec.step(["inventory"] * 3).rewards == [0.0] * 3


@pytest.mark.parametrize("family", ["babyai", "textcraft", "searchqa", "webshop"])
def test_agentgym_round_trip(server: Server, family: str) -> None:
    with AgentGymEnv(f"agentgym+{server.url}/agentgym/{family}", data_len=50) as env:
        for seed in (7, 108):
            task = TASKS[family][1](family_envs(ENVS, family), seed % 50)
            with palestra.make(task.env, **task.kwargs) as local:
                first, info = env.reset(seed=seed)
                assert first == local.reset(seed=task.seed)[0]
                assert info == {"seed": seed, "data_idx": seed % 50}
                while True:
                    action = str(local.expert_action())
                    step, here = env.step(f"Thought: I know.\nAction: {action}"), local.step(action)
                    if family == "searchqa":
                        assert step[1:4] == here[1:4]
                    else:
                        assert step[:4] == here[:4]
                    if step.done:
                        break
                assert step.info["success"] is True
            with pytest.raises(EpisodeOver):
                env.step("x")
        env.close()
        env.close()
        with pytest.raises(ResetNeeded):
            env.step("x")
        assert env.reset(options={"data_idx": 3})[1]["data_idx"] == 3
    until(lambda: server.number("sessions") == 0)


def test_max_turns_truncates_and_forks_are_refused(server: Server) -> None:
    with AgentGymEnv(f"{server.url}/agentgym/textcraft", family="textcraft", max_turns=2) as env:
        with pytest.raises(ResetNeeded):
            env.step("inventory")
        first = env.reset(seed=1)
        assert env.reset(seed=1) == first
        assert env.step("inventory").done is False
        step = env.step("inventory")
        assert (step.terminated, step.truncated, step.info["ending"]) == (False, True, "horizon")
        with pytest.raises(BadValue, match="fork"):
            env.fork()


def test_openenv_round_trip(server: Server) -> None:
    with OpenEnvEnv(f"openenv+{server.url}/openenv/{GUESS}") as env, palestra.make(GUESS) as local:
        for seed in (3, 4):
            first, info = env.reset(seed=seed)
            assert first == local.reset(seed=seed)[0]
            assert info["seed"] == seed
            while True:
                action = str(local.expert_action())
                step, here = env.step(action), local.step(action)
                assert step[:4] == here[:4]
                assert {name: step.info[name] for name in here.info} == here.info
                if step.done:
                    break
        with pytest.raises(EpisodeOver):
            env.step("x")
    until(lambda: server.number("sessions") == 0)


def test_server_failures_raise_env_failed(server: Server) -> None:
    with OpenEnvEnv(f"{server.url}/openenv/{TRICKY}", timeout=4.0) as env:
        env.reset(seed=1)
        with pytest.raises(EnvFailed, match="the step failed"):
            env.step("raise")
        with pytest.raises(ResetNeeded, match="failed"):
            env.step("a")
        assert env.reset(seed=2)[0] == "started 2"
        with pytest.raises(EnvFailed, match="within 4 s"):
            env.step("sleep 8")
        assert env.reset(seed=3)[0] == "started 3"
        assert env.step("a").observation == "a"
    until(lambda: server.number("sessions") == 0)


@pytest.mark.slow
def test_openenv_reference_server() -> None:
    port = free_port()
    with started(openenv_command("openenv_server.py", str(port)), port) as url:
        with OpenEnvEnv(f"openenv+{url}", timeout=3.0) as env:
            assert env.reset(seed=7)[0] == "seed 7"
            assert env.step("hello")[:4] == ("1: hello", 0.0, False, False)
            with pytest.raises(EnvFailed, match="did not reply"):
                env.step("sleep")
            assert env.reset(seed=8)[0] == "seed 8"
            assert env.step("again").observation == "1: again"  # this is not the late reply to the previous step
            with pytest.raises(EnvFailed, match="the step failed"):
                env.step("raise")
            env.reset(seed=9)
            step = env.step("end")
            assert step[:4] == ("1: end", 1.0, True, False)
            assert step.info["success"] is True
        with OpenEnvEnv(url, action_key="nothing") as env:
            env.reset()
            step = env.step("hello")
            assert (step.done, step.info["invalid"]) == (False, "format")


class FakeAgentGym:
    """AgentGym server that returns the responses that a test defines."""

    def __init__(self, respond: Callable[[str, Any], Any]) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                response = respond(self.path, json.loads(self.rfile.read(length) or b"{}"))
                status, body = response if isinstance(response, tuple) else (200, response)
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> str:
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self.url

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.parametrize(
    "bad",
    [
        {"error": "The task has finished."},
        {"observation": "x", "done": False},
        {"observation": "x", "reward": "1", "done": False},
        {"observation": "x", "reward": True, "done": False},
        {"observation": "x", "reward": None, "done": True},
        {"observation": "x", "reward": float("nan"), "done": True},
        {"observation": "x", "reward": float("inf"), "done": False},
        {"observation": None, "reward": 0, "done": False},
        {"observation": "x", "reward": 0, "done": 1},
        "x",
        None,
        b"no json",
        (500, {"detail": "Internal Server Error"}),
        (404, b""),
    ],
)
def test_invalid_step_responses_raise(bad: Any) -> None:
    created: list[int] = []

    def respond(path: str, body: Any) -> Any:
        if path == "/create":
            created.append(len(created))
            return {"id": created[-1], "observation": "x", "done": False, "reward": 0}
        if path == "/reset":
            return {"observation": f"started {body['data_idx']} in {body['id']}", "reward": 0, "done": False}
        return bad if path == "/step" else {"closed": True}

    with FakeAgentGym(respond) as url, AgentGymEnv(url, family="textcraft") as env:
        assert env.reset(seed=3)[0] == "started 3 in 0"
        with pytest.raises(EnvFailed):
            env.step("inventory")
        with pytest.raises(ResetNeeded):
            env.step("inventory")
        assert env.reset(seed=4)[0] == "started 4 in 1"  # the server created a new environment


def test_late_responses_are_dropped() -> None:
    released = threading.Event()

    def respond(path: str, body: Any) -> Any:
        if path == "/step" and body["action"] == "slow":
            released.wait(300)
        text = f"{body.get('action', 'started')} in {body.get('id', 0)}"
        return {"id": 0, "observation": text, "reward": 0, "done": False}

    with FakeAgentGym(respond) as url, AgentGymEnv(url, family="textcraft", timeout=3.0) as env:
        env.reset(seed=1)
        with pytest.raises(EnvFailed, match="within"):
            env.step("slow")
        env.reset(seed=1)
        released.set()
        for action in ("a", "b", "c"):
            time.sleep(0.1)  # the late response is usually sent in the meantime
            assert env.step(action).observation == f"{action} in 0"


def test_invalid_socket_replies_raise() -> None:
    replies = iter(
        ["[]", "{}", '{"type": "state", "data": {}}', '{"type": "observation", "data": {"observation": 3}}', "{"]
    )

    def talk(socket: ServerConnection) -> None:
        for _ in socket:
            socket.send(next(replies))

    with serve(talk, "127.0.0.1", 0) as bad:
        threading.Thread(target=bad.serve_forever, daemon=True).start()
        port = bad.socket.getsockname()[1]
        with OpenEnvEnv(f"openenv+http://127.0.0.1:{port}", action_key="action", timeout=5.0) as env:
            for _ in range(5):
                with pytest.raises(EnvFailed):
                    env.reset(seed=1)
        bad.shutdown()


@pytest.mark.parametrize("reward", ["null", "NaN", "Infinity", '"1"', "true"])
def test_invalid_rewards_of_openenv_raise(reward: str) -> None:
    replies = iter(
        '{{"type": "observation", "data": {{"observation": {{"text": "x"}}, "reward": {}, "done": {}}}}}'.format(*pair)
        for pair in (("null", "false"), ("null", "false"), (reward, "true"), ("null", "false"))
    )

    def talk(socket: ServerConnection) -> None:
        for message in socket:
            if json.loads(message)["type"] != "close":
                socket.send(next(replies))

    with serve(talk, "127.0.0.1", 0) as bad:
        threading.Thread(target=bad.serve_forever, daemon=True).start()
        port = bad.socket.getsockname()[1]
        with OpenEnvEnv(f"openenv+http://127.0.0.1:{port}", action_key="action", timeout=5.0) as env:
            env.reset(seed=1)
            assert env.step("a").reward == 0.0  # only the last step needs a reward
            with pytest.raises(EnvFailed, match="reward"):
                env.step("a")
            with pytest.raises(ResetNeeded):
                env.step("a")
            env.reset(seed=2)
        bad.shutdown()


def test_unreachable_servers() -> None:
    port = free_port()
    with pytest.raises(EnvFailed, match="cannot be reached"):
        AgentGymEnv(f"agentgym+http://127.0.0.1:{port}", family="babyai", timeout=2)
    with pytest.raises(EnvFailed, match="cannot be reached"):
        OpenEnvEnv(f"openenv+http://127.0.0.1:{port}", timeout=2)


@pytest.mark.parametrize("url", ["agentgym+ftp://x", "agentgym+http://", "agentgym+http://me@host", "http://h:x"])
def test_invalid_urls(url: str) -> None:
    with pytest.raises(BadValue):
        AgentGymEnv(url, family="babyai")
    with pytest.raises(BadValue):
        OpenEnvEnv(url.replace("agentgym", "openenv"))


def test_make_accepts_adapter_urls(server: Server) -> None:
    with palestra.make(f"agentgym+{server.url}/agentgym/textcraft", seed=5) as env:
        assert env.reset()[1]["seed"] == 5
    with palestra.make(f"openenv+{server.url}/openenv/{TRICKY}", seed=5, wrappers=[lambda e: Horizon(e, 1)]) as env:
        assert env.reset()[1]["seed"] == 5
        assert env.step("x").truncated is True
    with pytest.raises(UnknownKeyword, match="Did you mean family"):
        palestra.make(f"agentgym+{server.url}", famly="textcraft")


def test_missing_family_or_token_raises() -> None:
    with pytest.raises(BadValue, match="family must be one of"):
        AgentGymEnv("agentgym+http://127.0.0.1:1")
    with serving(GUESS, "textcraft:Depth1-v0", tokens={"a-long-token": "a"}) as server:
        with pytest.raises(BadValue, match="token"):
            AgentGymEnv(f"{server.url}/agentgym/textcraft")
        with pytest.raises(BadValue, match="token"):
            OpenEnvEnv(f"{server.url}/openenv/{GUESS}", action_key="action")
        with AgentGymEnv(f"{server.url}/agentgym/textcraft", token="a-long-token") as env:
            env.reset(seed=1)
            assert "a-long-token" not in repr(env)
        with OpenEnvEnv(f"{server.url}/openenv/{GUESS}", token="a-long-token") as env:
            env.reset(seed=1)
