"""Compare Palestra's Python tool, which is isolated, with GEM's, which is not, on the same program.

    python benchmarks/tools.py [--quick] [--calls 10000] [--no-gem] [--json]

Each implementation ("side") runs in a child process. The sides take turns, so that other load on the machine affects
both, and each side times its own calls with `print(1+1)` and checks the result. Each reported number is the median over
the turns. GEM is called from 64 threads, as in its vector environments, and Palestra from 64 asyncio tasks. GEM is
installed in .cache/gem-venv.

Targets: 4 times GEM's calls per second with 64 concurrent callers, a quarter of GEM's median latency for one caller, a
session cell within 2 ms, the first call after start-up within 1.5 s, and no growth over `--calls` calls (no additional
processes or open files, and at most 5% more memory). Exits with 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from sides import Child, first_on_path, gem_python

HERE = Path(__file__).resolve().parent
CONCURRENT = 64


def _side(python: str, name: str) -> Child:
    return Child(python, "tools_side.py", name, env=first_on_path(python))


def measure(ours: Child, gem: Child | None, *, turns: int, calls: int) -> dict[str, Any]:
    sides = [ours] if gem is None else [ours, gem]
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    times: dict[str, list[float]] = {side.name: [] for side in sides}
    for side in sides:
        side.request("latency", calls=5)
    for _ in range(turns):
        for side in sides:  # GEM gets fewer calls, so that the turns of both sides take about the same time
            times[side.name].append(side.request("latency", calls=100 if side is ours else 20))
        for side in sides:
            rates[side.name].append(
                side.request("throughput", concurrent=CONCURRENT, calls=calls if side is ours else calls // 5)
            )
    figures: dict[str, Any] = {
        side.name: {
            "calls_per_s": median(rates[side.name]),
            "latency_ms": median(times[side.name]),
            "first_s": side.request("first"),
        }
        for side in sides
    }
    figures["ours"]["cell_ms"] = median(ours.request("cell", calls=200) for _ in range(turns))
    return figures


def missed_bars(figures: dict[str, Any]) -> list[str]:
    ours, gem = figures["ours"], figures.get("gem")
    missed = []
    if gem is not None:
        if ours["calls_per_s"] < 4 * gem["calls_per_s"]:
            missed.append(f"{ours['calls_per_s'] / gem['calls_per_s']:.1f}x GEM's calls per second; the target is 4x")
        if 4 * ours["latency_ms"] > gem["latency_ms"]:
            missed.append(f"{gem['latency_ms'] / ours['latency_ms']:.1f}x lower latency than GEM's; the target is 4x")
    if ours["cell_ms"] >= 2:
        missed.append(f"a session cell takes {ours['cell_ms']:.2f} ms; the target is 2")
    if ours["first_s"] >= 1.5:
        missed.append(f"the first call takes {ours['first_s']:.2f} s; the target is 1.5")
    growth = figures.get("growth")
    if growth is not None:
        before, after = growth["before"], growth["after"]
        missed += [
            f"{name} grew from {before[name]} to {after[name]}" for name in ("files",) if after[name] > before[name]
        ]
        if after["processes"] > before["processes"] + 8:  # the number of idle interpreters varies
            missed.append(f"processes grew from {before['processes']} to {after['processes']}")
        missed += [
            f"{name} grew from {before[name]:.1f} to {after[name]:.1f}"
            for name in ("own_mb", "template_mb")
            if after[name] > 1.05 * before[name]
        ]
    return missed


def show(figures: dict[str, Any], missed: list[str]) -> None:
    ours, gem = figures["ours"], figures.get("gem")
    print(f"{'print(1+1)':<34}{'Palestra, isolated':>20}{'GEM, unisolated':>18}{'ratio':>8}")
    for name, key, better in (
        (f"calls per second, {CONCURRENT} concurrent", "calls_per_s", "more"),
        ("latency of one caller, ms", "latency_ms", "less"),
        ("first call after start-up, s", "first_s", "less"),
    ):
        theirs = ratio = ""
        if gem is not None:
            theirs = f"{gem[key]:.2f}"
            ratio = f"{ours[key] / gem[key] if better == 'more' else gem[key] / ours[key]:.1f}x"
        print(f"{name:<34}{ours[key]:>20.2f}{theirs:>18}{ratio:>8}")
    print(f"{'cell of a session, ms':<34}{ours['cell_ms']:>20.3f}")
    if "growth" in figures:
        growth = figures["growth"]
        print(f"\nafter {growth['calls']} calls ({growth['calls'] / growth['seconds']:.0f} per second, 16 concurrent):")
        for name, value in growth["before"].items():
            print(f"  {name:<12} {value:.1f} -> {growth['after'][name]:.1f}")
    print("\nall targets are met" if not missed else "\nmissed: " + "; ".join(missed))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="Run one short turn without the long run.")
    parser.add_argument("--calls", type=int, default=10_000, help="Number of calls in the long run (default: 10000).")
    parser.add_argument("--no-gem", action="store_true", help="Measure only Palestra.")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    ours = _side(sys.executable, "ours")
    gem = None if args.no_gem else _side(gem_python(), "gem")
    try:
        figures = measure(ours, gem, turns=1 if args.quick else 7, calls=30 if args.quick else 500)
        if not args.quick:
            figures["growth"] = ours.request("growth", calls=args.calls)
    finally:
        for side in (ours, gem):
            if side is not None:
                side.close()
    missed = missed_bars(figures)
    if args.json:
        print(json.dumps({**figures, "missed": missed}, indent=2))
    else:
        show(figures, missed)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
