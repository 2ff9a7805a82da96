"""A million passages: how long an index takes, how much memory, how long a query, and whether the hits are exact.

    python benchmarks/search.py [--passages N] [--no-peer] [--json]

The passages are 100 words each, drawn from 300,000 made-up words and the common English ones as often as in natural
text (Zipf's law), and stand in a JSONL file. `palestra search-index` is timed as a process of its own: wall, CPU, and
the most memory it held. A query is 3 to 8 words of one of the passages; one thread on one core asks for the best ten.
The first hundred queries are answered once more by the definition: one pass over the file, double precision. A hit is
recalled where its exact score is at least that of the tenth exact hit, so that equals may stand for each other.

Then, against the package bm25s (in a virtual environment of its own in .cache/bm25s-venv): a tenth of the passages,
both sides reading the same file and answering the same queries one by one, in turns. Exits 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from palestra.tools.search import Index
from palestra.tools.search.words import STOP_WORDS, analyser, raw_words

HERE = Path(__file__).resolve().parent
PEER_HOME = HERE.parent / ".cache" / "bm25s-venv"
PEER = "bm25s==0.3.16"
BARS = {"wall_s": 600.0, "memory_gb": 4.0, "p50_ms": 10.0}  # at a million passages; at most
LONG, WORDS, TOPK = 100, 300_000, 10
SYLLABLES = ["ba", "de", "ki", "lo", "mu", "ra", "se", "ti", "vo", "za", "ne", "pho", "gri", "sta", "clu"]


def word(number: int) -> str:
    text, number = "", number + len(SYLLABLES)
    while number:
        number, rest = divmod(number, len(SYLLABLES))
        text += SYLLABLES[rest]
    return text


def write_corpus(path: Path, passages: int) -> None:
    rng = np.random.default_rng(0)
    common = sorted(STOP_WORDS)
    words = np.array([*common, *(word(n) for n in range(WORDS - len(common)))], dtype=object)
    odds = 1 / (np.arange(WORDS) + 2.7) ** 1.05
    steps = np.cumsum(odds / odds.sum())
    with path.open("w") as file:
        for start in range(0, passages, 10_000):
            size = min(10_000, passages - start)
            drawn = np.minimum(np.searchsorted(steps, rng.random((size, LONG))), WORDS - 1)
            for row in range(size):
                title, text = words[drawn[row, 0]], " ".join(words[drawn[row]])
                file.write(f'{{"id": "{start + row}", "contents": "\\"{title}\\"\\n{text}"}}\n')


def indexed(corpus: Path, out: Path) -> dict[str, float]:
    begun = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "palestra", "search-index", str(corpus), "--out", str(out)],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    size = sum(file.stat().st_size for file in out.iterdir())
    return {
        "wall_s": time.monotonic() - begun,
        "cpu_s": used.ru_utime + used.ru_stime,
        "memory_gb": used.ru_maxrss * 1024 / 1e9,
        "index_gb": size / 1e9,
    }


def drawn_queries(index: Index, many: int) -> list[str]:
    rng = np.random.default_rng(1)
    queries = []
    for number in rng.integers(0, len(index), many):
        words = index.passage(int(number)).text.split()
        queries.append(" ".join(rng.choice(words, rng.integers(3, 9), replace=False)))
    return queries


def timed(index: Index, queries: list[str]) -> dict[str, float]:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for query in queries[:200]:
        index.search(query, TOPK)
    times, cpu = [], time.process_time()
    for query in queries:
        begun = time.perf_counter()
        index.search(query, TOPK)
        times.append(time.perf_counter() - begun)
    spent = time.process_time() - cpu
    p50, p95, p99 = (1e3 * float(value) for value in np.percentile(times, [50, 95, 99]))
    return {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "mean_cpu_ms": 1e3 * spent / len(queries)}


def recall(index: Index, corpus: Path, queries: list[str]) -> float:
    """Of the ten exact hits of each query, those that the index finds."""
    term_of = analyser("english")
    asked = [Counter(term for w in raw_words(query) if (term := term_of(w)) is not None) for query in queries]
    wanted = {term for counts in asked for term in counts}
    known: dict[str, str | None] = {}
    docs: dict[str, array[int]] = {term: array("i") for term in wanted}
    often: dict[str, array[int]] = {term: array("i") for term in wanted}
    lengths = array("i")
    with corpus.open() as file:
        for number, line in enumerate(file):
            length, found = 0, Counter[str]()
            for w in raw_words(json.loads(line)["contents"]):
                if w not in known:
                    known[w] = term_of(w)
                term = known[w]
                if term is not None:
                    length += 1
                    if term in wanted:
                        found[term] += 1
            lengths.append(length)
            for term, count in found.items():
                docs[term].append(number)
                often[term].append(count)
    sizes = np.frombuffer(lengths, np.intc).astype(np.float64)
    k1, b = index.meta.k1, index.meta.b
    norms = k1 * (1 - b + b * sizes / sizes.mean())
    recalled = total = 0
    for query, counts in zip(queries, asked, strict=True):
        scores = np.zeros(len(sizes))
        for term, times in counts.items():
            where = np.frombuffer(docs[term], np.intc)
            count = np.frombuffer(often[term], np.intc).astype(np.float64)
            rarity = math.log(1 + (len(sizes) - len(where) + 0.5) / (len(where) + 0.5))
            scores[where] += times * rarity * count * (k1 + 1) / (count + norms[where])
        limit = np.sort(scores)[-TOPK]
        due = min(TOPK, int((scores > 0).sum()))
        recalled += min(due, sum(scores[number] >= limit * (1 - 1e-6) for number, _ in index.rank(query, TOPK)))
        total += due
    return recalled / total


def peer_python() -> str:
    python = PEER_HOME / "bin" / "python"
    if not (PEER_HOME / ".installed").exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEER_HOME)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", PEER], check=True, stdout=subprocess.DEVNULL)
        (PEER_HOME / ".installed").touch()
    return str(python)


def compared(folder: Path, passages: int) -> dict[str, Any]:
    """Both sides at a size that the peer holds in memory with ease; three rounds in turns, medians."""
    corpus = folder / "small.jsonl"
    write_corpus(corpus, passages)
    ours_index = folder / "small.index"
    subprocess.run(
        [sys.executable, "-m", "palestra", "search-index", str(corpus), "--out", str(ours_index)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    queries = drawn_queries(Index(ours_index), 300)
    (folder / "queries.json").write_text(json.dumps(queries))
    sides: dict[str, list[dict[str, float]]] = {"ours": [], "bm25s": []}
    for _ in range(3):
        for name, python in (("ours", sys.executable), ("bm25s", peer_python())):
            done = subprocess.run(
                [python, str(HERE / "search_side.py"), name, str(corpus), str(folder / "queries.json"), str(folder)],
                check=True,
                capture_output=True,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            sides[name].append(json.loads(done.stdout.splitlines()[-1]))
    figures = {
        name: {key: float(np.median([round_[key] for round_ in rounds])) for key in rounds[0]}
        for name, rounds in sides.items()
    }
    ratios = {key: figures["bm25s"][key] / figures["ours"][key] for key in figures["ours"]}
    return {"passages": passages, "figures": figures, "theirs_by_ours": ratios}


def missed(report: dict[str, Any]) -> list[str]:
    found = {**report["index"], **report["queries"]}
    wrong = [f"{name} is {found[name]:.2f}, the bar is {bar}" for name, bar in BARS.items() if found[name] > bar]
    return wrong + ([f"recall@{TOPK} is {report['recall']:.4f}, the bar is 1"] if report["recall"] < 1 else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="palestra-search-bench-") as name:
        folder = Path(name)
        write_corpus(folder / "corpus.jsonl", args.passages)
        report: dict[str, Any] = {"passages": args.passages}
        report["index"] = indexed(folder / "corpus.jsonl", folder / "corpus.index")
        index = Index(folder / "corpus.index")
        queries = drawn_queries(index, 1_000)
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        report["queries"] = timed(index, queries)
        if cores:
            os.sched_setaffinity(0, cores)
        report["recall"] = recall(index, folder / "corpus.jsonl", queries[:100])
        if not args.no_peer:
            report["peer"] = compared(folder, max(1_000, args.passages // 10))
    report["missed"] = missed(report)
    if args.json:
        print(json.dumps(report))
    else:
        show(report)
    return bool(report["missed"])


def show(report: dict[str, Any]) -> None:
    made, asked = report["index"], report["queries"]
    print(f"{report['passages']:,} passages of {LONG} words")
    print(
        f"  index   {made['wall_s']:.0f} s ({made['cpu_s']:.0f} s of CPU), {made['memory_gb']:.2f} GB of memory, ",
        end="",
    )
    print(f"{made['index_gb']:.2f} GB on disk")
    print(f"  query   p50 {asked['p50_ms']:.2f} ms, p95 {asked['p95_ms']:.2f}, p99 {asked['p99_ms']:.2f}, ", end="")
    print(f"CPU {asked['mean_cpu_ms']:.2f} ms on average")
    print(f"  recall@{TOPK} against BM25 by its definition: {report['recall']:.4f}")
    if "peer" in report:
        peer = report["peer"]
        print(f"{peer['passages']:,} passages, {PEER} by Palestra (above 1: Palestra takes less)")
        for key, ratio in peer["theirs_by_ours"].items():
            ours, theirs = peer["figures"]["ours"][key], peer["figures"]["bm25s"][key]
            print(f"  {key:<12} {ratio:.2f}   ({theirs:.2f} by {ours:.2f})")
    for line in report["missed"]:
        print(f"MISSED: {line}")


if __name__ == "__main__":
    sys.exit(main())
