"""One side of benchmarks/search.py: index a JSONL file, open the index, answer queries one by one; figures as JSON."""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

TOPK = 10


def ours(corpus: Path, folder: Path) -> Callable[[str], Any]:
    from palestra.tools.search import build, read

    build(read([corpus]), folder / "side.ours", overwrite=True)

    def opened() -> Callable[[str], Any]:
        from palestra.tools.search import Index

        index = Index(folder / "side.ours")
        return lambda query: index.search(query, TOPK)

    return opened()


def bm25s(corpus: Path, folder: Path) -> Callable[[str], Any]:
    import bm25s as peer  # type: ignore[import-not-found]  # of the other virtual environment

    texts = [json.loads(line)["contents"] for line in corpus.open()]
    made = peer.BM25(method="lucene", k1=0.9, b=0.4)
    made.index(peer.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)
    shutil.rmtree(folder / "side.bm25s", ignore_errors=True)
    made.save(folder / "side.bm25s", corpus=texts)
    opened = peer.BM25.load(folder / "side.bm25s", load_corpus=True, mmap=True)

    def asked(query: str) -> Any:
        words = peer.tokenize([query], stopwords="en", show_progress=False)
        return opened.retrieve(words, k=TOPK, show_progress=False)

    return asked


def peak_gb() -> float:
    """The most memory this program held; what getrusage tells includes the parent's at the time of the fork."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM")) / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    name, corpus, queries, folder = sys.argv[1:]
    begun = time.process_time()
    ask = {"ours": ours, "bm25s": bm25s}[name](Path(corpus), Path(folder))
    spent = time.process_time() - begun
    memory = peak_gb()
    asked = json.loads(Path(queries).read_text())
    for query in asked[:50]:
        ask(query)
    times = []
    for query in asked:
        start = time.perf_counter()
        ask(query)
        times.append(time.perf_counter() - start)
    print(json.dumps({"index_cpu_s": spent, "memory_gb": memory, "query_p50_ms": 1e3 * median(times)}))


if __name__ == "__main__":
    main()
