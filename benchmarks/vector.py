"""Palestra's vector envs against GEM's and against a bare loop, in one run, as ratios.

    python benchmarks/vector.py [--quick] [--json] [--no-gem]

Two child processes, one a side, work in turns of a fraction of a second, so that whatever else the machine does falls
on both. A ratio is the median over the turns of what was measured in the same turn. What is measured:

- cheap: GuessTheNumber in lock-step, 64 and 1,024 envs, with numbers and budgets so large that hardly an episode ends,
  by the CPU time of the side's process, so that others' work does not count (nor does it when GEM's threads wait).
- short: the same with GuessTheNumber-v0-hard, whose episodes last 6.6 turns, so that beginning them is half the work;
  Palestra seeds a generator for each, GEM draws on from the last one's.
- slow: 64 of them, one of which sleeps 50 ms a step. GEM knows lock-step alone; ours is driven by send and recv.
- busy: 64 envs that compute for 1 ms a step, on two worker processes against one thread; by CPU time too, that of the
  busier worker and of the parent together, which is what it takes at most where two processors are free.
- transcripts: how many different ones eight runs with the same seed give, on every backend.
- accidents: 10,000 steps, 1% of them raising, 0.1% hanging, 0.1% ending their process.

GEM (`pip install gem-llm==0.1.0`) gets a virtual environment of its own in .cache/gem-venv. Exits 1 where a bar is
missed.
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

# What is compared, and by how much ours must be faster at least.
BARS = {
    **{f"{group} {n}: sync / bare loop": 0.8 for group in ("cheap", "short") for n in SIZES},
    **{f"{group} {n}: sync / GEM sync": 1.5 for group in ("cheap", "short") for n in SIZES},
    **{f"{group} {n}: sync / GEM async": 5.0 for group in ("cheap", "short") for n in SIZES},
    "slow: thread / GEM async": 30.0,
    "busy: process / sync": 1.8,
}


def _side(python: str, name: str) -> Child:
    return Child(python, "vector_side.py", name, env={**os.environ, "PYTHONHASHSEED": "0"}, quiet=True)


Job = tuple[str, str, dict[str, Any]]  # side, what to do, with what


def take_turns(jobs: dict[str, Job], sides: dict[str, Child], turns: int, seconds: float) -> dict[str, list[float]]:
    """Steps a second of every job in every turn; each turn begins with another job."""
    found: dict[str, list[float]] = {name: [] for name in jobs}
    names = list(jobs)
    for turn in range(-1, turns):  # the first one warms up
        at = turn % len(names)
        for name in names[at:] + names[:at]:
            side, do, more = jobs[name]
            rate = sides[side].ask(do, seconds=seconds, **more)
            if turn >= 0:
                found[name].append(rate)
    return found


def jobs_of(groups: list[str], with_gem: bool) -> dict[str, dict[str, Job]]:
    every: dict[str, dict[str, Job]] = {}
    for group, n in [(group, n) for n in SIZES for group in ("cheap", "short")]:
        more = {"envs": n, "long": group == "cheap"}
        every[f"{group} {n}"] = {
            "bare loop": ("ours", "cheap", {"backend": "bare", **more}),
            "sync": ("ours", "cheap", {"backend": "sync", **more}),
            "thread": ("ours", "cheap", {"backend": "thread", **more}),
            "GEM sync": ("gem", "cheap", {"backend": "sync", **more}),
            "GEM async": ("gem", "cheap", {"backend": "async", **more}),
        }
    every["slow"] = {
        "thread": ("ours", "slow", {"backend": "thread"}),
        "process": ("ours", "slow", {"backend": "process"}),
        "GEM async": ("gem", "slow", {"backend": "async"}),
    }
    every["busy"] = {
        "sync": ("ours", "busy", {"backend": "sync", "envs": 64}),
        "process": ("ours", "busy", {"backend": "process", "envs": 64}),
    }
    return {
        group: {name: job for name, job in every[group].items() if with_gem or job[0] != "gem"}
        for group in every
        if any(group.startswith(wanted) for wanted in groups)
    }


def ratios_of(group: str, rates: dict[str, list[float]]) -> dict[str, float]:
    """Ours over every other, for each of our backends."""
    found = {}
    for name, ours in rates.items():
        for other, theirs in rates.items():
            if other != name and not name.startswith(("GEM", "bare")) and other.startswith(("GEM", "bare", "sync")):
                found[f"{group}: {name} / {other}"] = median(a / b for a, b in zip(ours, theirs, strict=True))
    return found


def same_transcripts(sides: dict[str, Child], runs: int) -> dict[str, Any]:
    ours = {
        backend: sides["ours"].ask("transcripts", backend=backend, runs=runs)
        for backend in ("sync", "thread", "process")
    }
    found: dict[str, Any] = {"ours": len({text for texts in ours.values() for text in texts.split()})}
    if "gem" in sides:
        found["GEM async"] = sides["gem"].ask("transcripts", backend="async", runs=runs)
    return found


def missed(report: dict[str, Any]) -> list[str]:
    """The bars that are not met, in words."""
    ratios = report["ratios"]
    bad = [f"{name} is {ratios[name]:.2f}, not {bar}" for name, bar in BARS.items() if ratios.get(name, bar) < bar]
    if report["transcripts"]["ours"] != 1:
        bad.append(f"identical runs gave {report['transcripts']['ours']} different transcripts")
    accidents = report["accidents"]
    if not accidents["steps"] == accidents["right"] == accidents["asked"]:
        bad.append("accidents: {right} of {asked} results are right, {steps} came".format(**accidents))
    return bad


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
    words = "accidents: {right} of {asked} results right, {steps} came, in {seconds:.1f} s"
    print(
        words.format(**report["accidents"]),
        "- failures:",
        {k: report["accidents"][k] for k in ("raised", "deadline", "died")},
    )
    for said in report["missed"]:
        print(f"MISSED  {said}")
    print("every bar is met" if not report["missed"] else f"{len(report['missed'])} bars are missed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", nargs="+", default=GROUPS, choices=GROUPS)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=0.1, help="of every job in every turn (0.1)")
    parser.add_argument("--quick", action="store_true", help="few and short turns, and 1,000 accident-prone steps")
    parser.add_argument("--json", action="store_true", help="print everything measured as JSON")
    parser.add_argument("--no-gem", action="store_true", help="ours only; needs no network")
    parser.add_argument("--gem-python", default=os.environ.get("GEM_PYTHON"), help="an interpreter that has gem-llm")
    args = parser.parse_args()
    turns, seconds = (3, 0.05) if args.quick else (args.turns, args.seconds)
    sides = {"ours": _side(sys.executable, "ours")}
    if not args.no_gem:
        sides["gem"] = _side(args.gem_python or gem_python(), "gem")
    report: dict[str, Any] = {"rates": {}, "ratios": {}}
    try:
        for group, jobs in jobs_of(args.only, "gem" in sides).items():
            rates = take_turns(jobs, sides, turns, seconds)
            report["rates"][group] = {name: median(found) for name, found in rates.items()}
            report["ratios"].update(ratios_of(group, rates))
        report["transcripts"] = same_transcripts(sides, 2 if args.quick else 8)
        steps = 1_000 if args.quick else 10_000
        report["accidents"] = {"asked": steps, **sides["ours"].ask("accidents", steps=steps, seed=2)}
    except SideFailed as err:
        print(f"{err.args[0]} failed: {err.args[1]}", file=sys.stderr)
        return 2
    finally:
        for side in sides.values():
            side.close()
    report["missed"] = missed(report)
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        show(report)
    return 1 if report["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
