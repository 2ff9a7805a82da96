"""Measure rollouts per second against a server that replies immediately: Palestra, verifiers, and plain aiohttp.

    python benchmarks/rollout.py [--quick] [--no-peer] [--json]

The server and each side run in separate processes, and the sides take turns, so that other load on the machine affects
all of them. Every side plays the same conversation of five turns: a guessing game's prompt, five guesses from the
server, and the game's observations. Palestra plays the game through `collect` and keeps the trajectories.
verifiers runs a MultiTurnEnv with its own client and prepared observations. The "bare" side posts a growing list of
messages. Rates and ratios are medians over the rounds.

A second measurement runs only Palestra, with replies that take 0.1 s each. It compares rollouts in which one env in 32
sleeps 0.2 s per step with rollouts without slow envs. The time includes the slow episodes at the end.

verifiers is installed into .cache/verifiers-venv. The exit code is 1 if a required ratio is not reached.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from sides import Child, SideFailed, python_with

HERE = Path(__file__).resolve().parent
PEER_HOME = HERE.parent / ".cache" / "verifiers-venv"
PEER = "verifiers==0.1.14"  # the last version with MultiTurnEnv
CONCURRENCY = 256  # concurrent episodes at which the required ratios apply
REQUIRED = {
    "verifiers": 10.0,
    "bare": 0.4,
    "slow": 0.8,
}  # minimum ratios of Palestra's rate to the other's; "slow" compares Palestra with and without slow envs


@contextmanager
def child(python: str, name: str) -> Iterator[Child]:
    # Remove API keys and proxies: looking up a proxy for every request would dominate the measurement.
    others = ("openai_", "http_proxy", "https_proxy", "all_proxy", "no_proxy")
    environ = {name: value for name, value in os.environ.items() if not name.lower().startswith(others)}
    process = Child(python, "rollout_side.py", name, env={**environ, "HF_HUB_OFFLINE": "1"}, quiet=True)
    try:
        yield process
    except SideFailed as err:
        raise SystemExit(": ".join(err.args)) from err
    finally:
        process.close()


def compare(sides: dict[str, Child], concurrency: int, *, rounds: int, episodes: int) -> dict[str, Any]:
    """Measure the rollouts per second of every side. The sides take turns, with `episodes` episodes per turn."""
    for side in sides.values():
        side.request("rollouts", episodes=16, concurrency=16)  # warm up: imports and caches
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name, side in sorted(sides.items(), reverse=turn % 2 == 1):
            runs[name].append(side.request("rollouts", episodes=episodes, concurrency=concurrency))
    figures: dict[str, Any] = {name: summary(side_runs) for name, side_runs in runs.items()}
    figures["ratios"] = {name: ratio(runs["ours"], side_runs) for name, side_runs in runs.items() if name != "ours"}
    return figures


def slow_envs(ours: Child, *, rounds: int, waves: int) -> dict[str, Any]:
    runs: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for turn in range(rounds):
        for slow in (False, True) if turn % 2 == 0 else (True, False):
            runs[slow].append(
                ours.request("slow", episodes=waves * CONCURRENCY, concurrency=CONCURRENCY, slow_envs=slow)
            )
    return {
        "without": summary(runs[False]),
        "with": summary(runs[True]),
        "ratio": ratio(runs[True], runs[False]),
    }


def summary(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: median(run[name] for run in runs) for name in runs[0]}


def ratio(runs: list[dict[str, float]], others: list[dict[str, float]]) -> float:
    """Return the median over rounds of the ratio between two sides' rates; the load is similar within a round."""
    return median(run["rate"] / other["rate"] for run, other in zip(runs, others, strict=True))


def missed(report: dict[str, Any]) -> list[str]:
    """Return a description of every required ratio that is not reached."""
    messages = []
    for name, value in report["concurrent"][str(CONCURRENCY)]["ratios"].items():
        if value < REQUIRED[name]:
            messages.append(
                f"{value:.2f} times the rollouts of {name} at {CONCURRENCY} episodes; required: {REQUIRED[name]:g}"
            )
    value = report["slow"]["ratio"]
    if value < REQUIRED["slow"]:
        messages.append(f"{value:.2f} times the rollouts with slow envs; required: {REQUIRED['slow']:g}")
    return messages


def show(report: dict[str, Any]) -> None:
    print(f"{'concurrent':>10}  {'side':<10}{'rollouts/s':>11}{'CPU ms each':>13}{'ours / side':>13}")
    for concurrency, figures in report["concurrent"].items():
        for name in ("ours", "verifiers", "bare"):
            if name in figures:
                times = f"{figures['ratios'][name]:13.2f}" if name in figures["ratios"] else ""
                print(
                    f"{concurrency:>10}  {name:<10}{figures[name]['rate']:11.1f}{figures[name]['cpu_ms']:13.2f}{times}"
                )
    slow = report["slow"]
    print(
        f"\n1 env in 32 sleeps 0.2 s per step: {slow['with']['rate']:.1f} rollouts/s; no slow env: "
        f"{slow['without']['rate']:.1f}; ratio {slow['ratio']:.2f}"
    )
    for message in report["missed"]:
        print(f"MISSED  {message}")
    print("all required ratios are reached" if not report["missed"] else f"{len(report['missed'])} ratios are too low")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="Number of measurements per side (default: 3).")
    parser.add_argument("--quick", action="store_true", help="Run only one round with few episodes.")
    parser.add_argument("--no-peer", action="store_true", help="Skip verifiers, which may have to be downloaded.")
    parser.add_argument(
        "--peer-python",
        default=os.environ.get("VERIFIERS_PYTHON"),
        help="Python interpreter in which verifiers is installed.",
    )
    parser.add_argument("--json", action="store_true", help="Print all measurements as JSON.")
    args = parser.parse_args()
    rounds, share = (1, 16) if args.quick else (args.rounds, 1)
    pythons = {"ours": sys.executable, "bare": sys.executable}
    if not args.no_peer:
        pythons["verifiers"] = args.peer_python or python_with(PEER_HOME, PEER)
    report: dict[str, Any] = {"concurrent": {}}
    with ExitStack() as stack:
        server = stack.enter_context(child(sys.executable, "server"))
        url = f"http://127.0.0.1:{server.read_reply('start')}/v1"
        sides = {name: stack.enter_context(child(python, name)) for name, python in pythons.items()}
        messages = sides["ours"].request("conversation")
        for side in sides.values():
            side.request("load", url=url, messages=messages)
        for concurrency, episodes in ((64, 256), (CONCURRENCY, 2 * CONCURRENCY)):
            figures = compare(sides, concurrency, rounds=rounds, episodes=episodes // share)
            report["concurrent"][str(concurrency)] = figures
        report["slow"] = slow_envs(sides["ours"], rounds=rounds, waves=16 // share)
    report["missed"] = missed(report)
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        show(report)
    return 1 if report["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
