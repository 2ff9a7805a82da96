"""One side of benchmarks/search.py: index a JSONL file, open the index, run queries, print measurements as JSON.

    python search_side.py NAME CORPUS QUERIES FOLDER

All sides index the same terms: lower-case words without stop words, reduced by Porter's stemmer.
"""

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
Search = Callable[[str], list[int]]  # query -> indices of the best passages


def index_palestra(corpus: Path, folder: Path) -> None:
    from palestra.tools.search import build, read

    build(read([corpus]), folder / "palestra", overwrite=True)


def open_palestra(folder: Path) -> Search:
    from palestra.tools.search import Index

    index = Index(folder / "palestra")
    return lambda query: [int(hit.passage.id) for hit in index.search(query, TOPK)]


def index_bm25s(corpus: Path, folder: Path) -> None:
    import bm25s  # type: ignore[import-not-found]  # installed in the peers' virtual environment

    texts = [json.loads(line)["contents"] for line in corpus.open()]
    retriever = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    retriever.index(_bm25s_tokens(texts), show_progress=False)
    shutil.rmtree(folder / "bm25s", ignore_errors=True)
    retriever.save(folder / "bm25s", corpus=texts)


def open_bm25s(folder: Path) -> Search:
    import bm25s

    retriever = bm25s.BM25.load(folder / "bm25s", load_corpus=True, mmap=True)

    def search(query: str) -> list[int]:
        documents, _ = retriever.retrieve(_bm25s_tokens([query]), k=TOPK, show_progress=False)
        return [document["id"] for document in documents[0]]

    return search


def _bm25s_tokens(texts: list[str]) -> Any:
    import bm25s
    import Stemmer  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from search_words import STOP_WORDS  # type: ignore[import-not-found]

    return bm25s.tokenize(
        texts,
        stopwords=sorted(STOP_WORDS),
        stemmer=Stemmer.Stemmer("porter"),
        token_pattern=r"[a-z0-9]+",
        show_progress=False,
    )


def index_tantivy(corpus: Path, folder: Path) -> None:
    import tantivy  # type: ignore[import-not-found]

    shutil.rmtree(folder / "tantivy", ignore_errors=True)
    (folder / "tantivy").mkdir()
    index = tantivy.Index(_tantivy_schema(tantivy), path=str(folder / "tantivy"))
    writer = index.writer(heap_size=200_000_000, num_threads=1)
    analyse = _analyser()
    for number, line in enumerate(corpus.open()):
        contents = json.loads(line)["contents"]
        writer.add_document(tantivy.Document(number=number, terms=" ".join(analyse(contents)), contents=contents))
    writer.commit()
    writer.wait_merging_threads()


def open_tantivy(folder: Path) -> Search:
    import tantivy

    schema = _tantivy_schema(tantivy)
    searcher = tantivy.Index(schema, path=str(folder / "tantivy")).searcher()
    analyse = _analyser()

    def search(query: str) -> list[int]:
        terms = [(tantivy.Occur.Should, tantivy.Query.term_query(schema, "terms", t)) for t in analyse(query)]
        hits = searcher.search(tantivy.Query.boolean_query(terms), TOPK).hits
        return [searcher.doc(address)["number"][0] for _, address in hits]

    return search


def _tantivy_schema(tantivy: Any) -> Any:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("number", stored=True)
    builder.add_text_field("terms", stored=False, tokenizer_name="whitespace", index_option="freq")
    builder.add_text_field("contents", stored=True, tokenizer_name="raw", index_option="basic")
    return builder.build()


def _analyser() -> Callable[[str], list[str]]:
    import re

    import Stemmer
    from search_words import STOP_WORDS

    pattern, stemmer = re.compile("[a-z0-9]+"), Stemmer.Stemmer("porter")

    def analyse(text: str) -> list[str]:
        words = [word for word in pattern.findall(text.lower()) if word not in STOP_WORDS]
        return [stem if len(word) > 2 else word for word, stem in zip(words, stemmer.stemWords(words), strict=True)]

    return analyse


SIDES = {
    "palestra": (index_palestra, open_palestra),
    "bm25s": (index_bm25s, open_bm25s),
    "tantivy": (index_tantivy, open_tantivy),
}


def status_gb(field: str) -> float:
    """Return a memory field of /proc/self/status; getrusage would include the parent's memory at the fork."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(field)) / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    action, name, corpus, queries_path, folder = sys.argv[1:]
    index, open_index = SIDES[name]
    if action == "index":
        start = time.process_time()
        index(Path(corpus), Path(folder))
        print(json.dumps({"index_cpu_s": time.process_time() - start, "index_memory_gb": status_gb("VmHWM")}))
        return
    queries = json.loads(Path(queries_path).read_text())
    start = time.perf_counter()
    search = open_index(Path(folder))
    search(queries[0])
    opened = time.perf_counter() - start
    hits = [search(query) for query in queries[:100]]
    times, cpu = [], time.process_time()
    for query in queries:
        before = time.perf_counter()
        search(query)
        times.append(time.perf_counter() - before)
    figures = {
        "open_ms": 1e3 * opened,
        "query_p50_ms": 1e3 * median(times),
        "query_cpu_ms": 1e3 * (time.process_time() - cpu) / len(queries),
        "query_memory_gb": status_gb("VmHWM"),
    }
    print(json.dumps({"figures": figures, "hits": hits}))


if __name__ == "__main__":
    main()
