"""Build an index folder from any number of passages in a fixed amount of memory.

Words are counted in batches; each batch is sorted by term and written to disk as a run. The runs are then merged one
range of terms at a time. Every posting stores its complete BM25 weight, so that a query only has to add weights.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from palestra.errors import BadValue
from palestra.folders import replace_folder, write_manifest
from palestra.tools.search import layout
from palestra.tools.search.analysis import DROPPED, analyser, raw_words
from palestra.tools.search.dense import Encoder
from palestra.tools.search.layout import Numbers, Positions, Weights
from palestra.tools.search.passages import Passage

BATCH = 4_000_000  # words per batch (uses 0.2 GB of memory)
MERGE_SIZE = 8_000_000  # postings merged at a time (uses 0.5 GB of memory)
CACHED_WORDS = 2_000_000  # maximum number of words whose term is cached
ENCODER_BATCH = 1024  # passages per call to an encoder

Progress = Callable[[str, int], None]  # arguments: phase, number of processed passages or postings


def build(
    passages: Iterable[Passage],
    out: str | Path,
    *,
    k1: float = 0.9,
    b: float = 0.4,
    analyse: str = "english",
    encoder: Encoder | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Write an index for `passages` to the `out` folder, which is created only when the index is complete.

    `k1` and `b` are the BM25 parameters; the defaults are common for passage retrieval. With an `encoder`, the index
    also stores dense vectors.
    """
    if k1 < 0 or not 0 <= b <= 1:
        raise BadValue(f"`k1` must be at least 0 and `b` between 0 and 1, got k1={k1} and b={b}")
    target = Path(out)
    if target.exists() and not (overwrite and (target / layout.META).is_file()):
        hint = "; overwrite=True (--overwrite) replaces it" if (target / layout.META).is_file() else ""
        raise BadValue(f"{target} already exists{hint}")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _write_index(passages, partial, k1, b, analyse, encoder, progress or (lambda *_: None))
        partial.chmod(0o755)
        write_manifest(partial)
        replace_folder(partial, target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return target


def _write_index(
    passages: Iterable[Passage],
    folder: Path,
    k1: float,
    b: float,
    analyse: str,
    encoder: Encoder | None,
    progress: Progress,
) -> None:
    vocabulary = _Vocabulary(analyse)
    with _VectorWriter(folder, encoder) as vectors:
        runs = _count_terms(vectors.encode(_store(passages, folder)), vocabulary, folder / "runs", progress)
    lengths = runs.lengths()
    mean = float(lengths.mean()) if len(lengths) else 0.0
    norms: NDArray[np.float64] = np.asarray(k1 * (1 - b + b * lengths / (mean or 1.0)), np.float64)
    postings = _merge(runs, folder, norms, k1, len(vocabulary.terms), progress)
    vocabulary.write(folder)
    shutil.rmtree(folder / "runs")
    layout.IndexMeta(
        passages=len(lengths),
        terms=len(vocabulary.terms),
        postings=postings,
        mean_length=mean,
        k1=k1,
        b=b,
        analyser=analyse,
        encoder=encoder.name if encoder is not None else None,
        dimensions=vectors.dimensions,
    ).write(folder)


def _store(passages: Iterable[Passage], folder: Path) -> Iterator[Passage]:
    """Write each passage to the passages file, then yield it."""
    starts = array("q", [0])
    with (folder / layout.PASSAGES).open("wb") as file:
        for passage in passages:
            row = {"id": passage.id, "title": passage.title, "text": passage.text}
            file.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            starts.append(file.tell())
            yield passage
    np.frombuffer(starts, np.int64).astype(layout.POSITION).tofile(folder / layout.PASSAGE_STARTS)


class _Vocabulary(dict[str, int]):
    """Map words to their term numbers; new words are analyzed on first access."""

    def __init__(self, analyse: str) -> None:
        super().__init__()
        self.terms: dict[str, int] = {}
        self._analyse = analyser(analyse)

    def __missing__(self, word: str) -> int:
        if len(self) > CACHED_WORDS:
            self.clear()  # most cached words are names and numbers that occur only once
        term = self._analyse(word)
        number = DROPPED if term is None else self.terms.setdefault(term, len(self.terms))
        self[word] = number
        return number

    def write(self, folder: Path) -> None:
        """Write the terms sorted by their UTF-8 bytes, for binary search."""
        ordered = sorted((term.encode(), number) for term, number in self.terms.items())
        with (folder / layout.TERMS).open("wb") as file:
            file.writelines(term for term, _ in ordered)
        sizes = np.fromiter((len(term) for term, _ in ordered), np.int64, len(ordered))
        np.concatenate([[0], np.cumsum(sizes)]).astype(layout.POSITION).tofile(folder / layout.TERM_STARTS)
        np.fromiter((number for _, number in ordered), layout.NUMBER, len(ordered)).tofile(folder / layout.TERM_NUMBERS)


@dataclass(slots=True)
class _PostingRuns:
    """Sorted runs of (term, passage, count) on disk."""

    folder: Path
    sizes: list[int] = field(default_factory=list)  # postings per run
    parts: list[NDArray[np.int64]] = field(default_factory=list)  # lengths of the passages in each run

    def lengths(self) -> NDArray[np.int64]:
        return np.concatenate(self.parts) if self.parts else np.zeros(0, np.int64)

    def column(self, run: int, name: str) -> Numbers:
        return layout.map_array(self.folder, f"{run}.{name}", layout.NUMBER, self.sizes[run])


def _count_terms(
    passages: Iterable[Passage], vocabulary: _Vocabulary, folder: Path, progress: Progress
) -> _PostingRuns:
    folder.mkdir()
    runs = _PostingRuns(folder)
    number_of = vocabulary.__getitem__
    words, sizes, done = array("i"), array("i"), 0
    for passage in passages:
        before = len(words)
        words.extend(map(number_of, raw_words(f"{passage.title}\n{passage.text}")))
        sizes.append(len(words) - before)
        if len(words) > BATCH:
            _add_run(runs, words, sizes, done)
            done += len(sizes)
            words, sizes = array("i"), array("i")
            progress("reading passages", done)
    if sizes:
        _add_run(runs, words, sizes, done)
    progress("reading passages", done + len(sizes))
    return runs


def _add_run(runs: _PostingRuns, words: array[int], sizes: array[int], first: int) -> None:
    terms = np.frombuffer(words, np.intc) if len(words) else np.zeros(0, np.intc)
    docs = np.repeat(np.arange(len(sizes), dtype=np.int64), np.frombuffer(sizes, np.intc))
    indexed = terms != DROPPED
    docs = docs[indexed]
    runs.parts.append(np.bincount(docs, minlength=len(sizes)))
    keys = (terms[indexed].astype(np.int64) << 32) | docs
    keys.sort()
    first_of = np.flatnonzero(np.diff(keys, prepend=-1))  # first occurrence of each (term, passage) pair
    pairs = keys[first_of]
    run = len(runs.sizes)
    counts = np.diff(first_of, append=len(keys))
    columns = {"terms": pairs >> 32, "docs": (pairs & 0xFFFFFFFF) + first, "counts": counts}
    for name, column in columns.items():
        column.astype(layout.NUMBER).tofile(runs.folder / f"{run}.{name}")
    runs.sizes.append(len(pairs))


def _merge(
    runs: _PostingRuns, folder: Path, norms: NDArray[np.float64], k1: float, terms: int, progress: Progress
) -> int:
    """Write the postings sorted by term and passage, and return the number of postings."""
    frequencies = np.zeros(terms, np.int64)  # number of passages that contain each term
    for run in range(len(runs.sizes)):
        frequencies += np.bincount(runs.column(run, "terms"), minlength=terms)
    starts = np.concatenate([[0], np.cumsum(frequencies)]).astype(np.int64)
    idf = np.log1p((len(norms) - frequencies + 0.5) / (frequencies + 0.5))
    bounds = np.zeros(terms, layout.WEIGHT)
    with (folder / layout.DOCS).open("wb") as doc_file, (folder / layout.WEIGHTS).open("wb") as weight_file:
        for low, high in _ranges(starts):
            docs, weights = _merge_range(runs, low, high, norms, idf, k1)
            bounds[low:high] = np.maximum.reduceat(weights, starts[low:high] - starts[low])
            docs.tofile(doc_file)
            weights.tofile(weight_file)
            progress("merging postings", int(starts[high]))
    starts.astype(layout.POSITION).tofile(folder / layout.STARTS)
    bounds.tofile(folder / layout.BOUNDS)
    return int(starts[-1])


def _ranges(starts: Positions) -> Iterator[tuple[int, int]]:
    """Split the terms into ranges that have about MERGE_SIZE postings each; every term has at least one posting."""
    low, last = 0, len(starts) - 1
    while low < last:
        high = max(low + 1, int(np.searchsorted(starts, starts[low] + MERGE_SIZE, side="right")) - 1)
        yield low, high
        low = high


def _merge_range(
    runs: _PostingRuns, low: int, high: int, norms: NDArray[np.float64], idf: NDArray[np.float64], k1: float
) -> tuple[Numbers, Weights]:
    pieces: dict[str, list[Numbers]] = {"terms": [], "docs": [], "counts": []}
    for run in range(len(runs.sizes)):
        start, end = np.searchsorted(runs.column(run, "terms"), np.array([low, high], np.int32))
        for name, piece in pieces.items():
            piece.append(runs.column(run, name)[start:end])
    terms = np.concatenate(pieces["terms"])
    order = np.argsort(terms, kind="stable")  # a stable sort keeps the order of the passages
    terms, docs = terms[order], np.concatenate(pieces["docs"])[order]
    counts = np.concatenate(pieces["counts"])[order].astype(np.float64)
    weights = idf[terms] * counts * (k1 + 1) / (counts + norms[docs])
    return docs, weights.astype(layout.WEIGHT)


class _VectorWriter:
    """Encodes passages in batches and writes their vectors."""

    def __init__(self, folder: Path, encoder: Encoder | None) -> None:
        self.dimensions = 0
        self._encoder = encoder
        self._batch: list[str] = []
        self._file = (folder / layout.VECTORS).open("wb") if encoder is not None else None

    def encode(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        for passage in passages:
            if self._encoder is not None:
                self._batch.append(f"{passage.title}\n{passage.text}" if passage.title else passage.text)
                if len(self._batch) >= ENCODER_BATCH:
                    self._flush()
            yield passage

    def _flush(self) -> None:
        if self._encoder is None or self._file is None or not self._batch:
            return
        vectors = self._encoder.passages(self._batch)
        if self.dimensions and vectors.shape[1] != self.dimensions:
            raise BadValue(
                f"{self._encoder.name} returned vectors with {self.dimensions} and {vectors.shape[1]} dimensions"
            )
        self.dimensions = int(vectors.shape[1])
        vectors.astype(layout.WEIGHT).tofile(self._file)
        self._batch.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is not None:
            try:
                if kind is None:
                    self._flush()
            finally:
                self._file.close()


def build_temporary(passages: Iterable[Passage], **options: Any) -> Path:
    """Build an index in a temporary folder; the folder may be deleted once the index has been opened."""
    return build(passages, Path(tempfile.mkdtemp(prefix="palestra-search-")) / f"index-{os.getpid()}", **options)
