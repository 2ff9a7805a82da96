"""Compare Palestra's vector environments with GEM's and with a bare loop.

    python benchmarks/vector.py [--quick] [--json] [--no-gem]

Each implementation ("side") runs in a child process. The sides take turns of a fraction of a second, so that other load
on the machine affects both. Reported ratios are medians over the turns. The measurements are:

- cheap: GuessTheNumber in lockstep with 64 and 1,024 envs. The range and the turn limit are so large that episodes
  hardly ever end. The result is steps per second of CPU time in the side's process, which excludes other processes and
  GEM's waiting threads.
- short: the same measurement with GuessTheNumber-v0-hard, where episodes have 6.6 turns on average, so that resets take
  half of the time. Palestra seeds a generator for each episode; GEM continues to use the previous generator.
- slow: 64 envs, one of which sleeps 50 ms per step. GEM supports only lockstep; Palestra uses `send` and `recv`.
- busy: 64 envs that compute for 1 ms per step, in two worker processes or in one thread. The time is the
  busier worker's CPU time plus the parent's, an upper bound on the wall time with two free cores.
- transcripts: the number of different transcripts in eight runs with the same seed, over all backends.
- faults: 10,000 steps, of which 1% raise an exception, 0.1% hang and 0.1% exit their process.

GEM (`pip install gem-llm==0.1.0`) is installed into a separate virtual environment, .cache/gem-venv. The exit code is
1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

from sides import Child, SideFailed, gem_python

HERE = Path(__file__).resolve().parent
SIZES = (64, 1024)
GROUPS = ["cheap", "short", "slow", "busy"]

# Comparisons, each with the minimum ratio of Palestra's rate to the other implementation's rate.
BARS = {
    **{f"{group} {n}: sync / bare loop": 0.8 for group in ("cheap", "short") for n in SIZES},
    **{f"{group} {n}: sync / GEM sync": 1.5 for group in ("cheap", "short") for n in SIZES},
    **{f"{group} {n}: sync / GEM async": 5.0 for group in ("cheap", "short") for n in SIZES},
    "slow: thread / GEM async": 30.0,
    "busy: process / sync": 1.8,
}


def _side(python: str, name: str) -> Child:
    return Child(python, "vector_side.py", name, env={**os.environ, "PYTHONHASHSEED": "0"}, quiet=True)


Job = tuple[str, str, dict[str, Any]]  # side, command, arguments


def take_turns(jobs: dict[str, Job], sides: dict[str, Child], turns: int, seconds: float) -> dict[str, list[float]]:
    """Run every job once per turn, in rotating order; return each job's steps per second in every turn."""
    rates: dict[str, list[float]] = {name: [] for name in jobs}
    names = list(jobs)
    for turn in range(-1, turns):  # the first turn is a warm-up
        at = turn % len(names)
        for name in names[at:] + names[:at]:
            side, command, arguments = jobs[name]
            rate = sides[side].request(command, seconds=seconds, **arguments)
            if turn >= 0:
                rates[name].append(rate)
    return rates


def jobs_of(groups: list[str], with_gem: bool) -> dict[str, dict[str, Job]]:
    jobs: dict[str, dict[str, Job]] = {}
    for group, n in [(group, n) for n in SIZES for group in ("cheap", "short")]:
        more = {"envs": n, "long": group == "cheap"}
        jobs[f"{group} {n}"] = {
            "bare loop": ("ours", "cheap", {"backend": "bare", **more}),
            "sync": ("ours", "cheap", {"backend": "sync", **more}),
            "thread": ("ours", "cheap", {"backend": "thread", **more}),
            "GEM sync": ("gem", "cheap", {"backend": "sync", **more}),
            "GEM async": ("gem", "cheap", {"backend": "async", **more}),
        }
    jobs["slow"] = {
        "thread": ("ours", "slow", {"backend": "thread"}),
        "process": ("ours", "slow", {"backend": "process"}),
        "GEM async": ("gem", "slow", {"backend": "async"}),
    }
    jobs["busy"] = {
        "sync": ("ours", "busy", {"backend": "sync", "envs": 64}),
        "process": ("ours", "busy", {"backend": "process", "envs": 64}),
    }
    return {
        group: {name: job for name, job in jobs[group].items() if with_gem or job[0] != "gem"}
        for group in jobs
        if any(group.startswith(wanted) for wanted in groups)
    }


def ratios_of(group: str, rates: dict[str, list[float]]) -> dict[str, float]:
    """Return the median ratio of each Palestra backend's rate to each other implementation's."""
    ratios = {}
    for name, ours in rates.items():
        for other, theirs in rates.items():
            if other != name and not name.startswith(("GEM", "bare")) and other.startswith(("GEM", "bare", "sync")):
                ratios[f"{group}: {name} / {other}"] = median(a / b for a, b in zip(ours, theirs, strict=True))
    return ratios


def count_transcripts(sides: dict[str, Child], runs: int) -> dict[str, Any]:
    ours = {
        backend: sides["ours"].request("transcripts", backend=backend, runs=runs)
        for backend in ("sync", "thread", "process")
    }
    counts: dict[str, Any] = {"ours": len({text for texts in ours.values() for text in texts.split()})}
    if "gem" in sides:
        counts["GEM async"] = sides["gem"].request("transcripts", backend="async", runs=runs)
    return counts


def missed_bars(report: dict[str, Any]) -> list[str]:
    """Return a description of every target that is missed."""
    ratios = report["ratios"]
    missed = [
        f"{name} is {ratios[name]:.2f}; required: {bar}" for name, bar in BARS.items() if ratios.get(name, bar) < bar
    ]
    if report["transcripts"]["ours"] != 1:
        missed.append(f"identical runs gave {report['transcripts']['ours']} different transcripts")
    faults = report["faults"]
    if not faults["steps"] == faults["correct"] == faults["requested"]:
        missed.append("faults: {correct} of {requested} results are correct, {steps} were received".format(**faults))
    return missed


def show(report: dict[str, Any]) -> None:
    for group, rates in report["rates"].items():
        print(group)
        for name, rate in rates.items():
            print(f"  {name:12}{rate:12,.0f} env-steps/s")
    print()
    for name, ratio in report["ratios"].items():
        bar = f"at least {BARS[name]}" if name in BARS else ""
        print(f"{name:36}{ratio:9.2f}   {bar}")
    print(f"\ndifferent transcripts of identical runs: {report['transcripts']}")
    summary = "faults: {correct} of {requested} results are correct, {steps} were received, in {seconds:.1f} s"
    print(
        summary.format(**report["faults"]),
        "- failures:",
        {k: report["faults"][k] for k in ("raised", "deadline", "died")},
    )
    for message in report["missed"]:
        print(f"MISSED  {message}")
    print("all targets are met" if not report["missed"] else f"{len(report['missed'])} targets are missed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", nargs="+", default=GROUPS, choices=GROUPS, help="Groups to measure.")
    parser.add_argument("--turns", type=int, default=20, help="Number of turns per job (default 20).")
    parser.add_argument("--seconds", type=float, default=0.1, help="Seconds per job and turn (default 0.1).")
    parser.add_argument("--quick", action="store_true", help="Run one short turn and 500 steps with faults.")
    parser.add_argument("--json", action="store_true", help="Print all measurements as JSON.")
    parser.add_argument("--no-gem", action="store_true", help="Measure only Palestra; needs no network.")
    parser.add_argument(
        "--gem-python", default=os.environ.get("GEM_PYTHON"), help="Python interpreter with gem-llm installed."
    )
    args = parser.parse_args()
    turns, seconds = (1, 0.02) if args.quick else (args.turns, args.seconds)
    sides = {"ours": _side(sys.executable, "ours")}
    if not args.no_gem:
        sides["gem"] = _side(args.gem_python or gem_python(), "gem")
    report: dict[str, Any] = {"rates": {}, "ratios": {}}
    try:
        for group, jobs in jobs_of(args.only, "gem" in sides).items():
            rates = take_turns(jobs, sides, turns, seconds)
            report["rates"][group] = {name: median(values) for name, values in rates.items()}
            report["ratios"].update(ratios_of(group, rates))
        report["transcripts"] = count_transcripts(sides, 2 if args.quick else 8)
        steps = 500 if args.quick else 10_000
        report["faults"] = {"requested": steps, **sides["ours"].request("faults", steps=steps, seed=2)}
    except SideFailed as err:
        print(f"{err.args[0]} failed: {err.args[1]}", file=sys.stderr)
        return 2
    finally:
        for side in sides.values():
            side.close()
    report["missed"] = missed_bars(report)
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        show(report)
    return 1 if report["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
