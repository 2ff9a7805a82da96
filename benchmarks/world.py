"""The generated world: pages a second, memory, whether bytes are the same, whether its questions can be answered.

    python benchmarks/world.py [--pages N] [--questions K] [--json]

`palestra world` is timed as a process of its own, twice with different hash seeds: wall, CPU, and the most memory it
held; both files must be the same. Then `palestra search-index` over the file, and K questions of every kind, which
the reference solver answers through the search tool alone, each from scratch. Exits 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from hashlib import file_digest
from pathlib import Path
from random import Random
from typing import Any

from palestra.envs.world import QUESTIONS, Solver, World, ask
from palestra.tools.search import SearchTool

BARS = {"wall_s": 60.0, "memory_gb": 2.0}  # at 100,000 pages; at most
SEED = 1


def timed(*command: str, hash_seed: int) -> dict[str, float]:
    """Run `palestra COMMAND` and say what it took."""
    begun = time.perf_counter()
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "palestra", *command],
        {**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)],
    )
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"palestra {' '.join(command)} failed with status {status}")
    wall = time.perf_counter() - begun
    return {"wall_s": wall, "cpu_s": used.ru_utime + used.ru_stime, "memory_gb": used.ru_maxrss * 1024 / 1e9}


def written(folder: Path, pages: int) -> dict[str, Any]:
    """Two runs of `palestra world`, and whether they wrote the same."""
    runs, digests = [], []
    for hash_seed in (1, 4242):
        target = folder / f"world-{hash_seed}.jsonl"
        runs.append(timed("world", f"--pages={pages}", f"--seed={SEED}", f"--out={target}", hash_seed=hash_seed))
        with target.open("rb") as file:
            digests.append(file_digest(file, "sha256").hexdigest())
    figures: dict[str, Any] = {name: max(run[name] for run in runs) for name in runs[0]}
    return {
        **figures,
        "pages_per_s": pages / figures["wall_s"],
        "megabytes": (folder / "world-1.jsonl").stat().st_size / 1e6,
        "sha256": digests[0],
        "identical": len(set(digests)) == 1,
    }


def answered(index: Path, pages: int, questions: int) -> dict[str, Any]:
    """By kind: how many questions the solver got right, after how many searches, in how many milliseconds."""
    tool, world = SearchTool(index), World(SEED, pages)
    found: dict[str, Any] = {}
    for kind in QUESTIONS:
        rng, right, searches = Random(f"benchmark {kind}"), 0, 0
        asked = [ask(world, rng, kind) for _ in range(questions)]
        begun = time.perf_counter()
        for question in asked:
            solver = Solver(lambda query: str(tool.call(query).text))
            right += solver.answer(question.text) == question.answer
            searches += solver.searches
        spent = time.perf_counter() - begun
        found[kind] = {
            "right": right,
            "asked": questions,
            "searches": searches / questions,
            "ms": spent / questions * 1e3,
        }
    return found


def missed(report: dict[str, Any]) -> list[str]:
    """The bars that are not reached, in words."""
    written = report["written"]
    bad = [f"{name} is {written[name]:.2f}, at most {most:g}" for name, most in BARS.items() if written[name] > most]
    if not written["identical"]:
        bad.append("two processes wrote different bytes")
    for kind, figures in report["answered"].items():
        if figures["right"] < figures["asked"]:
            bad.append(f"{kind}: the solver answers {figures['right']} of {figures['asked']}")
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pages", type=int, default=100_000, help="of the world (100000)")
    parser.add_argument("--questions", type=int, default=300, help="of every kind (300)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report: dict[str, Any] = {"pages": args.pages, "written": written(folder, args.pages)}
        index = folder / "world.index"
        source = str(folder / "world-1.jsonl")
        report["index"] = timed("search-index", source, f"--out={index}", hash_seed=1)
        report["answered"] = answered(index, args.pages, args.questions)
    report["missed"] = missed(report)
    if args.json:
        print(json.dumps(report, indent=1))
        return bool(report["missed"])
    made = report["written"]
    print(
        f"{args.pages:,} pages: {made['wall_s']:.1f} s, {made['cpu_s']:.1f} of them on the CPU, "
        f"{made['memory_gb']:.2f} GB of memory, {made['megabytes']:.0f} MB, "
        f"{'the same' if made['identical'] else 'OTHER'} bytes twice"
    )
    print(f"index: {report['index']['wall_s']:.1f} s, {report['index']['memory_gb']:.2f} GB of memory")
    for kind, row in report["answered"].items():
        print(f"{kind:14}{row['right']:5} of {row['asked']}{row['searches']:7.1f} searches{row['ms']:8.1f} ms")
    print("\n".join(["missed:", *report["missed"]]) if report["missed"] else "every bar is met")
    return bool(report["missed"])


if __name__ == "__main__":
    sys.exit(main())
