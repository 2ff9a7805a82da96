"""Measure the viewer's page load times, episode load times and memory on a run with 100,000 episodes.

    python benchmarks/viewer.py [--episodes N] [--json]

The run is a JSONL file of about 2 GB: games by a random player with token ids and log-probabilities added as if a model
had produced them, each with a different seed. `palestra view` runs as a separate process with an empty cache. Chromium
opens the list of episodes while the file is still being indexed and again afterwards. Then randomly chosen episodes are
opened, in the page and through the JSON API, pages of filtered lists are requested, and an episode is appended to the
file. Memory is the server process's peak (VmHWM). The exit code is 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import orjson
from playwright.sync_api import Page, sync_playwright

from palestra.agents import RandomAgent
from palestra.browser.executable import find_browser
from palestra.engines import ByteTokenizer
from palestra.rollout import Trajectory, collect
from palestra.rollout.codec import to_json
from palestra.types import Call

BARS = {"page_s": 2.0, "episode_ms": 300.0, "memory_mb": 500.0}  # maximum values with 100,000 episodes
ENVS = ["game:Sokoban-v0-easy", "game:Minesweeper-v0-easy", "game:Mastermind-v0-easy", "game:Hangman-v0-easy"]
LINE = 20_000  # approximate number of bytes per episode


def games() -> list[bytes]:
    """Return episodes with token ids as JSON lines of about LINE bytes."""
    rng = Random(0)
    tokenizer = ByteTokenizer()
    lines = []
    for env_id in ENVS:
        result = asyncio.run(collect(RandomAgent(), env_id, episodes=16, seed=1))
        lines += [orjson.dumps(_padded(to_json(_with_ids(t, tokenizer, rng)))) for t in result.trajectories]
    return [line for line in lines if len(line) < 1.1 * LINE]


def _with_ids(trajectory: Trajectory, tokenizer: ByteTokenizer, rng: Random) -> Trajectory:
    """Return the trajectory with token ids and log-probabilities, as if a model had sampled it."""
    turns, context = [], list[int]()
    for turn in trajectory.turns:
        prompt = context + tokenizer.encode(str(turn.observation))
        ids = tokenizer.encode(turn.action.text)
        logprobs = [-rng.expovariate(2.0) for _ in ids]
        call = Call(prompt_ids=prompt, ids=ids, logprobs=logprobs, finish="stop", version=1)
        turns.append(replace(turn, action=replace(turn.action, calls=(call,))))
        context = prompt + ids
    return replace(trajectory, turns=tuple(turns))


def _padded(data: dict[str, Any]) -> dict[str, Any]:
    """Pad the last action with text, so that the line has LINE bytes."""
    missing = LINE - len(orjson.dumps(data))
    if missing > 0 and data["turns"]:
        data["turns"][-1]["text"] = ("I wonder what would happen then. " * (missing // 33)) + data["turns"][-1]["text"]
    return data


def write_run(folder: Path, episodes: int) -> int:
    """Write the run and return its size in bytes."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"kind": "eval", "env": ENVS, "agent": "random"}))
    heads = []
    for line in games():
        before, _, after = line.partition(b',"seed":')
        heads.append((before, after.partition(b",")[2]))
    path = folder / "episodes.jsonl"
    with path.open("wb", buffering=1 << 22) as file:
        for n in range(episodes):
            before, after = heads[n % len(heads)]
            file.write(before + b',"seed":' + str(n).encode() + b"," + after + b"\n")
    return path.stat().st_size


class Server:
    """`palestra view` in a child process with an empty cache."""

    def __init__(self, folder: Path, cache: Path) -> None:
        command = [sys.executable, "-m", "palestra", "view", str(folder), "--port", "0"]
        environment = {**os.environ, "PALESTRA_CACHE": str(cache)}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        self.address = next(word for word in words if word.startswith("http")).rstrip(".")

    def get(self, path: str, **params: Any) -> Any:
        with urllib.request.urlopen(f"{self.address}api/{path}?{urllib.parse.urlencode(params)}") as response:
            return json.loads(response.read())

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)


def timed_page(page: Page, address: str, selector: str) -> float:
    """Open the page in an empty tab and return the seconds until an element that matches `selector` is visible."""
    page.goto("about:blank")
    start = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_selector(selector)
    return time.perf_counter() - start


def milliseconds(work: Any) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


def measure(server: Server, run: Path, episodes: int) -> dict[str, float]:
    rng = Random(1)
    figures: dict[str, float] = {}
    start = time.perf_counter()
    listing = f"{server.address}#/episodes?run={run.name}"
    name = "episodes.jsonl"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        figures["page_while_reading_s"] = timed_page(page, listing, "tbody tr")
        during = []
        while server.get("changes", run=run.name)["runs"][run.name]["episodes"] < episodes:
            indexed = server.get("changes", run=run.name)["runs"][run.name]["episodes"]
            at = f"{name}:{rng.randrange(max(1, indexed))}"
            during.append(milliseconds(lambda at=at: server.get("episode", run=run.name, at=at)))
            time.sleep(0.5)
        figures["read_s"] = time.perf_counter() - start
        figures["episode_while_reading_ms"] = max(during, default=0.0)
        figures["page_s"] = max(timed_page(page, listing, "tbody tr") for _ in range(5))
        figures["first_page_s"] = max(timed_page(page, server.address, "tbody tr") for _ in range(5))
        places = [f"{name}:{rng.randrange(episodes)}" for _ in range(200)]
        times = [milliseconds(lambda at=at: server.get("episode", run=run.name, at=at)) for at in places]
        figures |= {"episode_p50_ms": median(times), "episode_ms": max(times)}
        page_times = []
        for at in places[:20]:
            address = f"{server.address}#/episode?{urllib.parse.urlencode({'run': run.name, 'at': at})}"
            page.evaluate("() => document.querySelector('main').replaceChildren()")
            start = time.perf_counter()
            page.evaluate("address => { location.hash = new URL(address).hash }", address)
            page.wait_for_selector(".message.agent")
            page_times.append((time.perf_counter() - start) * 1000)
        figures |= {"episode_shown_p50_ms": median(page_times), "episode_shown_ms": max(page_times)}
        filters = [
            {"outcome": "unsolved"},
            {"env": ENVS[0], "min_turns": 5},
            {"sort": "-return", "page": 1500},
            {"seed": "777"},
        ]
        lists = [milliseconds(lambda f=f: server.get("episodes", run=run.name, **f)) for f in filters for _ in range(5)]
        figures |= {"list_p50_ms": median(lists), "list_ms": max(lists)}
        browser.close()
    line = (run / name).open("rb").readline()
    with (run / name).open("ab") as file:
        file.write(line)
    start = time.perf_counter()
    while server.get("changes", run=run.name)["runs"][run.name]["episodes"] <= episodes:
        time.sleep(0.05)
    figures["appended_s"] = time.perf_counter() - start
    figures["memory_mb"] = server.memory_mb()
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100_000, help="Number of episodes in the run.")
    parser.add_argument("--json", action="store_true", help="Print all measurements as JSON.")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as scratch:
        run = Path(scratch, "runs", "large")
        size = write_run(run, args.episodes)
        server = Server(run.parent, Path(scratch, "cache"))
        try:
            figures = {"episodes": args.episodes, "gigabytes": size / 1e9, **measure(server, run, args.episodes)}
        finally:
            server.close()
        figures["index_mb"] = sum(path.stat().st_size for path in Path(scratch, "cache").rglob("*.sqlite*")) / 1e6
    missed = [name for name, bar in BARS.items() if figures[name] > bar]
    if args.json:
        print(json.dumps(figures | {"missed": missed}))
    else:
        for name, value in figures.items():
            bar = f"   at most {BARS[name]:g}" if name in BARS else ""
            print(f"{name:26}{value:12.5g}{bar}{'   MISSED' if name in missed else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
