"""A server under everything at once: does every acknowledged step happen once, is every loss told, is all given back?

    python benchmarks/serve_soak.py [--sessions 1000] [--steps 100000] [--workers 4] [--json]

Each client steps an environment that counts (serve_envs.py) over HTTP. 1% of the clients vanish in mid-episode and
leave their sessions to the lease; 1% of the requests lose their answer on the way, and are sent again; 0.5% of the
environments end their process, and as many raise; one worker is killed with signal 9. A client whose session is lost
opens another, replays its seed and actions, and goes on.

Counted as wrong: an answer that does not say how many steps were acknowledged; a call without any answer; a loss that
is not told as one. At the end no session is left, and memory and open files are compared with the beginning.
Exits 1 where anything is wrong.
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
TOLD = {"session_gone", "env_failed", "unknown_session"}


class Wrong(Exception):
    """Something that must not happen has."""


class Server:
    def __init__(self, workers: int, sessions: int) -> None:
        command = [sys.executable, "-m", "palestra", "serve", "soak:Ledger-v0", "--import", "serve_envs", "--port", "0"]
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
        found = re.search(r"http://\S+?:\d+", line)
        if found is None:
            raise SystemExit(f"the server did not start: {line!r}")
        self.url = found[0]

    def workers(self) -> list[int]:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(child) for child in children]

    def held(self) -> dict[str, float]:
        """Megabytes of the server and of all its workers, and the server's open files."""
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
    """One session's player."""

    def __init__(self, number: int, steps: int, url: str, http: aiohttp.ClientSession, counts: Counter[str]) -> None:
        self.rng = Random(number)
        self.number, self.steps, self.url, self.http, self.counts = number, steps, url, http, counts
        self.session = ""
        self.seq = 0
        self.actions: list[str] = []  # acknowledged
        fate = self.rng.random()
        self.vanishes = self.rng.randrange(steps) if fate < 0.01 else None
        self.crashes = self.rng.randrange(steps) if 0.01 <= fate < 0.015 else None
        self.raises = self.rng.randrange(steps) if 0.015 <= fate < 0.02 else None

    async def play(self) -> None:
        await self.open()
        while len(self.actions) < self.steps:
            turn = len(self.actions)
            if turn == self.vanishes:
                self.counts["vanished"] += 1
                return
            if turn == self.crashes or turn == self.raises:
                how = "crash" if turn == self.crashes else "raise"
                self.crashes = self.raises = None
                told = await self.call("step", {"action": how})
                if "error" not in told:
                    raise Wrong(f"{how} was answered with {told}")
                self.counts[f"{how}: told as {told['error'].get('cause') or told['error']['code']}"] += 1
                await self.again(told)
                continue
            action = f"a{self.rng.randrange(1000)}"
            told = await self.call("step", {"action": action})
            if "error" in told:
                await self.again(told)
                continue
            self.actions.append(action)
            if told["observation"] != f"{len(self.actions)} {action}":
                raise Wrong(f"step {len(self.actions)} of client {self.number} was answered {told['observation']!r}")
            self.counts["steps acknowledged"] += 1
        told = await self.call("close", {})
        if not told.get("closed"):
            raise Wrong(f"close was answered {told}")

    async def open(self) -> None:
        told = await self.post("/v1/sessions", {"env": "soak:Ledger-v0", "id": self.name()})
        if "session" not in told:
            raise Wrong(f"create was answered {told}")
        self.session, self.seq = told["session"], 0
        self.counts["sessions opened"] += 1
        told = await self.call("reset", {"seed": self.number, "actions": self.actions})
        if "error" in told:
            await self.again(told)

    async def again(self, told: dict[str, Any]) -> None:
        """After an error: it has to be a told loss, and the episode goes on elsewhere."""
        fault = told["error"]
        if fault["code"] not in TOLD:
            raise Wrong(f"an undocumented end: {fault}")
        self.counts[f"lost: {fault.get('cause') or fault['code']}"] += 1
        if fault["code"] == "env_failed":
            told = await self.call("reset", {"seed": self.number, "actions": self.actions})
            if "error" not in told:
                return
        await self.open()

    async def call(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        body["id"] = self.name()
        if what != "close":
            body["seq"] = self.seq
        told = await self.post(f"/v1/sessions/{self.session}/{what}", body)
        if what != "close" and ("error" not in told or "seq" in told["error"]):
            seq = told["seq"] if "error" not in told else told["error"]["seq"]
            if seq != self.seq:
                raise Wrong(f"call {self.seq} was answered as call {seq}")
            self.seq += 1
        return told

    def name(self) -> str:
        return f"{self.number}-{self.rng.getrandbits(62):x}"

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """With 1% of the answers lost on the way."""
        if self.rng.random() < 0.01:
            self.counts["answers lost on the way"] += 1
            response = await self.http.post(self.url + path, json=body)
            response.close()  # the connection too, before the answer is read
        for _ in range(200):
            try:
                async with self.http.post(self.url + path, json=body) as response:
                    told: dict[str, Any] = await response.json()
            except (aiohttp.ClientError, OSError):
                self.counts["connections lost"] += 1
                continue
            if "error" in told and told["error"]["code"] in ("capacity", "session_busy", "unavailable"):
                await asyncio.sleep(told["error"]["retry_after"])
                continue
            return told
        raise Wrong(f"no answer to {path}")


async def soak(server: Server, sessions: int, steps: int) -> tuple[Counter[str], list[str]]:
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    each = steps // sessions

    async def one(client: Client) -> None:
        try:
            await client.play()
        except Wrong as err:
            wrong.append(str(err))

    async def kill_one() -> None:
        while counts["steps acknowledged"] < steps // 2:
            await asyncio.sleep(0.05)
        os.kill(server.workers()[0], 9)
        counts["workers killed"] += 1

    connector = aiohttp.TCPConnector(limit=128)
    async with aiohttp.ClientSession(connector=connector) as http:
        clients = [Client(number, each, server.url, http, counts) for number in range(sessions)]
        await asyncio.gather(kill_one(), *map(one, clients))
        expected = sum(each for client in clients if client.vanishes is None)
        done = sum(len(client.actions) for client in clients if client.vanishes is None)
        if done != expected:
            wrong.append(f"{done} of {expected} steps were acknowledged")
        for _ in range(int(20 * (LEASE + 5))):  # what vanished clients left ends with its lease
            async with http.get(f"{server.url}/metrics") as response:
                text = await response.text()
            left = int(float(re.findall(r"^palestra_sessions (\S+)", text, re.M)[0]))
            if left == 0:
                break
            await asyncio.sleep(0.05)
        else:
            wrong.append(f"{left} sessions are left")
    return counts, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--sessions", type=int, default=1_000)
    parser.add_argument("--steps", type=int, default=100_000, help="in all")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    server = Server(args.workers, args.sessions)
    try:
        asyncio.run(soak(server, args.sessions, args.sessions))  # so that memory is at its level
        before = server.held()
        began = time.monotonic()
        counts, wrong = asyncio.run(soak(server, args.sessions, args.steps))
        took = time.monotonic() - began
        time.sleep(1.0)
        after = server.held()
    finally:
        server.process.terminate()
        code = server.process.wait(60)
    if code != 0:
        wrong.append(f"the server ended with {code}")
    for name, slack in (("files", 8), ("processes", 0)):
        if after[name] > before[name] + slack:
            wrong.append(f"{name}: {before[name]:.0f} before, {after[name]:.0f} after")
    for name in ("server_mb", "workers_mb"):
        if after[name] > 1.25 * before[name] + 8:
            wrong.append(f"{name}: {before[name]:.1f} before, {after[name]:.1f} after")
    if args.json:
        print(json.dumps({"counts": counts, "before": before, "after": after, "seconds": took, "wrong": wrong}))
        return 1 if wrong else 0
    print(f"{args.sessions} sessions, {args.steps} steps, {took:.0f} s")
    for name, count in sorted(counts.items()):
        print(f"  {count:>8}  {name}")
    print("  ", ", ".join(f"{name} {before[name]:.0f} -> {after[name]:.0f}" for name in before))
    print(
        "every acknowledged step happened once, every loss was told" if not wrong else "WRONG: " + "; ".join(wrong[:10])
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
