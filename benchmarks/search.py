"""Measure the search index's indexing time, memory, query time and exactness with a million passages.

    python benchmarks/search.py [--passages N] [--no-peers] [--json]

The passages have 100 words each, sampled from 300,000 invented words and common English words with the frequencies of
natural text (Zipf's law), in a JSONL file. `palestra search-index` is timed as a separate process: wall time, CPU time
and peak memory. A query consists of 3 to 8 words from a passage; one thread on one core requests the ten best passages.
The first hundred queries are also evaluated by the definition of BM25, with one pass over the file in double precision.
A hit counts as recalled if its exact score is at least the score of the tenth exact hit, so that ties are
interchangeable.

Then Palestra is compared with bm25s and tantivy (in the virtual environment .cache/search-peers-venv) on a tenth of the
passages: all sides read the same file, index the same terms and run the same queries one by one, in turns. Exits with 1
if a target is missed.
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
from palestra.tools.search.analysis import STOP_WORDS, analyser, raw_words

HERE = Path(__file__).resolve().parent
PEER_HOME = HERE.parent / ".cache" / "search-peers-venv"
PEERS = ("bm25s==0.3.16", "tantivy==0.27.0", "PyStemmer==3.1.0")
BARS = {"wall_s": 600.0, "memory_gb": 4.0, "p50_ms": 10.0}  # maximum values with a million passages
TANTIVY_K1, TANTIVY_B = 1.2, 0.75  # tantivy's BM25 parameters, which cannot be changed
WORDS_PER_PASSAGE, WORDS, TOPK = 100, 300_000, 10
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
    frequencies = 1 / (np.arange(WORDS) + 2.7) ** 1.05
    steps = np.cumsum(frequencies / frequencies.sum())
    with path.open("w") as file:
        for start in range(0, passages, 10_000):
            size = min(10_000, passages - start)
            drawn = np.minimum(np.searchsorted(steps, rng.random((size, WORDS_PER_PASSAGE))), WORDS - 1)
            for row in range(size):
                title, text = words[drawn[row, 0]], " ".join(words[drawn[row]])
                file.write(f'{{"id": "{start + row}", "contents": "\\"{title}\\"\\n{text}"}}\n')


def measure_indexing(corpus: Path, out: Path) -> dict[str, float]:
    start = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "palestra", "search-index", str(corpus), "--out", str(out)],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    size = sum(file.stat().st_size for file in out.iterdir())
    return {
        "wall_s": time.monotonic() - start,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory_gb": usage.ru_maxrss * 1024 / 1e9,
        "index_gb": size / 1e9,
    }


def draw_queries(index: Index, count: int) -> list[str]:
    rng = np.random.default_rng(1)
    queries = []
    for number in rng.integers(0, len(index), count):
        words = index.passage(int(number)).text.split()
        queries.append(" ".join(rng.choice(words, rng.integers(3, 9), replace=False)))
    return queries


def measure_queries(index: Index, queries: list[str]) -> dict[str, float]:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for query in queries[:200]:
        index.search(query, TOPK)
    times, cpu = [], time.process_time()
    for query in queries:
        start = time.perf_counter()
        index.search(query, TOPK)
        times.append(time.perf_counter() - start)
    cpu_seconds = time.process_time() - cpu
    p50, p95, p99 = (1e3 * float(value) for value in np.percentile(times, [50, 95, 99]))
    return {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "mean_cpu_ms": 1e3 * cpu_seconds / len(queries)}


def recall(hits: list[list[int]], corpus: Path, queries: list[str], k1: float, b: float) -> float:
    """Return the recall of `hits`: the fraction of the exact top results, over all queries, that they contain."""
    term_of = analyser("english")
    query_terms = [Counter(term for w in raw_words(query) if (term := term_of(w)) is not None) for query in queries]
    wanted = {term for counts in query_terms for term in counts}
    terms: dict[str, str | None] = {}
    docs: dict[str, array[int]] = {term: array("i") for term in wanted}
    frequencies: dict[str, array[int]] = {term: array("i") for term in wanted}
    lengths = array("i")
    with corpus.open() as file:
        for number, line in enumerate(file):
            length, counts = 0, Counter[str]()
            for w in raw_words(json.loads(line)["contents"]):
                if w not in terms:
                    terms[w] = term_of(w)
                term = terms[w]
                if term is not None:
                    length += 1
                    if term in wanted:
                        counts[term] += 1
            lengths.append(length)
            for term, count in counts.items():
                docs[term].append(number)
                frequencies[term].append(count)
    sizes = np.frombuffer(lengths, np.intc).astype(np.float64)
    norms = k1 * (1 - b + b * sizes / sizes.mean())
    recalled = total = 0
    for numbers, counts in zip(hits, query_terms, strict=True):
        scores = np.zeros(len(sizes))
        for term, times in counts.items():
            where = np.frombuffer(docs[term], np.intc)
            frequency = np.frombuffer(frequencies[term], np.intc).astype(np.float64)
            idf = math.log(1 + (len(sizes) - len(where) + 0.5) / (len(where) + 0.5))
            scores[where] += times * idf * frequency * (k1 + 1) / (frequency + norms[where])
        limit = np.sort(scores)[-TOPK]
        due = min(TOPK, int((scores > 0).sum()))
        recalled += min(due, sum(scores[number] >= limit * (1 - 1e-6) for number in numbers))
        total += due
    return recalled / total


def peer_python() -> str:
    python = PEER_HOME / "bin" / "python"
    if not (PEER_HOME / ".installed").exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEER_HOME)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PEERS], check=True, stdout=subprocess.DEVNULL)
        (PEER_HOME / ".installed").touch()
    return str(python)


def compare(folder: Path, passages: int) -> dict[str, Any]:
    """Compare Palestra with its peers on a corpus that fits in memory, and return the medians of three rounds."""
    corpus = folder / "small.jsonl"
    write_corpus(corpus, passages)
    sides = {"palestra": sys.executable, "bm25s": peer_python(), "tantivy": peer_python()}
    queries_path = folder / "queries.json"
    (folder / "search_words.py").write_text(f"STOP_WORDS = {set(STOP_WORDS)!r}\n")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{HERE.parent}:{folder}"}

    def run(action: str, name: str) -> dict[str, Any]:
        command = [sides[name], str(HERE / "search_side.py"), action, name, str(corpus), str(queries_path), str(folder)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result

    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    hits: dict[str, list[list[int]]] = {}
    for _ in range(3):
        for name in sides:
            figures = run("index", name)
            if not queries_path.exists():
                queries_path.write_text(json.dumps(draw_queries(Index(folder / "palestra"), 300)))
            replies = run("query", name)
            hits[name] = replies["hits"]
            rounds[name].append({**figures, **replies["figures"]})
    queries = json.loads(queries_path.read_text())[:100]
    parameters = {"tantivy": (TANTIVY_K1, TANTIVY_B)}
    report = {
        name: {key: float(np.median([figures[key] for figures in measured])) for key in measured[0]}
        for name, measured in rounds.items()
    }
    for name, figures in report.items():
        figures["recall"] = recall(hits[name], corpus, queries, *parameters.get(name, (0.9, 0.4)))
    return {"passages": passages, "figures": report}


def missed_bars(report: dict[str, Any]) -> list[str]:
    figures = {**report["index"], **report["queries"]}
    missed = [
        f"{name} is {figures[name]:.2f}; the target is {bar}" for name, bar in BARS.items() if figures[name] > bar
    ]
    return missed + ([f"recall@{TOPK} is {report['recall']:.4f}; the target is 1"] if report["recall"] < 1 else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="palestra-search-bench-") as name:
        folder = Path(name)
        write_corpus(folder / "corpus.jsonl", args.passages)
        report: dict[str, Any] = {"passages": args.passages}
        report["index"] = measure_indexing(folder / "corpus.jsonl", folder / "corpus.index")
        index = Index(folder / "corpus.index")
        queries = draw_queries(index, 1_000)
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        report["queries"] = measure_queries(index, queries)
        if cores:
            os.sched_setaffinity(0, cores)
        hits = [[number for number, _ in index.rank(query, TOPK)] for query in queries[:100]]
        report["recall"] = recall(hits, folder / "corpus.jsonl", queries[:100], index.meta.k1, index.meta.b)
        if not args.no_peers:
            report["peers"] = compare(folder, max(1_000, args.passages // 10))
    report["missed"] = missed_bars(report)
    if args.json:
        print(json.dumps(report))
    else:
        show(report)
    return bool(report["missed"])


def show(report: dict[str, Any]) -> None:
    indexing, queries = report["index"], report["queries"]
    print(f"{report['passages']:,} passages of {WORDS_PER_PASSAGE} words")
    print(
        f"  index   {indexing['wall_s']:.0f} s ({indexing['cpu_s']:.0f} s of CPU), "
        f"{indexing['memory_gb']:.2f} GB of memory, {indexing['index_gb']:.2f} GB on disk"
    )
    print(
        f"  query   p50 {queries['p50_ms']:.2f} ms, p95 {queries['p95_ms']:.2f}, p99 {queries['p99_ms']:.2f}, "
        f"mean CPU {queries['mean_cpu_ms']:.2f} ms"
    )
    print(f"  recall@{TOPK} relative to exact BM25: {report['recall']:.4f}")
    if "peers" in report:
        sides = report["peers"]["figures"]
        print(f"{report['peers']['passages']:,} passages: value, and ratio to Palestra (Palestra is better above 1)")
        print(f"  {'':<16}" + "".join(f"{name:>20}" for name in sides))
        for key, ours in sides["palestra"].items():
            row = [figures[key] for figures in sides.values()]
            ratios = [ours / value if key == "recall" else value / ours for value in row]
            cells = (f"{value:.3f} ({ratio:.2f})" for value, ratio in zip(row, ratios, strict=True))
            print(f"  {key:<16}" + "".join(f"{cell:>20}" for cell in cells))
    for line in report["missed"]:
        print(f"MISSED: {line}")


if __name__ == "__main__":
    sys.exit(main())
