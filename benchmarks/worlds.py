"""Worlds against AgentGym's own servers, in one run: steps a second and resets a second, a player at a time.

AgentGym's environments are HTTP servers from its repository (its packages are on no index), so its side runs from a
checkout:

    python benchmarks/worlds.py --agentgym PATH/TO/AgentGym

`--python` is the interpreter that has what its servers need (fastapi, uvicorn, gym, gymnasium, minigrid, matplotlib);
by default a virtual environment in .cache is made for it. Both sides play the same random player in the same process,
one request on a kept-open connection after the other, and take turns. Rates are of the clock; ratios are of processor
time spent inside reset and step (on AgentGym's side: the server's and the client's), which other programs on the
machine do not disturb. An idle machine's clock would favour us more, as it also counts the waiting for the wire.
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
NEEDS = ("fastapi", "uvicorn", "gym", "gymnasium", "minigrid", "matplotlib")
TURNS = 20  # an episode, at most: AgentGym-RL's horizon for BabyAI


class Side(NamedTuple):
    """One player's world: begin task `index`, or act; both return the text shown, and whether the episode is over."""

    reset: Callable[[int], str]
    step: Callable[[str], tuple[str, bool]]
    cpu: Callable[[], int]  # nanoseconds of processor time so far


class Spent(NamedTuple):
    """What a number of calls took, in nanoseconds."""

    calls: int = 0
    clock: int = 0
    cpu: int = 0


def ours(env_id: str) -> Side:
    env = palestra.make(env_id)

    def reset(index: int) -> str:
        return str(env.reset(seed=index)[0])

    def step(action: str) -> tuple[str, bool]:
        done = env.step(action)
        return str(done.observation), done.terminated

    return Side(reset, step, time.process_time_ns)


def cpu_of(pid: int) -> int:
    """Processor time of a process, all its threads."""
    return sum(int(task.joinpath("schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


@contextmanager
def theirs(world: str, checkout: Path, python: str) -> Iterator[Side]:
    """AgentGym's server of a world, and a client on one connection."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [python, "-m", "uvicorn", f"agentenv_{world}.server:app", "--port", str(port), "--log-level", "warning"]
    server = subprocess.Popen(
        command, cwd=checkout / f"agentenv-{world}", stdout=subprocess.DEVNULL, env={**os.environ}
    )
    wire = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def ask(path: str, body: dict[str, Any]) -> dict[str, Any]:
        wire.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer: dict[str, Any] = json.loads(wire.getresponse().read())
        if "error" in answer:
            raise SystemExit(f"AgentGym's {world} server: {answer['error']}")
        return answer

    try:
        for _ in range(600):
            try:
                wire.connect()
                break
            except OSError:
                time.sleep(0.1)
        wire.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        number = ask("/create", {})["id"]

        def reset(index: int) -> str:
            return str(ask("/reset", {"id": number, "data_idx": index})["observation"])

        def step(action: str) -> tuple[str, bool]:
            answer = ask("/step", {"id": number, "action": action})
            return str(answer["observation"]), bool(answer["done"])

        yield Side(reset, step, lambda: time.process_time_ns() + cpu_of(server.pid))
    finally:
        wire.close()
        server.terminate()
        server.wait(20)


def babyai_action(shown: str, rng: Random) -> str:
    """Any of the actions an observation lists, ours or theirs."""
    if "Available actions: [" in shown:
        return rng.choice(re.findall(r'"([^"]+)"', shown.rpartition("Available actions: [")[2]))
    return rng.choice(shown.rpartition("You can: ")[2].rstrip(".").split(", "))


def textcraft_action(recipes: list[str], rng: Random) -> str:
    recipe = rng.choice(recipes)
    if rng.random() < 0.5:
        return recipe
    return f"get {rng.choice(recipe.partition(' using ')[2].split(', '))}"


def play(side: Side, world: str, index: int, rng: Random) -> tuple[Spent, Spent]:
    """An episode: what its reset took, and its steps."""
    cpu, clock = side.cpu(), time.perf_counter_ns()
    shown = side.reset(index)
    reset = Spent(1, time.perf_counter_ns() - clock, side.cpu() - cpu)
    recipes = re.findall(r"^craft [0-9].* using [^(\n]+", shown, re.M)
    steps = Spent()
    for _ in range(TURNS):
        action = babyai_action(shown, rng) if world == "babyai" else textcraft_action(recipes, rng).strip()
        cpu, clock = side.cpu(), time.perf_counter_ns()
        shown, over = side.step(action)
        steps = Spent(steps.calls + 1, steps.clock + time.perf_counter_ns() - clock, steps.cpu + side.cpu() - cpu)
        if over:
            break
    return reset, steps


def summed(parts: list[Spent]) -> Spent:
    return Spent(*map(sum, zip(*parts, strict=True)))


def compare(world: str, env_id: str, checkout: Path, python: str, rounds: int) -> dict[str, float]:
    """Rates of both sides, and the median over rounds of how much less processor time a call of ours takes."""
    mine, rng = ours(env_id), Random(0)
    found: dict[str, list[float]] = {}
    with theirs(world, checkout, python) as other:
        for side in (mine, other):
            play(side, world, 0, rng)  # what happens once does not count
        for number in range(rounds):
            spent = {}
            for name, side in (("their ", other), ("", mine)):
                played = [play(side, world, number * 40 + index, rng) for index in range(40)]
                spent[f"{name}resets"] = summed([reset for reset, _ in played])
                spent[f"{name}steps"] = summed([steps for _, steps in played])
            for name, part in spent.items():
                found.setdefault(name, []).append(part.calls / part.clock * 1e9)
            for what in ("resets", "steps"):
                one, two = spent[f"their {what}"], spent[what]
                found.setdefault(f"{what} ratio", []).append((one.cpu / one.calls) / (two.cpu / two.calls))
    return {name: median(values) for name, values in found.items()}


def peer_python() -> str:
    if not (PEER / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
        subprocess.run([PEER / "bin" / "python", "-m", "pip", "install", "--quiet", *NEEDS], check=True)
    return str(PEER / "bin" / "python")


def budgets(levels: list[str], episodes: int) -> None:
    """For each BabyAI level: how many turns the expert needs, and how often the players succeed."""
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
        print(f"{level:24} {rates}; turns of the expert: median {median(turns):g}, at most {max(turns)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--agentgym", type=Path, default=os.environ.get("AGENTGYM"), help="a checkout of AgentGym")
    parser.add_argument("--python", help="the interpreter for its servers")
    parser.add_argument("--rounds", type=int, default=5, help="of 40 episodes a side")
    parser.add_argument("--worlds", nargs="*", default=["textcraft", "babyai"])
    parser.add_argument("--budgets", type=int, help="instead: episodes of each BabyAI level, by both players")
    parser.add_argument("--levels", nargs="*", default=list(LEVELS))
    args = parser.parse_args()
    if args.budgets:
        budgets(args.levels, args.budgets)
        return
    if args.agentgym is None:
        print("AgentGym's servers are on no index: give a checkout with --agentgym or AGENTGYM; nothing was measured")
        return
    python = args.python or peer_python()
    ids = {"textcraft": "textcraft:Depth2-v0", "babyai": "babyai:All-v0"}
    for world in args.worlds:
        found = compare(world, ids[world], Path(args.agentgym), python, args.rounds)
        for what in ("steps", "resets"):
            print(
                f"{world:10} {what:7} {found[what]:>10,.0f}/s   AgentGym's server {found[f'their {what}']:>8,.0f}/s   "
                f"{found[f'{what} ratio']:.1f}x less processor time"
            )


if __name__ == "__main__":
    main()
