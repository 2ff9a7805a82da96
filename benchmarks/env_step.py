"""Palestra's games against GEM's: the same ids, seeds and action strings, in one run, as ratios.

    python benchmarks/env_step.py [--games Sudoku Wordle] [--quick] [--json]

Two child processes, one a side, work in turns of a fraction of a second, so that whatever else the machine does falls
on both; each times its own calls. A figure is the median of a turn, in the side's best turn. The actions are those
of Palestra's random player and, on every fourth seed, its expert; a side that says the episode is over goes on with
the next seed, and resets are not in the step figures.

GEM (`pip install gem-llm==0.1.0`) gets a virtual environment of its own in .cache/gem-venv. Its word games read NLTK's
corpora; they are given Palestra's words in that place, 850 common ones and all the real ones, no more than NLTK has.
Its constructors also reset, so its figure for make holds a reset. Exits 1 where a bar is missed.
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
SLICES = 20  # turns a side takes for each figure

# A child's ru_maxrss begins at its parent's, so Linux is asked for the peak since exec.
IMPORT = """
import time
began = time.process_time()
{}
took = time.process_time() - began
try:
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
except OSError:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
print(took * 1e3, peak)
"""


def write_words(folder: Path) -> None:
    """Palestra's words as NLTK's corpus `words`."""
    from palestra.envs.games import words

    lengths = range(words.SHORTEST, words.LONGEST + 1)
    common = [word for length in lengths for word in words.common(length)]
    corpus = folder / "corpora" / "words"
    corpus.mkdir(parents=True)
    (corpus / "en-basic").write_text("\n".join(common[:: max(1, len(common) // 850)]))
    (corpus / "en").write_text("\n".join(word for length in lengths for word in sorted(words.real(length))))


def compare(env_id: str, ours: Child, gem: Child | None, *, ns: int, seeds: int) -> dict[str, Any]:
    """Every figure of one id; GEM's are absent without it."""
    episodes = ours.ask("episodes_of", env_id=env_id, seeds=seeds)
    sides = {"ours": ours} if gem is None else {"ours": ours, "gem": gem}
    slow = {name: side.ask("load", env_id=env_id, episodes=episodes)["slow"] for name, side in sides.items()}
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for turn in range(SLICES):
        for name, side in sorted(sides.items(), reverse=turn % 2 == 1):
            done = {"step": side.ask("step", ns=ns // SLICES)}
            if turn < 2 or not slow[name]:
                done["reset"] = side.ask("reset", ns=ns // SLICES, most=25)
                done["make"] = side.ask("construct", ns=ns // SLICES, most=10)
            if name == "ours":
                done["fork"] = side.ask("fork", ns=ns // SLICES, most=25)
            turns[name].append(done)
    figures: dict[str, Any] = {name: summary(done) for name, done in turns.items()}
    figures["ours"]["hostile"] = ours.ask("hostile", repeats=3)
    if gem is not None:
        for figure in ("step", "reset", "make"):
            figures[f"{figure}_ratio"] = figures["gem"][f"{figure}_us"] / figures["ours"][f"{figure}_us"]
    return figures


def figures_of(env_id: str, ours: Child, gem: Child | None, *, ns: int, seeds: int) -> dict[str, Any]:
    """As `compare`, where a side may fail: GEM cannot make all of its own ids."""
    try:
        return compare(env_id, ours, gem, ns=ns, seeds=seeds)
    except SideFailed as err:
        side, why = err.args
    if side == "ours":
        return {"error": why}
    return {**figures_of(env_id, ours, None, ns=ns, seeds=seeds), "gem_error": why}


def summary(turns: list[dict[str, Any]]) -> dict[str, float]:
    """The figures of one side from its turns: medians of the best turn, but the 99th percentile of all resets."""
    steps = [turn["step"] for turn in turns]
    resets = [ns for turn in turns for ns in turn.get("reset", ())]
    figures = {
        "step_us": min(step["median"] for step in steps) / 1e3,
        "step_mean_us": min(step["mean"] for step in steps) / 1e3,
        "steps": sum(step["steps"] for step in steps),
        "unread": median(step["unread"] for step in steps),
        "reset_p99_us": quantiles(resets, n=100, method="inclusive")[98] / 1e3,
        "resets": len(resets),
    }
    for name in ("reset", "make", "fork"):
        medians = [median(turn[name]) for turn in turns if name in turn]
        if medians:
            figures[f"{name}_us"] = min(medians) / 1e3
    return figures


def import_cost(python: str, statement: str, runs: int) -> dict[str, float]:
    """CPU milliseconds (the best run) and MB (the median) that `statement` costs over bare Python."""

    def run(code: str) -> tuple[float, float]:
        done = subprocess.run([python, "-c", IMPORT.format(code)], capture_output=True, text=True, check=True)
        took, memory = map(float, done.stdout.split()[-2:])
        return took, memory

    run(statement)  # byte code and page cache
    pairs = [(run(statement), run("pass")) for _ in range(runs)]
    return {
        "ms": min(loaded[0] - bare[0] for loaded, bare in pairs),
        "mb": median(loaded[1] - bare[1] for loaded, bare in pairs),
    }


def missed(report: dict[str, Any]) -> list[str]:
    """The bars that are not met, in words."""
    games = report["games"]
    bad = [f"{env_id}: {figures['error']}" for env_id, figures in games.items() if "error" in figures]
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
        bad += [f"{env_id}: {said}" for held, said in bars if not held]
        if "gem_error" in figures and env_id.endswith(VARIANTS):
            bad.append(f"{env_id}: no comparison, as GEM fails in {figures['gem_error']}")
    ratios = [figures["step_ratio"] for figures in games.values() if "step_ratio" in figures]
    if ratios and median(ratios) < 2:
        bad.append(f"the median step is {median(ratios):.2f} times as fast as GEM's, not twice")
    cost = report["import"]["palestra"]
    if cost["ms"] >= 30 or cost["mb"] >= 3:
        bad.append(f"import palestra costs {cost['ms']:.1f} ms and {cost['mb']:.1f} MB")
    return bad


def show(report: dict[str, Any]) -> None:
    print("Times in microseconds, ratios GEM / ours. unread: share of the steps whose action a side could not read.\n")
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
    for said in report["missed"]:
        print(f"MISSED  {said}")
    print("every bar is met" if not report["missed"] else f"{len(report['missed'])} bars are missed")


def _cell(figures: dict[str, float], name: str, width: int, digits: int) -> str:
    return f"{figures[name]:{width}.{digits}f}" if name in figures else f"{'-':>{width}}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--games", nargs="+", metavar="NAME", help="parts of ids, such as Sudoku or Wordle-v0-hard")
    parser.add_argument("--seconds", type=float, default=0.5, help="of steps for every id and side (0.5)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the time, and few seeds")
    parser.add_argument("--json", action="store_true", help="print everything measured as JSON")
    parser.add_argument("--no-gem", action="store_true", help="ours only; needs no network")
    parser.add_argument("--gem-python", default=os.environ.get("GEM_PYTHON"), help="an interpreter that has gem-llm")
    args = parser.parse_args()
    from palestra import list_envs

    theirs = [env_id for env_id in list_envs("game") if "WikiGame" not in env_id]  # gem-llm 0.1.0 has none
    ids = [env_id for env_id in theirs if env_id.rpartition("-v0-")[2] in VARIANTS]
    if args.games:
        ids = [env_id for env_id in list_envs("game") if any(name in env_id for name in args.games)]
    ns = int(args.seconds * 1e9) // (10 if args.quick else 1)
    report: dict[str, Any] = {"games": {}, "import": {}}
    with tempfile.TemporaryDirectory() as folder:
        write_words(Path(folder))
        environ = {**os.environ, "PYTHONHASHSEED": "0", "NLTK_DATA": folder}
        ours, gem = Child(sys.executable, "side.py", "ours", env=environ, quiet=True), None
        report["import"]["palestra"] = import_cost(sys.executable, "import palestra", 3 if args.quick else 11)
        if not args.no_gem:
            python = args.gem_python or gem_python()
            gem = Child(python, "side.py", "gem", env=environ, quiet=True)
            report["import"]["gem"] = import_cost(python, "import gem", 1 if args.quick else 3)
        for env_id in ids:
            report["games"][env_id] = figures_of(env_id, ours, gem, ns=ns, seeds=8 if args.quick else 32)
            if sys.stderr.isatty():
                print(f"{len(report['games'])}/{len(ids)} {env_id}", file=sys.stderr)
        for side in (ours, gem):
            if side is not None:
                side.close()
    report["missed"] = missed(report)
    if args.json:
        print(json.dumps(report, indent=1))
    else:
        show(report)
    return 1 if report["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
