"""Measure the generated world: pages per second, memory, reproducibility and correctness of the solver's answers.

    python benchmarks/world.py [--pages N] [--questions K] [--json]

Runs `palestra world` twice as a separate process with different hash seeds and records wall time, CPU time and peak
memory; both files must be identical. Then runs `palestra search-index` on the file and lets the reference solver answer
K questions per kind through the search tool, each from scratch. Exits with 1 if a requirement is not met.
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

from palestra.envs.world import QUESTIONS, Solver, World, draw_question
from palestra.tools.search import SearchTool

LIMITS = {"wall_s": 60.0, "memory_gb": 2.0}  # maximum values for 100,000 pages
SEED = 1


def timed(*command: str, hash_seed: int) -> dict[str, float]:
    """Run `palestra COMMAND` and return its wall time, CPU time and peak memory."""
    start = time.perf_counter()
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "palestra", *command],
        {**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)],
    )
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"palestra {' '.join(command)} failed with status {status}")
    wall = time.perf_counter() - start
    return {"wall_s": wall, "cpu_s": used.ru_utime + used.ru_stime, "memory_gb": used.ru_maxrss * 1024 / 1e9}


def measure_generation(folder: Path, pages: int) -> dict[str, Any]:
    """Run `palestra world` twice and compare the files."""
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


def measure_solver(index: Path, pages: int, questions: int) -> dict[str, Any]:
    """Return, by kind, the number of correct answers and the searches and milliseconds per question."""
    tool, world = SearchTool(index), World(SEED, pages)
    results: dict[str, Any] = {}
    for kind in QUESTIONS:
        rng, correct, searches = Random(f"benchmark {kind}"), 0, 0
        drawn = [draw_question(world, rng, kind) for _ in range(questions)]
        start = time.perf_counter()
        for question in drawn:
            solver = Solver(lambda query: str(tool.call(query).text))
            correct += solver.answer(question.text) == question.answer
            searches += solver.searches
        elapsed = time.perf_counter() - start
        results[kind] = {
            "correct": correct,
            "questions": questions,
            "searches": searches / questions,
            "ms": elapsed / questions * 1e3,
        }
    return results


def failures(report: dict[str, Any]) -> list[str]:
    """Return a description of every requirement that is not met."""
    generation = report["generation"]
    bad = [
        f"{name} is {generation[name]:.2f}, the limit is {limit:g}"
        for name, limit in LIMITS.items()
        if generation[name] > limit
    ]
    if not generation["identical"]:
        bad.append("two processes wrote different bytes")
    for kind, figures in report["solver"].items():
        if figures["correct"] < figures["questions"]:
            bad.append(f"{kind}: the solver answered {figures['correct']} of {figures['questions']} correctly")
    return bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pages", type=int, default=100_000, help="Number of pages (default: 100000).")
    parser.add_argument("--questions", type=int, default=300, help="Number of questions per kind (default: 300).")
    parser.add_argument("--json", action="store_true", help="Print the report as JSON.")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report: dict[str, Any] = {"pages": args.pages, "generation": measure_generation(folder, args.pages)}
        index = folder / "world.index"
        source = str(folder / "world-1.jsonl")
        report["index"] = timed("search-index", source, f"--out={index}", hash_seed=1)
        report["solver"] = measure_solver(index, args.pages, args.questions)
    report["failures"] = failures(report)
    if args.json:
        print(json.dumps(report, indent=1))
        return bool(report["failures"])
    generation = report["generation"]
    print(
        f"{args.pages:,} pages: {generation['wall_s']:.1f} s, {generation['cpu_s']:.1f} s CPU, "
        f"{generation['memory_gb']:.2f} GB of memory, {generation['megabytes']:.0f} MB, "
        f"{'identical' if generation['identical'] else 'DIFFERENT'} files"
    )
    print(f"index: {report['index']['wall_s']:.1f} s, {report['index']['memory_gb']:.2f} GB of memory")
    for kind, row in report["solver"].items():
        print(f"{kind:14}{row['correct']:5} of {row['questions']}{row['searches']:7.1f} searches{row['ms']:8.1f} ms")
    print("\n".join(["failed:", *report["failures"]]) if report["failures"] else "all requirements are met")
    return bool(report["failures"])


if __name__ == "__main__":
    sys.exit(main())
