"""Compare the environment server's throughput with AgentGym's TextCraft, OpenEnv's echo server and bare ASGI.

    python benchmarks/serve.py --agentgym PATH/TO/AgentGym [--quick] [--json]
    python benchmarks/serve.py --alone --starlette        # the step route under Starlette, without peers

64 clients, each with one step in flight, request the same fast step: TextCraft's inventory from Palestra and from
AgentGym, and an echo from OpenEnv. On Palestra's WebSocket the clients are 64 sessions on one connection, because
Palestra's client uses one connection per process, and responses that are ready at the same time are sent together;
OpenEnv has one WebSocket per client. Vectors have 256 environments: four concurrent vectors are compared with 64
clients of a peer, which also use its full capacity, and a single vector is compared with one client. OpenEnv is
measured over its WebSocket, which uses one environment per connection, and over HTTP, which creates an environment for
every request. Each server and the load generator (serve_load.py) run in separate processes. The servers take turns,
and each reported number is the median over the turns. AgentGym's servers are not on PyPI; without a checkout they are
skipped.

Targets: 2 times the steps per second of the better peer over HTTP, 4 times over the WebSocket, 20 times with vectors; a
lower p99 latency at 64 clients than both peers; half the throughput of the bare application over HTTP. Exits with 1 if
a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from serve_load import HttpClient, Meter, SocketClient, load
from sides import python_with

HERE = Path(__file__).resolve().parent
CLIENTS = 64
VECTORS, WIDTH = 4, 256  # number of vector clients, and sessions per client
ENV = "textcraft:Depth2-v0"
CACHE = HERE.parent / ".cache"
OPENENV_NEEDS = ("openenv-core==0.3.0", "uvicorn", "httptools", "uvloop", "websockets")
AGENTGYM_NEEDS = ("fastapi", "uvicorn", "gym", "gymnasium", "minigrid", "matplotlib")


class Server:
    """Server in a child process."""

    def __init__(self, command: list[str], port: int, cwd: Path | None = None) -> None:
        self.port = port
        self.process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            with suppress(OSError):
                self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                self.connection.connect()
                return
            if self.process.poll() is not None:
                raise SystemExit(f"{command[:4]} exited with {self.process.returncode}")
            time.sleep(0.1)
        raise SystemExit(f"{command[:4]} does not respond")

    def post(self, path: str, body: Any) -> Any:
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        data = response.read()
        if response.status >= 300:
            raise SystemExit(f"{path}: {response.status} {data[:300]!r}")
        return json.loads(data)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def http_request(path: str, body: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        path.encode(),
        len(body),
        body,
    )


class Job:
    """Workload for one server; `worth` is the number of steps per response."""

    def __init__(self, name: str, port: int, clients: Callable[[], list[Any]], worth: int = 1) -> None:
        self.name, self.port, self.clients, self.worth = name, port, clients, worth
        self.rates: list[float] = []
        self.p99: list[float] = []

    def turn(self, seconds: float) -> None:
        rate, times = asyncio.run(load(self.port, self.clients(), seconds))
        self.rates.append(rate * self.worth)
        self.p99.append(1e3 * times[int(0.99 * (len(times) - 1))])


def ours(server: Server) -> list[Job]:
    sessions = [
        server.post("/v1/sessions", {"env": ENV, "kwargs": {"max_turns": 1_000_000_000}})["session"]
        for _ in range(CLIENTS + VECTORS * WIDTH)
    ]
    templates = []
    for first in range(CLIENTS, len(sessions), WIDTH):
        parts = [b'["%b",SEQ,"inventory"]' % session.encode() for session in sessions[first : first + WIDTH]]
        templates.append(b'{"id":"SEQ","steps":[%b]}' % b",".join(parts))
    numbers = dict.fromkeys(sessions, 0)
    for number, session in enumerate(sessions):
        server.post(f"/v1/sessions/{session}/reset", {"seed": number, "seq": 0})
        numbers[session] = 1

    def step(session: str) -> bytes:
        seq = numbers[session]
        numbers[session] = seq + 1
        return b'"id":"%d","seq":%d,"action":"inventory"}' % (seq, seq)

    def over_http(client: int, _: int) -> bytes:
        session = sessions[client]
        return http_request(f"/v1/sessions/{session}/step", b"{" + step(session))

    def over_websocket(client: int, _: int) -> bytes:
        session = sessions[client]
        seq = numbers[session]
        numbers[session] = seq + 1
        return b'{"op":"step","id":"%d","session":"%b","seq":%d,"action":"inventory"}' % (client, session.encode(), seq)

    def vector(which: int, _: int) -> bytes:
        first = CLIENTS + which * WIDTH
        seq = numbers[sessions[first]]
        numbers[sessions[first]] = seq + 1
        return http_request("/v1/steps", templates[which].replace(b"SEQ", b"%d" % seq))

    ids = re.compile(rb'\{"id":"(\d+)","(?:result|status)')

    def count(message: bytes) -> list[int]:
        return [int(client) for client in ids.findall(message)]

    clients = list(range(CLIENTS))
    return [
        Job("ours, HTTP", server.port, lambda: [partial(HttpClient, c, over_http) for c in clients]),
        Job(
            "ours, WebSocket",
            server.port,
            lambda: [lambda meter: SocketClient("/v1/ws", clients, over_websocket, meter, count)],
        ),
        Job("ours, one vector", server.port, lambda: [partial(HttpClient, 0, vector)], worth=WIDTH),
        Job(
            "ours, vectors", server.port, lambda: [partial(HttpClient, v, vector) for v in range(VECTORS)], worth=WIDTH
        ),
    ]


def agentgym(server: Server) -> list[Job]:
    ids = [server.post("/create", {})["id"] for _ in range(CLIENTS)]
    for number in ids:
        server.post("/reset", {"id": number, "data_idx": number})

    def step(client: int, _: int) -> bytes:
        return http_request("/step", b'{"id":%d,"action":"inventory"}' % ids[client])

    return [
        Job("AgentGym TextCraft, one", server.port, lambda: [partial(HttpClient, 0, step)]),
        Job("AgentGym TextCraft", server.port, lambda: [partial(HttpClient, c, step) for c in range(CLIENTS)]),
    ]


def openenv(server: Server) -> list[Job]:
    message = b'{"type":"step","data":{"message":"inventory"}}'
    plain = http_request("/step", b'{"action":{"message":"inventory"}}')

    def http_step(_: int, __: int) -> bytes:
        return plain

    def socket(client: int) -> Callable[[Meter], Any]:
        return lambda meter: SocketClient("/ws", [client], lambda _, __: message, meter, lambda _: [client])

    return [
        Job("OpenEnv echo, WebSocket, one", server.port, lambda: [socket(0)]),
        Job("OpenEnv echo, WebSocket", server.port, lambda: [socket(c) for c in range(CLIENTS)]),
        Job(
            "OpenEnv echo, HTTP",
            server.port,
            lambda: [partial(HttpClient, c, http_step) for c in range(CLIENTS)],
        ),
    ]


def bare(server: Server) -> list[Job]:
    body = http_request("/v1/sessions/abcdefghijklmnopqrstuv/step", b'{"id":"1234","seq":1234,"action":"inventory"}')
    return [Job("bare ASGI", server.port, lambda: [partial(HttpClient, c, lambda _, __: body) for c in range(CLIENTS)])]


def free_port() -> int:
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def start(stack: ExitStack, command: Callable[[int], list[str]], cwd: Path | None = None) -> Server:
    port = free_port()
    server = Server(command(port), port, cwd)
    stack.callback(server.close)
    return server


def measure(args: argparse.Namespace) -> list[Job]:
    with ExitStack() as stack:
        python = sys.executable
        serve = ["-m", "palestra", "serve", "textcraft:", "--log-level", "error"]
        if args.workers:
            serve += ["--workers", str(args.workers)]
        jobs = ours(start(stack, lambda port: [python, *serve, "--port", str(port)]))
        jobs += bare(start(stack, lambda port: [python, str(HERE / "serve_peers.py"), "bare", str(port)]))
        if args.starlette:
            server = start(stack, lambda port: [python, str(HERE / "serve_peers.py"), "starlette", str(port)])
            job = ours(server)[0]
            job.name = "Starlette, HTTP"
            jobs.append(job)
        if not args.alone:
            openenv_python = python_with(CACHE / "openenv-venv", *OPENENV_NEEDS)
            jobs += openenv(
                start(stack, lambda port: [openenv_python, str(HERE / "serve_peers.py"), "openenv", str(port)])
            )
        if args.agentgym is not None and not args.alone:
            agentgym_python = python_with(CACHE / "agentgym-venv", *AGENTGYM_NEEDS)
            app = ["-m", "uvicorn", "agentenv_textcraft.server:app", "--log-level", "warning", "--port"]
            home = Path(args.agentgym) / "agentenv-textcraft"
            jobs += agentgym(start(stack, lambda port: [agentgym_python, *app, str(port)], home))
        for _ in range(args.turns + 1):
            for job in jobs:
                job.turn(args.seconds)
        for job in jobs:  # the first turn is a warm-up
            del job.rates[0], job.p99[0]
        return jobs


def bars(jobs: dict[str, Job]) -> list[tuple[str, float, float]]:
    """Return (name, ratio, required ratio) for every comparison."""
    rate = {name: median(job.rates) for name, job in jobs.items()}
    p99 = {name: median(job.p99) for name, job in jobs.items()}
    ratios = [("HTTP / bare ASGI", rate["ours, HTTP"] / rate["bare ASGI"], 0.5)]
    others = [name for name in jobs if not name.startswith(("ours", "bare", "Starlette"))]
    peers = [name for name in others if not name.endswith("one")]
    if peers:
        best = max(rate[name] for name in peers)
        best_one = max(rate[name] for name in others if name.endswith("one"))
        lowest = min(p99[name] for name in peers)
        ratios += [
            ("HTTP / the better peer", rate["ours, HTTP"] / best, 2.0),
            ("WebSocket / the better peer", rate["ours, WebSocket"] / best, 4.0),
            ("four vectors at once / the better peer", rate["ours, vectors"] / best, 20.0),
            ("one vector / one client of the better peer", rate["ours, one vector"] / best_one, 20.0),
            ("the lower p99 of the peers / ours, HTTP", lowest / p99["ours, HTTP"], 1.0),
            ("the lower p99 of the peers / ours, WebSocket", lowest / p99["ours, WebSocket"], 1.0),
        ]
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument(
        "--agentgym",
        type=Path,
        default=os.environ.get("AGENTGYM"),
        help="Path to an AgentGym checkout; without it, AgentGym is skipped.",
    )
    parser.add_argument("--alone", action="store_true", help="Skip the peers; needs no network.")
    parser.add_argument("--starlette", action="store_true", help="Also measure our dispatcher behind Starlette.")
    parser.add_argument("--workers", type=int, help="Worker processes in our server (default: one per core).")
    parser.add_argument("--turns", type=int, default=7, help="Number of turns per server (default: 7).")
    parser.add_argument("--seconds", type=float, default=1.0, help="Seconds per server and turn (default: 1).")
    parser.add_argument("--quick", action="store_true", help="Run one short turn.")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    args = parser.parse_args()
    if args.quick:
        args.turns, args.seconds = 1, 0.1
    if args.agentgym is None and not args.alone:
        print("AgentGym is skipped: pass the path to a checkout with --agentgym or AGENTGYM")
    jobs = {job.name: job for job in measure(args)}
    ratios = bars(jobs)
    missed = [name for name, ratio, least in ratios if ratio < least]
    if args.json:
        rates = {name: {"steps_per_s": median(job.rates), "p99_ms": median(job.p99)} for name, job in jobs.items()}
        print(json.dumps({"servers": rates, "ratios": {name: ratio for name, ratio, _ in ratios}, "missed": missed}))
        return 1 if missed else 0
    print(f"{'server':<26}{'steps per second':>16}{'p99 ms':>10}")
    for name, job in jobs.items():
        print(f"{name:<26}{median(job.rates):>16,.0f}{median(job.p99):>10.1f}")
    print()
    for name, ratio, least in ratios:
        print(f"{name:<46}{ratio:>8.2f}   at least {least:g}{'   MISSED' if ratio < least else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
