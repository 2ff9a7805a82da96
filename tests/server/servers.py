"""Run a server in a child process, and send requests to it with a simple HTTP client."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import msgspec
import psutil  # type: ignore[import-untyped]

from tests.server.bad_envs import TRICKY

ROOT = Path(__file__).parents[2]
JSON, MSGPACK = "application/json", "application/msgpack"
GUESS = "game:GuessTheNumber-v0-easy"


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def data(self) -> Any:
        if self.headers["content-type"] == MSGPACK:
            return msgspec.msgpack.decode(self.body)
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Error code, or "" if the request succeeded."""
        return str(self.data.get("error", {}).get("code", ""))


class Client:
    """HTTP client with one connection. `kind` is the content type of requests and responses."""

    def __init__(self, url: str, *, token: str | None = None, kind: str = JSON, timeout: float = 300) -> None:
        self.url = url
        self.token = token
        self.kind = kind
        self.host, self.port = urlsplit(url).hostname or "", urlsplit(url).port
        self.path = urlsplit(url).path
        self.connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def send(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """Send a request with the bytes `body`."""
        defaults = {"Accept": self.kind, **({"Authorization": f"Bearer {self.token}"} if self.token else {})}
        self.connection.request(method, self.path + path, body, {**defaults, **(headers or {})})
        response = self.connection.getresponse()
        data = response.read()
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, data)

    def get(self, path: str) -> Reply:
        return self.send("GET", path)

    def post(self, path: str, data: Any = None, **headers: str) -> Reply:
        body = (msgspec.msgpack if self.kind == MSGPACK else msgspec.json).encode({} if data is None else data)
        return self.send("POST", path, body, {"Content-Type": self.kind, **headers})

    def create(self, env: str = TRICKY, **more: Any) -> Reply:
        return self.post("/v1/sessions", {"env": env, "id": uuid.uuid4().hex, **more})

    def open(self, env: str = TRICKY, **more: Any) -> SessionClient:
        reply = self.create(env, **more)
        assert reply.status == 201, reply.body
        return SessionClient(self, reply.data["session"])

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SessionClient:
    """Client for one session."""

    def __init__(self, client: Client, session: str) -> None:
        self.client = client
        self.session = session

    def __getattr__(self, operation: str) -> Callable[..., Reply]:
        """Return a function that calls the operation: reset, fork, render, suggest_action or close."""
        if operation.startswith("_"):
            raise AttributeError(operation)
        return lambda **data: self.client.post(f"/v1/sessions/{self.session}/{operation}", data)

    def step(self, action: str, **more: Any) -> Reply:
        return self.client.post(f"/v1/sessions/{self.session}/step", {"action": action, **more})

    def status(self) -> Reply:
        return self.client.get(f"/v1/sessions/{self.session}")


class Server:
    def __init__(self, process: subprocess.Popen[str], url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self.log = log

    def client(self, **more: Any) -> Client:
        return Client(self.url, **more)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Return the log lines that the server has written so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def workers(self) -> list[psutil.Process]:
        return list(psutil.Process(self.process.pid).children())

    def handles(self) -> int:
        return int(psutil.Process(self.process.pid).num_fds())

    def memory(self) -> int:
        """Return the resident memory of the server process."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def number(self, metric: str, client: Client | None = None, **labels: str) -> float:
        """Return the value of a metric, summed over all samples with these labels."""
        from prometheus_client.parser import text_string_to_metric_families

        with contextlib.ExitStack() as stack:
            client = client or stack.enter_context(self.client())
            text = client.get("/metrics").body.decode()
        values = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"palestra_{metric}" and labels.items() <= sample.labels.items()
        ]
        assert values or labels, metric
        return sum(values)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


@contextlib.contextmanager
def serving(*envs: str, drain: float = 0.2, **settings: Any) -> Iterator[Server]:
    """Run a server with `envs` during the `with` block, and check that it exits with status 0."""
    defaults = {
        "imports": ["tests.server.bad_ids"],
        "expose_errors": True,
    }  # exposed on loopback, as in `palestra serve`
    arguments = {"envs": envs or (TRICKY, GUESS), **defaults, **settings}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.server.servers", json.dumps([arguments, drain])],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        assert process.stdout is not None
        try:
            words = process.stdout.readline().split()
            assert words[:1] == ["ready"], log.read_text()
            server = Server(process, words[1], log)
            yield server
            assert process.poll() is None or process.returncode == 0, log.read_text()
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(120)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            process.stdout.close()
        assert process.returncode == 0, log.read_text()


def until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until `condition()` is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timeout"
        time.sleep(0.02)


class BackgroundCall:
    """Function call that runs in a background thread."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._results: list[Any] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._results.append(self._call())

    def result(self) -> Any:
        self._thread.join(300)
        return self._results[0]


def start_step(server: Server, session: str, action: str, token: str | None = None, **more: Any) -> BackgroundCall:
    """Start a step on a new connection and return while the step is running."""

    def call() -> Reply:
        with server.client(token=token) as client:
            return SessionClient(client, session).step(action, **more)

    with server.client(token=token) as client:
        before = SessionClient(client, session).status().data["seq"]
        running = BackgroundCall(call)
        until(lambda: SessionClient(client, session).status().data["seq"] > before)
    return running


def count(play: SessionClient) -> int:
    """Take a step and return the number of steps that the environment has executed."""
    return int(play.step("?").data["info"]["count"])


def _main() -> None:
    from palestra.server import create_app
    from palestra.server.run import configure_logging, run_app
    from palestra.sockets import listen

    settings, drain = json.loads(sys.argv[1])
    port = settings.pop("port", 0)
    configure_logging(settings.pop("log", "info"))
    app = create_app(settings.pop("envs"), **settings)
    run_app(app, listen("127.0.0.1", port), drain=drain, on_ready=lambda url: print("ready", url, flush=True))


if __name__ == "__main__":
    _main()
