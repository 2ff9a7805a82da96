"""Soak test for the server: every acknowledged step is executed once, every loss is reported, all resources are freed.

    python benchmarks/serve_soak.py [--sessions 1000] [--steps 100000] [--workers 4] [--json]

Each client steps an environment that counts its steps (serve_envs.py) over HTTP. 1% of the clients disconnect during
an episode, so that their sessions expire. 1% of the responses are lost, and the requests are sent again. 0.5% of the
environments exit their process, and another 0.5% raise an exception. One worker is killed with SIGKILL. A client whose
session is lost opens a new session, replays its seed and actions, and continues.

The following count as errors: a response whose count differs from the number of acknowledged steps, a call without a
response, and a lost session without a documented error code. At the end all sessions must be closed, and memory and
open files are compared with the values at the start. Exits with 1 on any error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

HERE = Path(__file__).resolve().parent
LEASE = 6.0  # seconds
LOSS_CODES = {"session_gone", "env_failed", "unknown_session"}


class Violation(Exception):
    """The server violated a guarantee."""


class Server:
    def __init__(self, workers: int, sessions: int) -> None:
        command = [
            sys.executable,
            "-m",
            "palestra",
            "serve",
            "soak:Counter-v0",
            "--import",
            "serve_envs",
            "--port",
            "0",
        ]
        command += ["--workers", str(workers), "--max-sessions", str(2 * sessions), "--lease", str(LEASE)]
        self.process = subprocess.Popen(
            [*command, "--log-level", "error"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": str(HERE)},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        url = re.search(r"http://\S+?:\d+", line)
        if url is None:
            raise SystemExit(f"the server did not start: {line!r}")
        self.url = url[0]

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(child) for child in children]

    def usage(self) -> dict[str, float]:
        """Return the memory used by the server and all its workers in MB, and the server's number of open files."""
        return {
            "server_mb": _megabytes(self.process.pid),
            "workers_mb": sum(_megabytes(pid) for pid in self.workers()),
            "files": len(list(Path(f"/proc/{self.process.pid}/fd").iterdir())),
            "processes": len(self.workers()),
        }


def _megabytes(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return 0.0


class Client:
    """Client for one session."""

    def __init__(self, number: int, steps: int, url: str, http: aiohttp.ClientSession, counts: Counter[str]) -> None:
        self.rng = Random(number)
        self.number, self.steps, self.url, self.http, self.counts = number, steps, url, http, counts
        self.session = ""
        self.seq = 0
        self.actions: list[str] = []  # acknowledged actions
        draw = self.rng.random()
        self.disappears_at = self.rng.randrange(steps) if draw < 0.01 else None
        self.crashes_at = self.rng.randrange(steps) if 0.01 <= draw < 0.015 else None
        self.raises_at = self.rng.randrange(steps) if 0.015 <= draw < 0.02 else None

    async def play(self) -> None:
        await self.open()
        while len(self.actions) < self.steps:
            turn = len(self.actions)
            if turn == self.disappears_at:
                self.counts["clients disappeared"] += 1
                return
            if turn == self.crashes_at or turn == self.raises_at:
                action = "crash" if turn == self.crashes_at else "raise"
                self.crashes_at = self.raises_at = None
                response = await self.call("step", {"action": action})
                if "error" not in response:
                    raise Violation(f"{action} returned {response}")
                self.counts[f"{action}: reported as {response['error'].get('cause') or response['error']['code']}"] += 1
                await self.recover(response)
                continue
            action = f"a{self.rng.randrange(1000)}"
            response = await self.call("step", {"action": action})
            if "error" in response:
                await self.recover(response)
                continue
            self.actions.append(action)
            observation = response["observation"]
            if observation != f"{len(self.actions)} {action}":
                raise Violation(
                    f"step {len(self.actions)} of client {self.number} returned {response['observation']!r}"
                )
            self.counts["steps acknowledged"] += 1
        response = await self.call("close", {})
        if not response.get("closed"):
            raise Violation(f"close returned {response}")

    async def open(self) -> None:
        response = await self.post("/v1/sessions", {"env": "soak:Counter-v0", "id": self.request_id()})
        if "session" not in response:
            raise Violation(f"create returned {response}")
        self.session, self.seq = response["session"], 0
        self.counts["sessions opened"] += 1
        response = await self.call("reset", {"seed": self.number, "actions": self.actions})
        if "error" in response:
            await self.recover(response)

    async def recover(self, response: dict[str, Any]) -> None:
        """Continue the episode in a new session after an error, which must be a documented loss of the session."""
        fault = response["error"]
        if fault["code"] not in LOSS_CODES:
            raise Violation(f"undocumented loss: {fault}")
        self.counts[f"lost: {fault.get('cause') or fault['code']}"] += 1
        if fault["code"] == "env_failed":
            response = await self.call("reset", {"seed": self.number, "actions": self.actions})
            if "error" not in response:
                return
        await self.open()

    async def call(self, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        body["id"] = self.request_id()
        if operation != "close":
            body["seq"] = self.seq
        response = await self.post(f"/v1/sessions/{self.session}/{operation}", body)
        if operation != "close" and ("error" not in response or "seq" in response["error"]):
            seq = response["seq"] if "error" not in response else response["error"]["seq"]
            if seq != self.seq:
                raise Violation(f"call {self.seq} received the response to call {seq}")
            self.seq += 1
        return response

    def request_id(self) -> str:
        return f"{self.number}-{self.rng.getrandbits(62):x}"

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request until it gets a response; 1% of the responses are lost."""
        if self.rng.random() < 0.01:
            self.counts["responses lost"] += 1
            reply = await self.http.post(self.url + path, json=body)
            reply.close()  # closes the connection before the response is read
        for _ in range(200):
            try:
                async with self.http.post(self.url + path, json=body) as reply:
                    response: dict[str, Any] = await reply.json()
            except (aiohttp.ClientError, OSError):
                self.counts["connections lost"] += 1
                continue
            if "error" in response and response["error"]["code"] in ("capacity", "session_busy", "unavailable"):
                await asyncio.sleep(response["error"]["retry_after"])
                continue
            return response
        raise Violation(f"no response to {path}")


async def soak(server: Server, sessions: int, steps: int) -> tuple[Counter[str], list[str]]:
    counts: Counter[str] = Counter()
    errors: list[str] = []
    steps_per_client = steps // sessions

    async def run_client(client: Client) -> None:
        try:
            await client.play()
        except Violation as err:
            errors.append(str(err))

    async def kill_one() -> None:
        while counts["steps acknowledged"] < steps // 2:
            await asyncio.sleep(0.05)
        os.kill(server.workers()[0], 9)
        counts["workers killed"] += 1

    connector = aiohttp.TCPConnector(limit=128)
    async with aiohttp.ClientSession(connector=connector) as http:
        clients = [Client(number, steps_per_client, server.url, http, counts) for number in range(sessions)]
        await asyncio.gather(kill_one(), *map(run_client, clients))
        expected = sum(steps_per_client for client in clients if client.disappears_at is None)
        done = sum(len(client.actions) for client in clients if client.disappears_at is None)
        if done != expected:
            errors.append(f"{done} of {expected} steps were acknowledged")
        for _ in range(int(20 * (LEASE + 5))):  # wait until abandoned sessions have expired
            async with http.get(f"{server.url}/metrics") as response:
                text = await response.text()
            left = int(float(re.findall(r"^palestra_sessions (\S+)", text, re.M)[0]))
            if left == 0:
                break
            await asyncio.sleep(0.05)
        else:
            errors.append(f"{left} sessions are left")
    return counts, errors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--sessions", type=int, default=1_000, help="Number of concurrent clients (default: 1000).")
    parser.add_argument("--steps", type=int, default=100_000, help="Total number of steps (default: 100000).")
    parser.add_argument("--workers", type=int, default=4, help="Worker processes in the server (default: 4).")
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    args = parser.parse_args()
    server = Server(args.workers, args.sessions)
    try:
        asyncio.run(soak(server, args.sessions, args.sessions))  # warm-up, so that memory use is stable
        before = server.usage()
        started = time.monotonic()
        counts, errors = asyncio.run(soak(server, args.sessions, args.steps))
        seconds = time.monotonic() - started
        time.sleep(1.0)
        after = server.usage()
    finally:
        server.process.terminate()
        code = server.process.wait(60)
    if code != 0:
        errors.append(f"the server exited with {code}")
    for name, slack in (("files", 8), ("processes", 0)):
        if after[name] > before[name] + slack:
            errors.append(f"{name}: {before[name]:.0f} before, {after[name]:.0f} after")
    for name in ("server_mb", "workers_mb"):
        if after[name] > 1.25 * before[name] + 8:
            errors.append(f"{name}: {before[name]:.1f} before, {after[name]:.1f} after")
    if args.json:
        print(json.dumps({"counts": counts, "before": before, "after": after, "seconds": seconds, "errors": errors}))
        return 1 if errors else 0
    print(f"{args.sessions} sessions, {args.steps} steps, {seconds:.0f} s")
    for name, count in sorted(counts.items()):
        print(f"  {count:>8}  {name}")
    print("  ", ", ".join(f"{name} {before[name]:.0f} -> {after[name]:.0f}" for name in before))
    print(
        "every acknowledged step was executed once and every loss was reported"
        if not errors
        else "ERRORS: " + "; ".join(errors[:10])
    )
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
