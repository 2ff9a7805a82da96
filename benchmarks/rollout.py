"""Rollouts a second against a server that answers at once: Palestra, the package verifiers, and aiohttp alone.

    python benchmarks/rollout.py [--quick] [--no-peer] [--json]

Each side and the server is a process of its own, and the sides take turns, so that whatever else the machine does falls
on all of them. All play the same conversation of five turns: a guessing game's prompt, five guesses from the server,
the game's answers. Palestra plays the game itself through `collect` and keeps the trajectories; verifiers runs a
MultiTurnEnv with its own client, the game's answers given; the bare side posts a growing list of messages, no more.
A ratio is the median of the rounds' ratios, a rate the median of the rounds.

Then Palestra alone, with replies that take 0.1 s each: one env in 32 sleeps 0.2 s at every step, or none does. Counted
are all episodes until the last is over, so the slow ones at the end count as well.

verifiers gets a virtual environment of its own in .cache/verifiers-venv. Exits 1 where a bar is missed.
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
PEER = "verifiers==0.1.14"  # the last with MultiTurnEnv
BARRED = 256  # conversations at once at which the bars hold
BARS = {"verifiers": 10.0, "bare": 0.4, "slow": 0.8}  # ours by theirs; with slow envs by without


@contextmanager
def child(python: str, name: str) -> Iterator[Child]:
    # Keys and proxies are for other servers; a look-up of proxies for every request would be all that is measured.
    others = ("openai_", "http_proxy", "https_proxy", "all_proxy", "no_proxy")
    environ = {name: value for name, value in os.environ.items() if not name.lower().startswith(others)}
    made = Child(python, "rollout_side.py", name, env={**environ, "HF_HUB_OFFLINE": "1"}, quiet=True)
    try:
        yield made
    except SideFailed as err:
        raise SystemExit(": ".join(err.args)) from err
    finally:
        made.close()


def compare(sides: dict[str, Child], concurrency: int, *, rounds: int, episodes: int) -> dict[str, Any]:
    """Rollouts a second of every side, in turns of `episodes`: starting and ending weigh the same on each."""
    for side in sides.values():
        side.request("rollouts", episodes=16, concurrency=16)  # imports, caches
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name, side in sorted(sides.items(), reverse=turn % 2 == 1):
            runs[name].append(side.request("rollouts", episodes=episodes, concurrency=concurrency))
    figures: dict[str, Any] = {name: summary(done) for name, done in runs.items()}
    figures["ratios"] = {name: ratio(runs["ours"], done) for name, done in runs.items() if name != "ours"}
    return figures


def slow_envs(ours: Child, *, rounds: int, waves: int) -> dict[str, Any]:
    runs: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for turn in range(rounds):
        for naps in (False, True) if turn % 2 == 0 else (True, False):
            runs[naps].append(ours.request("slow", episodes=waves * BARRED, concurrency=BARRED, naps=naps))
    return {
        "without": summary(runs[False]),
        "with": summary(runs[True]),
        "ratio": ratio(runs[True], runs[False]),
    }


def summary(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: median(run[name] for run in runs) for name in runs[0]}


def ratio(runs: list[dict[str, float]], others: list[dict[str, float]]) -> float:
    """Of the rates, round by round: a machine that slows down does so to both of a round."""
    return median(run["rate"] / other["rate"] for run, other in zip(runs, others, strict=True))


def missed(report: dict[str, Any]) -> list[str]:
    """The bars that are not met, in words."""
    bad = []
    for name, found in report["concurrent"][str(BARRED)]["ratios"].items():
        if found < BARS[name]:
            bad.append(f"{found:.2f} times the rollouts of {name} at {BARRED} concurrent, not {BARS[name]:g} times")
    found = report["slow"]["ratio"]
    if found < BARS["slow"]:
        bad.append(f"with slow envs {found:.2f} of the rollouts without, not {BARS['slow']:g}")
    return bad


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
        f"\n1 env in 32 sleeping 0.2 s a step: {slow['with']['rate']:.1f} rollouts/s, none: "
        f"{slow['without']['rate']:.1f}, ratio {slow['ratio']:.2f}"
    )
    for said in report["missed"]:
        print(f"MISSED  {said}")
    print("every bar is met" if not report["missed"] else f"{len(report['missed'])} bars are missed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3, help="turns that each side takes (3)")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--no-peer", action="store_true", help="without verifiers; needs no network")
    parser.add_argument("--peer-python", default=os.environ.get("VERIFIERS_PYTHON"), help="one that has verifiers")
    parser.add_argument("--json", action="store_true", help="print everything measured as JSON")
    args = parser.parse_args()
    rounds = 1 if args.quick else args.rounds
    pythons = {"ours": sys.executable, "bare": sys.executable}
    if not args.no_peer:
        pythons["verifiers"] = args.peer_python or python_with(PEER_HOME, PEER)
    report: dict[str, Any] = {"concurrent": {}}
    with ExitStack() as stack:
        server = stack.enter_context(child(sys.executable, "server"))
        url = f"http://127.0.0.1:{server.read_reply('start')}/v1"
        sides = {name: stack.enter_context(child(python, name)) for name, python in pythons.items()}
        said = sides["ours"].request("conversation")
        for side in sides.values():
            side.request("load", url=url, said=said)
        for concurrency, episodes in ((64, 256), (BARRED, 2 * BARRED)):
            report["concurrent"][str(concurrency)] = compare(sides, concurrency, rounds=rounds, episodes=episodes)
        report["slow"] = slow_envs(sides["ours"], rounds=rounds, waves=16)
    report["missed"] = missed(report)
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        show(report)
    return 1 if report["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
