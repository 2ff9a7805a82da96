"""Compare the speed of Palestra's and GEM's games with the same ids, seeds and action strings.

    python benchmarks/env_step.py [--games Sudoku Wordle] [--quick] [--json]

Each implementation ("side") runs in a child process. The two processes alternate in slices of a fraction of a second,
so that other load on the machine affects both, and each process measures its own calls. Each reported number is the
median of a side's best slice. The actions come from Palestra's random player and, on every fourth seed, from its
expert. When an episode ends, a side continues with the next seed; resets are not included in the step times.

GEM (`pip install gem-llm==0.1.0`) is installed into a separate virtual environment, .cache/gem-venv. Its word games
read NLTK's corpora, which are replaced by Palestra's lists of 850 common words and all valid words; these lists are
no longer than NLTK's. GEM's constructors also reset, so its time for `make` includes a reset. The exit code is 1 if a
target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from sides import Child, SideFailed, gem_python

HERE = Path(__file__).resolve().parent
VARIANTS = ("easy", "hard")
SLICES = 20  # number of time slices per side and measurement

# On Linux, ru_maxrss of a child starts with the parent's value, so the peak since exec is read from /proc.
IMPORT = """
import time
start = time.process_time()
{}
elapsed = time.process_time() - start
try:
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
except OSError:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(elapsed * 1e3, peak)
"""


def write_words(folder: Path) -> None:
    """Write Palestra's words in the format of NLTK's `words` corpus."""
    from palestra.envs.games import words

    lengths = range(words.SHORTEST, words.LONGEST + 1)
    common = [word for length in lengths for word in words.common(length)]
    corpus = folder / "corpora" / "words"
    corpus.mkdir(parents=True)
    (corpus / "en-basic").write_text("\n".join(common[:: max(1, len(common) // 850)]))
    (corpus / "en").write_text("\n".join(word for length in lengths for word in sorted(words.real(length))))


def compare(env_id: str, ours: Child, gem: Child | None, *, ns: int, seeds: int) -> dict[str, Any]:
    """Return all measurements for one environment; without `gem`, measure only Palestra."""
    episodes = ours.request("episodes_of", env_id=env_id, seeds=seeds)
    sides = {"ours": ours} if gem is None else {"ours": ours, "gem": gem}
    slow = {name: side.request("load", env_id=env_id, episodes=episodes)["slow"] for name, side in sides.items()}
    slices: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for i in range(SLICES):
        for name, side in sorted(sides.items(), reverse=i % 2 == 1):
            times = {"step": side.request("step", ns=ns // SLICES)}
            if i < 2 or not slow[name]:
                times["reset"] = side.request("reset", ns=ns // SLICES, most=25)
                times["make"] = side.request("construct", ns=ns // SLICES, most=10)
            if name == "ours":
                times["fork"] = side.request("fork", ns=ns // SLICES, most=25)
            slices[name].append(times)
    figures: dict[str, Any] = {name: summary(times) for name, times in slices.items()}
    figures["ours"]["hostile"] = ours.request("hostile", repeats=3)
    if gem is not None:
        for figure in ("step", "reset", "make"):
            figures[f"{figure}_ratio"] = figures["gem"][f"{figure}_us"] / figures["ours"][f"{figure}_us"]
    return figures


def figures_of(env_id: str, ours: Child, gem: Child | None, *, ns: int, seeds: int) -> dict[str, Any]:
    """Call `compare`; if a side fails, return its error. GEM fails to create some of its own environments."""
    try:
        return compare(env_id, ours, gem, ns=ns, seeds=seeds)
    except SideFailed as err:
        side, message = err.args
    if side == "ours":
        return {"error": message}
    return {**figures_of(env_id, ours, None, ns=ns, seeds=seeds), "gem_error": message}


def summary(slices: list[dict[str, Any]]) -> dict[str, float]:
    """Return one side's results: the median in the best slice for each call, and the 99th percentile for resets."""
    steps = [times["step"] for times in slices]
    resets = [ns for times in slices for ns in times.get("reset", ())]
    figures = {
        "step_us": min(step["median"] for step in steps) / 1e3,
        "step_mean_us": min(step["mean"] for step in steps) / 1e3,
        "steps": sum(step["steps"] for step in steps),
        "unread": median(step["unread"] for step in steps),
        "reset_p99_us": quantiles(resets, n=100, method="inclusive")[98] / 1e3,
        "resets": len(resets),
    }
    for name in ("reset", "make", "fork"):
        medians = [median(times[name]) for times in slices if name in times]
        if medians:
            figures[f"{name}_us"] = min(medians) / 1e3
    return figures


def import_cost(python: str, statement: str, runs: int) -> dict[str, float]:
    """Return the CPU milliseconds (best run) and MB (median) that `statement` needs in addition to bare Python."""

    def run(code: str) -> tuple[float, float]:
        result = subprocess.run([python, "-c", IMPORT.format(code)], capture_output=True, text=True, check=True)
        elapsed, memory = map(float, result.stdout.split()[-2:])
        return elapsed, memory

    run(statement)  # a first run warms up the byte code and page caches
    pairs = [(run(statement), run("pass")) for _ in range(runs)]
    return {
        "ms": min(loaded[0] - bare[0] for loaded, bare in pairs),
        "mb": median(loaded[1] - bare[1] for loaded, bare in pairs),
    }


def missed_bars(report: dict[str, Any]) -> list[str]:
    """Return a description of every target that is missed."""
    games = report["games"]
    failures = [f"{env_id}: {figures['error']}" for env_id, figures in games.items() if "error" in figures]
    games = {env_id: figures for env_id, figures in games.items() if "error" not in figures}
    for env_id, figures in games.items():
        ours = figures["ours"]
        bars = [
            (
                figures.get("step_ratio", 1.0) >= 1.0,
                f"step is {figures.get('step_ratio', 1.0):.2f} times as fast as GEM's",
            ),
            (ours["make_us"] < 1e3, f"make takes {ours['make_us']:.0f} us"),
            (ours["reset_p99_us"] < 20e3, f"reset takes {ours['reset_p99_us'] / 1e3:.1f} ms at the 99th percentile"),
            (ours["fork_us"] < 50, f"fork takes {ours['fork_us']:.0f} us"),
            (ours["hostile"]["ns"] < 50e6, f"{ours['hostile']['action']} takes {ours['hostile']['ns'] / 1e6:.0f} ms"),
        ]
        failures += [f"{env_id}: {message}" for met, message in bars if not met]
        if "gem_error" in figures and env_id.endswith(VARIANTS):
            failures.append(f"{env_id}: no comparison because GEM fails in {figures['gem_error']}")
    ratios = [figures["step_ratio"] for figures in games.values() if "step_ratio" in figures]
    if ratios and median(ratios) < 2:
        failures.append(f"the median step is {median(ratios):.2f} times as fast as GEM's; required: 2")
    cost = report["import"]["palestra"]
    if cost["ms"] >= 30 or cost["mb"] >= 3:
        failures.append(f"import palestra takes {cost['ms']:.1f} ms and {cost['mb']:.1f} MB")
    return failures


def show(report: dict[str, Any]) -> None:
    print("Times are in microseconds, ratios are GEM / ours, and unread is the fraction of unparsable actions.\n")
    print(
        f"{'':31}{'step':^25}{'unread':^12}{'reset':^34}{'make':^16}{'fork':>6}{'worst':>8}\n"
        f"{'':31}{'ours':>8}{'GEM':>9}{'ratio':>8}{'ours':>6}{'GEM':>6}{'ours':>9}{'p99':>8}{'GEM':>10}{'ratio':>7}"
        f"{'ours':>7}{'GEM':>9}{'':>6}{'ms':>8}"
    )
    for env_id, figures in report["games"].items():
        if "error" in figures:
            print(f"{env_id:31}{figures['error']}")
            continue
        ours, gem = figures["ours"], figures.get("gem", {})
        print(
            f"{env_id:31}{_cell(ours, 'step_us', 8, 2)}{_cell(gem, 'step_us', 9, 2)}"
            f"{_cell(figures, 'step_ratio', 8, 2)}{_cell(ours, 'unread', 6, 2)}{_cell(gem, 'unread', 6, 2)}"
            f"{_cell(ours, 'reset_us', 9, 1)}{_cell(ours, 'reset_p99_us', 8, 0)}{_cell(gem, 'reset_us', 10, 1)}"
            f"{_cell(figures, 'reset_ratio', 7, 1)}{_cell(ours, 'make_us', 7, 1)}{_cell(gem, 'make_us', 9, 0)}"
            f"{_cell(ours, 'fork_us', 6, 1)}{ours['hostile']['ns'] / 1e6:8.2f}"
        )
        if "gem_error" in figures:
            print(f"{'':31}GEM fails in {figures['gem_error']}")
    print()
    for figure in ("step", "reset", "make"):
        ratios = [figures[f"{figure}_ratio"] for figures in report["games"].values() if f"{figure}_ratio" in figures]
        if ratios:
            print(f"{figure}: GEM / ours at least {min(ratios):.2f}, median {median(ratios):.2f}, {len(ratios)} ids")
    for name, cost in report["import"].items():
        print(f"import {name}: {cost['ms']:.1f} ms and {cost['mb']:.2f} MB over bare Python")
    for message in report["missed"]:
        print(f"MISSED  {message}")
    print("all targets are met" if not report["missed"] else f"{len(report['missed'])} targets are missed")


def _cell(figures: dict[str, float], name: str, width: int, digits: int) -> str:
    return f"{figures[name]:{width}.{digits}f}" if name in figures else f"{'-':>{width}}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "--games",
        nargs="+",
        metavar="NAME",
        help="Games to measure, as parts of their ids, for example Sudoku or Wordle-v0-hard.",
    )
    parser.add_argument("--seconds", type=float, default=0.5, help="Seconds of steps per id and side (default 0.5).")
    parser.add_argument("--quick", action="store_true", help="Measure for a tenth of the time, with few seeds.")
    parser.add_argument("--json", action="store_true", help="Print all measurements as JSON.")
    parser.add_argument("--no-gem", action="store_true", help="Measure only Palestra; needs no network.")
    parser.add_argument(
        "--gem-python", default=os.environ.get("GEM_PYTHON"), help="Python interpreter with gem-llm installed."
    )
    args = parser.parse_args()
    from palestra import list_envs

    shared = [env_id for env_id in list_envs("game") if "WikiGame" not in env_id]  # gem-llm 0.1.0 has no WikiGame
    ids = [env_id for env_id in shared if env_id.rpartition("-v0-")[2] in VARIANTS]
    if args.games:
        ids = [env_id for env_id in list_envs("game") if any(name in env_id for name in args.games)]
    ns = int(args.seconds * 1e9) // (10 if args.quick else 1)
    report: dict[str, Any] = {"games": {}, "import": {}}
    with tempfile.TemporaryDirectory() as folder:
        write_words(Path(folder))
        environ = {**os.environ, "PYTHONHASHSEED": "0", "NLTK_DATA": folder}
        ours, gem = Child(sys.executable, "env_step_side.py", "ours", env=environ, quiet=True), None
        report["import"]["palestra"] = import_cost(sys.executable, "import palestra", 3 if args.quick else 11)
        if not args.no_gem:
            python = args.gem_python or gem_python()
            gem = Child(python, "env_step_side.py", "gem", env=environ, quiet=True)
            report["import"]["gem"] = import_cost(python, "import gem", 1 if args.quick else 3)
        for env_id in ids:
            report["games"][env_id] = figures_of(env_id, ours, gem, ns=ns, seeds=8 if args.quick else 32)
            if sys.stderr.isatty():
                print(f"{len(report['games'])}/{len(ids)} {env_id}", file=sys.stderr)
        for side in (ours, gem):
            if side is not None:
                side.close()
    report["missed"] = missed_bars(report)
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        show(report)
    return 1 if report["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
