"""Compare BabyAI and TextCraft with AgentGym's servers: resets and steps per second with one player.

AgentGym's environments are HTTP servers that are not on a package index, so the benchmark needs a checkout:

    python benchmarks/worlds.py --agentgym PATH/TO/AgentGym

`--python` is an interpreter with the packages that AgentGym's servers need (fastapi, uvicorn, gym, gymnasium, minigrid,
matplotlib); by default a virtual environment is created in .cache. The same random player plays both sides alternately,
AgentGym's over one persistent connection. Rates are measured in wall-clock time. Ratios compare the CPU time spent
inside reset and step (for AgentGym, in the server and the client), which is independent of the machine's load.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, NamedTuple

import palestra
from palestra.envs.babyai.levels import LEVELS

ROOT = Path(__file__).parent.parent
PEER = ROOT / ".cache" / "agentgym-venv"
NEEDS = ("fastapi", "uvicorn", "gym", "gymnasium<1", "minigrid<2.5", "matplotlib")
TURNS = 20  # maximum number of turns per episode, equal to AgentGym-RL's horizon for BabyAI


class Side(NamedTuple):
    """One implementation: `reset` starts a task by index, and `step` also returns whether the episode has ended."""

    reset: Callable[[int], str]
    step: Callable[[str], tuple[str, bool]]
    cpu: Callable[[], int]  # nanoseconds of CPU time so far


class Usage(NamedTuple):
    """Number of calls and their total time in nanoseconds."""

    calls: int = 0
    clock: int = 0
    cpu: int = 0


def palestra_side(env_id: str) -> Side:
    env = palestra.make(env_id)

    def reset(index: int) -> str:
        return str(env.reset(seed=index)[0])

    def step(action: str) -> tuple[str, bool]:
        done = env.step(action)
        return str(done.observation), done.terminated

    return Side(reset, step, time.process_time_ns)


def cpu_of(pid: int) -> int:
    """Return the CPU time of all threads in a process."""
    return sum(int(task.joinpath("schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


@contextmanager
def agentgym_side(family: str, checkout: Path, python: str) -> Iterator[Side]:
    """Run AgentGym's server for one environment family, with a client on one connection."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "uvicorn", f"agentenv_{family}.server:app", "--port", str(port), "--log-level", "warning"]
    server = subprocess.Popen(
        command, cwd=checkout / f"agentenv-{family}", stdout=subprocess.DEVNULL, env={**os.environ}
    )
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        reply: dict[str, Any] = json.loads(connection.getresponse().read())
        if "error" in reply:
            raise SystemExit(f"AgentGym's {family} server: {reply['error']}")
        return reply

    try:
        for _ in range(600):
            try:
                connection.connect()
                break
            except OSError:
                time.sleep(0.1)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = post("/create", {})["id"]

        def reset(index: int) -> str:
            return str(post("/reset", {"id": number, "data_idx": index})["observation"])

        def step(action: str) -> tuple[str, bool]:
            reply = post("/step", {"id": number, "action": action})
            return str(reply["observation"]), bool(reply["done"])

        yield Side(reset, step, lambda: time.process_time_ns() + cpu_of(server.pid))
    finally:
        connection.close()
        server.terminate()
        server.wait(20)


def babyai_action(shown: str, rng: Random) -> str:
    """Choose one of the actions that an observation lists, in Palestra's or AgentGym's format."""
    if "Available actions: [" in shown:
        return rng.choice(re.findall(r'"([^"]+)"', shown.rpartition("Available actions: [")[2]))
    return rng.choice(shown.rpartition("You can: ")[2].rstrip(".").split(", "))


def textcraft_action(recipes: list[str], rng: Random) -> str:
    recipe = rng.choice(recipes)
    if rng.random() < 0.5:
        return recipe
    return f"get {rng.choice(recipe.partition(' using ')[2].split(', '))}"


def play(side: Side, family: str, index: int, rng: Random) -> tuple[Usage, Usage]:
    """Play one episode and return the time used by the reset and by the steps."""
    cpu, clock = side.cpu(), time.perf_counter_ns()
    shown = side.reset(index)
    reset = Usage(1, time.perf_counter_ns() - clock, side.cpu() - cpu)
    recipes = re.findall(r"^craft [0-9].* using [^(\n]+", shown, re.M)
    steps = Usage()
    for _ in range(TURNS):
        action = babyai_action(shown, rng) if family == "babyai" else textcraft_action(recipes, rng).strip()
        cpu, clock = side.cpu(), time.perf_counter_ns()
        shown, over = side.step(action)
        steps = Usage(steps.calls + 1, steps.clock + time.perf_counter_ns() - clock, steps.cpu + side.cpu() - cpu)
        if over:
            break
    return reset, steps


def summed(parts: list[Usage]) -> Usage:
    return Usage(*map(sum, zip(*parts, strict=True)))


def compare(family: str, env_id: str, checkout: Path, python: str, rounds: int) -> dict[str, float]:
    """Return the rates of both sides and the median ratio of their CPU time per call."""
    ours, rng = palestra_side(env_id), Random(0)
    results: dict[str, list[float]] = {}
    with agentgym_side(family, checkout, python) as other:
        for side in (ours, other):
            play(side, family, 0, rng)  # warm up
        for number in range(rounds):
            usage = {}
            for name, side in (("agentgym ", other), ("", ours)):
                played = [play(side, family, number * 40 + index, rng) for index in range(40)]
                usage[f"{name}resets"] = summed([reset for reset, _ in played])
                usage[f"{name}steps"] = summed([steps for _, steps in played])
            for name, part in usage.items():
                results.setdefault(name, []).append(part.calls / part.clock * 1e9)
            for what in ("resets", "steps"):
                one, two = usage[f"agentgym {what}"], usage[what]
                results.setdefault(f"{what} ratio", []).append((one.cpu / one.calls) / (two.cpu / two.calls))
    return {name: median(values) for name, values in results.items()}


def peer_python() -> str:
    if not (PEER / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
        subprocess.run([PEER / "bin" / "python", "-m", "pip", "install", "--quiet", *NEEDS], check=True)
    return str(PEER / "bin" / "python")


def budgets(levels: list[str], episodes: int) -> None:
    """Print, for each BabyAI level, the expert's turns and the success rates of the expert and random players."""
    for level in levels:
        solved = {"expert": 0, "random": 0}
        turns = []
        with palestra.make(f"babyai:{level}-v0") as env:
            for player in solved:
                for seed in range(episodes):
                    env.reset(seed=seed)
                    step = None
                    count = 0
                    while step is None or not step.terminated:
                        action = env.expert_action() if player == "expert" else env.sample_random_action()
                        step = env.step(action or "")
                        count += 1
                    solved[player] += step.info["success"]
                    if player == "expert":
                        turns.append(count)
        rates = ", ".join(f"{player} {count / episodes:.3f}" for player, count in solved.items())
        print(f"{level:24} {rates}; expert turns: median {median(turns):g}, maximum {max(turns)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--agentgym",
        type=Path,
        default=os.environ.get("AGENTGYM"),
        help="Path to an AgentGym checkout (default: $AGENTGYM).",
    )
    parser.add_argument("--python", help="Python interpreter that runs AgentGym's servers.")
    parser.add_argument("--rounds", type=int, default=5, help="Number of rounds, with 40 episodes per side each.")
    parser.add_argument("--families", nargs="*", default=["textcraft", "babyai"])
    parser.add_argument(
        "--budgets", type=int, help="Measure only the success rates of both players, on this many episodes per level."
    )
    parser.add_argument("--levels", nargs="*", default=list(LEVELS))
    args = parser.parse_args()
    if args.budgets:
        budgets(args.levels, args.budgets)
        return
    if args.agentgym is None:
        print("nothing measured: AgentGym's servers need a checkout; pass it with --agentgym PATH or AGENTGYM=PATH")
        return
    python = args.python or peer_python()
    ids = {"textcraft": "textcraft:Depth2-v0", "babyai": "babyai:All-v0"}
    for family in args.families:
        results = compare(family, ids[family], Path(args.agentgym), python, args.rounds)
        for what in ("steps", "resets"):
            print(
                f"{family:10} {what:7} {results[what]:>10,.0f}/s   AgentGym "
                f"{results[f'agentgym {what}']:>8,.0f}/s   "
                f"{results[f'{what} ratio']:.1f}x less CPU time"
            )


if __name__ == "__main__":
    main()
