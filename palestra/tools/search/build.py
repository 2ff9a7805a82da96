"""Passages -> an index folder, in memory that does not grow with the number of passages.

Words are counted in batches, each sorted by term and written as a run; then the runs are merged a range of terms at a
time, and every posting gets its whole BM25 weight, so that a query only adds numbers up.
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
from palestra.tools.search import layout
from palestra.tools.search.dense import Encoder
from palestra.tools.search.layout import Numbers, Positions, Weights
from palestra.tools.search.passages import Passage
from palestra.tools.search.words import DROPPED, analyser, raw_words

BATCH = 4_000_000  # words counted at a time: 0.2 GB
MERGED = 8_000_000  # postings merged at a time: 0.5 GB
REMEMBERED = 2_000_000  # words whose term is kept at hand
ENCODED = 1024  # passages given to an encoder at a time

Progress = Callable[[str, int], None]  # what is being done, and how many passages or postings are done


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
    """Write the index of `passages` to the folder `out`, which appears when it is complete.

    `k1` and `b` are BM25's; the defaults are those passage retrieval was tuned to. `encoder` adds vectors.
    """
    if k1 < 0 or not 0 <= b <= 1:
        raise BadValue(f"BM25 takes k1 of 0 or more and b from 0 to 1, got k1={k1} and b={b}")
    target = Path(out)
    if target.exists() and not (overwrite and (target / layout.META).is_file()):
        hint = "; overwrite=True (--overwrite) replaces it" if (target / layout.META).is_file() else ""
        raise BadValue(f"{target} exists already{hint}")
    target.parent.mkdir(parents=True, exist_ok=True)
    half = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _written(passages, half, k1, b, analyse, encoder, progress or (lambda *_: None))
        half.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        half.rename(target)
    except BaseException:
        shutil.rmtree(half, ignore_errors=True)
        raise
    return target


def _written(
    passages: Iterable[Passage],
    folder: Path,
    k1: float,
    b: float,
    analyse: str,
    encoder: Encoder | None,
    progress: Progress,
) -> None:
    vocabulary = _Vocabulary(analyse)
    with _Vectors(folder, encoder) as vectors:
        counted = _counted(vectors.seen(_stored(passages, folder)), vocabulary, folder / "runs", progress)
    lengths = counted.lengths()
    mean = float(lengths.mean()) if len(lengths) else 0.0
    norms: NDArray[np.float64] = np.asarray(k1 * (1 - b + b * lengths / (mean or 1.0)), np.float64)
    postings = _merged(counted, folder, norms, k1, len(vocabulary.terms), progress)
    vocabulary.write(folder)
    shutil.rmtree(folder / "runs")
    layout.Meta(
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


def _stored(passages: Iterable[Passage], folder: Path) -> Iterator[Passage]:
    """Each passage, when its line is written."""
    starts = array("q", [0])
    with (folder / layout.PASSAGES).open("wb") as file:
        for passage in passages:
            row = {"id": passage.id, "title": passage.title, "text": passage.text}
            file.write(json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            starts.append(file.tell())
            yield passage
    np.frombuffer(starts, np.int64).astype(layout.POSITION).tofile(folder / layout.PASSAGE_STARTS)


class _Vocabulary(dict[str, int]):
    """Word -> number of its term; a word not seen before is analysed when it is asked for."""

    def __init__(self, analyse: str) -> None:
        super().__init__()
        self.terms: dict[str, int] = {}
        self._analyse = analyser(analyse)

    def __missing__(self, word: str) -> int:
        if len(self) > REMEMBERED:
            self.clear()  # names and numbers that occur once; the others come back soon
        term = self._analyse(word)
        number = DROPPED if term is None else self.terms.setdefault(term, len(self.terms))
        self[word] = number
        return number

    def write(self, folder: Path) -> None:
        """In the order of the bytes, so that a reader can halve its way to a term."""
        ordered = sorted((term.encode(), number) for term, number in self.terms.items())
        with (folder / layout.TERMS).open("wb") as file:
            file.writelines(term for term, _ in ordered)
        sizes = np.fromiter((len(term) for term, _ in ordered), np.int64, len(ordered))
        np.concatenate([[0], np.cumsum(sizes)]).astype(layout.POSITION).tofile(folder / layout.TERM_STARTS)
        np.fromiter((number for _, number in ordered), layout.NUMBER, len(ordered)).tofile(folder / layout.TERM_NUMBERS)


@dataclass(slots=True)
class _Counted:
    """How often which term stands in which passage, as runs on disk."""

    folder: Path
    runs: list[int] = field(default_factory=list)  # postings in each
    parts: list[NDArray[np.int64]] = field(default_factory=list)  # lengths of the passages of each

    def lengths(self) -> NDArray[np.int64]:
        return np.concatenate(self.parts) if self.parts else np.zeros(0, np.int64)

    def column(self, run: int, name: str) -> Numbers:
        return layout.mapped(self.folder, f"{run}.{name}", layout.NUMBER, self.runs[run])


def _counted(passages: Iterable[Passage], vocabulary: _Vocabulary, folder: Path, progress: Progress) -> _Counted:
    folder.mkdir()
    counted = _Counted(folder)
    number_of = vocabulary.__getitem__
    words, sizes, done = array("i"), array("i"), 0
    for passage in passages:
        before = len(words)
        words.extend(map(number_of, raw_words(f"{passage.title}\n{passage.text}")))
        sizes.append(len(words) - before)
        if len(words) > BATCH:
            _add_run(counted, words, sizes, done)
            done += len(sizes)
            words, sizes = array("i"), array("i")
            progress("reading passages", done)
    if sizes:
        _add_run(counted, words, sizes, done)
    progress("reading passages", done + len(sizes))
    return counted


def _add_run(counted: _Counted, words: array[int], sizes: array[int], first: int) -> None:
    terms = np.frombuffer(words, np.intc) if len(words) else np.zeros(0, np.intc)
    docs = np.repeat(np.arange(len(sizes), dtype=np.int64), np.frombuffer(sizes, np.intc))
    kept = terms != DROPPED
    docs = docs[kept]
    counted.parts.append(np.bincount(docs, minlength=len(sizes)))
    keys = (terms[kept].astype(np.int64) << 32) | docs
    keys.sort()
    first_of = np.flatnonzero(np.diff(keys, prepend=-1))  # where a new pair of term and passage begins
    pairs = keys[first_of]
    run = len(counted.runs)
    counts = np.diff(first_of, append=len(keys))
    columns = {"terms": pairs >> 32, "docs": (pairs & 0xFFFFFFFF) + first, "counts": counts}
    for name, column in columns.items():
        column.astype(layout.NUMBER).tofile(counted.folder / f"{run}.{name}")
    counted.runs.append(len(pairs))


def _merged(
    counted: _Counted, folder: Path, norms: NDArray[np.float64], k1: float, terms: int, progress: Progress
) -> int:
    """Write the postings, by term and then by passage; how many there are."""
    found = np.zeros(terms, np.int64)  # in how many passages each term stands
    for run in range(len(counted.runs)):
        found += np.bincount(counted.column(run, "terms"), minlength=terms)
    starts = np.concatenate([[0], np.cumsum(found)]).astype(np.int64)
    rarity = np.log1p((len(norms) - found + 0.5) / (found + 0.5))
    bounds = np.zeros(terms, layout.WEIGHT)
    with (folder / layout.DOCS).open("wb") as doc_file, (folder / layout.WEIGHTS).open("wb") as weight_file:
        for low, high in _ranges(starts):
            docs, weights = _merged_range(counted, low, high, norms, rarity, k1)
            bounds[low:high] = np.maximum.reduceat(weights, starts[low:high] - starts[low])
            docs.tofile(doc_file)
            weights.tofile(weight_file)
            progress("merging postings", int(starts[high]))
    starts.astype(layout.POSITION).tofile(folder / layout.STARTS)
    bounds.tofile(folder / layout.BOUNDS)
    return int(starts[-1])


def _ranges(starts: Positions) -> Iterator[tuple[int, int]]:
    """Cut the terms into ranges of about MERGED postings; every term has at least one posting."""
    low, last = 0, len(starts) - 1
    while low < last:
        high = max(low + 1, int(np.searchsorted(starts, starts[low] + MERGED, side="right")) - 1)
        yield low, high
        low = high


def _merged_range(
    counted: _Counted, low: int, high: int, norms: NDArray[np.float64], rarity: NDArray[np.float64], k1: float
) -> tuple[Numbers, Weights]:
    pieces: dict[str, list[Numbers]] = {"terms": [], "docs": [], "counts": []}
    for run in range(len(counted.runs)):
        begin, end = np.searchsorted(counted.column(run, "terms"), np.array([low, high], np.int32))
        for name, piece in pieces.items():
            piece.append(counted.column(run, name)[begin:end])
    terms = np.concatenate(pieces["terms"])
    order = np.argsort(terms, kind="stable")  # runs follow each other by passage, so a stable order keeps that
    terms, docs = terms[order], np.concatenate(pieces["docs"])[order]
    counts = np.concatenate(pieces["counts"])[order].astype(np.float64)
    weights = rarity[terms] * counts * (k1 + 1) / (counts + norms[docs])
    return docs, weights.astype(layout.WEIGHT)


class _Vectors:
    """Passages on their way through, encoded in groups and written."""

    def __init__(self, folder: Path, encoder: Encoder | None) -> None:
        self.dimensions = 0
        self._encoder = encoder
        self._held: list[str] = []
        self._file = (folder / layout.VECTORS).open("wb") if encoder is not None else None

    def seen(self, passages: Iterable[Passage]) -> Iterator[Passage]:
        for passage in passages:
            if self._encoder is not None:
                self._held.append(f"{passage.title}\n{passage.text}" if passage.title else passage.text)
                if len(self._held) >= ENCODED:
                    self._flush()
            yield passage

    def _flush(self) -> None:
        if self._encoder is None or self._file is None or not self._held:
            return
        vectors = self._encoder.passages(self._held)
        if self.dimensions and vectors.shape[1] != self.dimensions:
            raise BadValue(f"{self._encoder.name} gave vectors of {self.dimensions} and of {vectors.shape[1]} numbers")
        self.dimensions = int(vectors.shape[1])
        vectors.astype(layout.WEIGHT).tofile(self._file)
        self._held.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is not None:
            try:
                if kind is None:
                    self._flush()
            finally:
                self._file.close()


def build_aside(passages: Iterable[Passage], **options: Any) -> Path:
    """An index in a temporary folder; who opens it may delete the folder, the mapped files stay until closed."""
    return build(passages, Path(tempfile.mkdtemp(prefix="palestra-search-")) / f"index-{os.getpid()}", **options)
