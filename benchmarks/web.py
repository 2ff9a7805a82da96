"""Measure the browser environments: steps, resets, memory, and episodes while the browser is being killed.

    python benchmarks/web.py [--seconds 10] [--envs 8] [--chaos 1000] [--peer PYTHON]

`--peer` is the Python interpreter of a virtual environment with `browsergym-miniwob` (default: the one in
.cache/browsergym-venv, if it exists), whose steps per second on the same task, with the same browser and with clicks as
well, are measured in the same run; without it, this comparison is omitted. Targets (exit code 1 if one is missed): at
least 20 times BrowserGym's steps per second with one env, less than 60 MB for each of 8 further envs in one browser
(the applications that answer the browser are counted as well), less than 150 ms for the median reset of a task on the
generated sites, on the forge and on the store, and, with `--chaos`, no episode that is lost, scored differently than
without kills, or leaves a process or folder behind.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import palestra
from palestra.browser.executable import find_browser
from palestra.browser.pool import pool
from palestra.envs.web.store.program import SERVER_PROCESS

TASK = "miniwob:ClickCheckboxes-v0"
SITES, FORGE, STORE = "web:Mixed-v0", "web:Forge-v0", "web:Store-v0"
MEMORY_TASKS = (
    "click-button",
    "click-checkboxes",
    "enter-text",
    "click-tab-2",
    "login-user",
    "click-menu",
    "click-link",
    "click-color",
)
MIN_RATIO, MAX_MB, MAX_RESET_MS = 20.0, 60.0, 150.0
PEER_HOME = Path(__file__).resolve().parent.parent / ".cache" / "browsergym-venv"
PEER = """
import json, os, sys, time
from importlib.util import find_spec
os.environ["MINIWOB_URL"] = f"file://{find_spec('miniwob').submodule_search_locations[0]}/html/miniwob/"
import gymnasium as gym, browsergym.miniwob
from playwright.sync_api import BrowserType
launch = BrowserType.launch
BrowserType.launch = lambda self, **options: launch(self, executable_path=sys.argv[2], **options)
env = gym.make("browsergym/miniwob.click-checkboxes")
def click(obs):
    nodes = obs["axtree_object"]["nodes"]
    return f"click('{next(node['browsergym_id'] for node in nodes if node['role']['value'] == 'checkbox')}')"
action = click(env.reset(seed=1)[0])
env.step(action)
stepping, steps = 0.0, 0
end = time.perf_counter() + float(sys.argv[1])
while time.perf_counter() < end:
    start = time.perf_counter()
    obs, _, done, cut, _ = env.step(action)
    stepping += time.perf_counter() - start
    steps += 1
    assert not obs["last_action_error"], obs["last_action_error"]
    if done or cut:
        action = click(env.reset(seed=steps)[0])
print(json.dumps(steps / stepping))
env.close()
"""


def play(env: palestra.Env, seed: int) -> tuple[int, bool]:
    """Play an episode with the expert; return its number of steps and whether it was solved."""
    env.reset(seed=seed)
    for turn in range(1, 100):
        step = env.step(env.expert_action() or "")
        if step.done:
            return turn, bool(step.info["success"])
    raise AssertionError("the episode did not end")


def steps_per_second(task: str, seconds: float) -> dict[str, float]:
    resets, steps, stepping = [], 0, 0.0
    with palestra.make(task) as env:
        play(env, 0)
        end = perf_counter() + seconds
        seed = 0
        while perf_counter() < end:
            seed += 1
            start = perf_counter()
            env.reset(seed=seed)
            resets.append(perf_counter() - start)
            start = perf_counter()
            done = False
            while not done:
                done = env.step(env.expert_action() or "").done
                steps += 1
            stepping += perf_counter() - start
    return {"steps_per_second": steps / stepping, "reset_ms": 1000 * median(resets)}


def descendants() -> list[int]:
    """Return the ids of all processes that this process started, directly or indirectly, and that still run."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                if state != "Z":
                    parents[int(folder.name)] = int(parent)
    found = [os.getpid()]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found[1:]


def memory_mb() -> float:
    """Return the proportional memory in MB of the browser's processes and of the applications that answer it."""
    total = 0
    for process in descendants():
        with suppress(OSError, StopIteration):
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def memory(tasks: Sequence[str], first: int, further: int) -> dict[str, float]:
    """Return the memory of the first envs, with the browser and the applications, and that of every further env."""
    stop()
    opened: list[palestra.Env] = []
    figures = []
    for i in range(first + further):
        env = palestra.make(tasks[i % len(tasks)])
        play(env, i)
        env.reset(seed=i)
        opened.append(env)
        figures.append(memory_mb())
    for env in opened:
        env.close()
    before = figures[first - 1]
    return {"first_envs": first, "first_envs_mb": before, "further_env_mb": (figures[-1] - before) / further}


def stop() -> None:
    """End the browser and django-oscar, which otherwise end with this process."""
    pool.close()
    SERVER_PROCESS.stop()


def chaos(episodes: int) -> dict[str, Any]:
    """Play episodes while the browser is killed at random; compare with the same episodes without kills."""
    rng = random.Random(0)
    lost = different = kills = 0
    expected: dict[tuple[str, int], tuple[int, bool]] = {}
    tasks = [f"{SITES}-easy", f"{FORGE}-easy", f"{STORE}-easy", *(f"miniwob:{name}" for name in MEMORY_TASKS)]
    for episode in range(episodes):
        name, seed = tasks[episode % len(tasks)], rng.randrange(5)
        kill_at = rng.randrange(3) if rng.random() < 0.1 else None
        with palestra.make(name) as env:
            if (name, seed) not in expected:
                expected[name, seed] = play(env, seed)
            try:
                env.reset(seed=seed)
                turn, done = 0, False
                while not done:
                    if turn == kill_at and pool.browser is not None:
                        os.kill(pool.browser.process.pid, signal.SIGKILL)
                        kills += 1
                    step = env.step(env.expert_action() or "")
                    turn, done = turn + 1, step.done
                different += (turn, bool(step.info["success"])) != expected[name, seed]
            except palestra.errors.InfrastructureError:
                lost += 1
    stop()
    return {
        "episodes": episodes,
        "kills": kills,
        "lost": lost,
        "scored_differently": different,
        "left_behind": left_behind(),
    }


def left_behind() -> int:
    """Return the number of processes and temporary folders of this benchmark that still exist after ten seconds."""
    folder = Path(tempfile.gettempdir())
    end = perf_counter() + 10.0
    while True:
        count = len(started_in(folder) | set(descendants())) + len(list(folder.iterdir()))
        if count == 0 or perf_counter() > end:
            return count
        sleep(0.05)


def started_in(folder: Path) -> set[int]:
    """Return the ids of the other processes that have this folder in their arguments or environment."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with suppress(OSError):
                words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                if os.fsencode(folder) in words:
                    found.add(int(process.name))
    return found


def peer(python: str, seconds: float) -> float:
    command = [python, "-c", PEER, str(seconds), find_browser()]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        variables = {**os.environ, "TMPDIR": folder}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=variables)
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="Duration of each measurement (default 10).")
    parser.add_argument("--envs", type=int, default=8, help="Number of further envs in one browser (default 8).")
    parser.add_argument("--chaos", type=int, default=0, help="Episodes with kills of the browser (default 0: none).")
    parser.add_argument(
        "--peer",
        default=str(PEER_HOME / "bin" / "python") if PEER_HOME.exists() else "",
        metavar="PYTHON",
        help="Python interpreter of an environment with browsergym-miniwob (default: .cache/browsergym-venv, if it "
        'exists; "" omits the comparison).',
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pw-") as folder:  # a short path, because sockets are created below it
        Path(folder).chmod(0o777)
        tempfile.tempdir = os.environ["TMPDIR"] = folder
        figures = measure(args)
        stop()
    figures["targets"] = targets(figures)
    print(json.dumps(figures, indent=1))
    return 0 if all(target["met"] for target in figures["targets"].values()) else 1


def measure(args: argparse.Namespace) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "one_env": steps_per_second(TASK, args.seconds),
        "generated_sites": steps_per_second(SITES, args.seconds),
        "forge": steps_per_second(FORGE, args.seconds),
        "store": steps_per_second(STORE, args.seconds),
        "memory": memory([f"miniwob:{name}" for name in MEMORY_TASKS], 1, args.envs),
        "memory_of_sites": memory([SITES, FORGE, STORE], 3, args.envs),
    }
    if args.peer:
        theirs = peer(args.peer, args.seconds)
        ratio = figures["one_env"]["steps_per_second"] / theirs
        figures["browsergym"] = {"steps_per_second": theirs, "ratio": ratio}
    if args.chaos:
        figures["chaos"] = chaos(args.chaos)
    return figures


def targets(figures: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return for every target that was measured the figure, the required value, and whether it is met."""
    resets = max(figures[name]["reset_ms"] for name in ("generated_sites", "forge", "store"))
    further = max(figures[name]["further_env_mb"] for name in ("memory", "memory_of_sites"))
    rows: dict[str, dict[str, Any]] = {
        "median_reset_ms": {"figure": resets, "required": f"< {MAX_RESET_MS:g}", "met": resets < MAX_RESET_MS},
        "further_env_mb": {"figure": further, "required": f"< {MAX_MB:g}", "met": further < MAX_MB},
    }
    if "browsergym" in figures:
        ratio = figures["browsergym"]["ratio"]
        rows["steps_relative_to_browsergym"] = {
            "figure": ratio,
            "required": f">= {MIN_RATIO:g}",
            "met": ratio >= MIN_RATIO,
        }
    for name in ("lost", "scored_differently", "left_behind") if "chaos" in figures else ():
        count = figures["chaos"][name]
        rows[f"chaos_{name}"] = {"figure": count, "required": "0", "met": count == 0}
    return rows


if __name__ == "__main__":
    sys.exit(main())
