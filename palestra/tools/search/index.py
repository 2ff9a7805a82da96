"""A query -> the passages with the highest BM25 scores, exactly, from mapped files.

A term's postings carry whole weights, so a score is a sum. Terms are taken from the weightiest down; once the rest
together could not lift a new passage over the k-th best one found, long lists are no longer read but looked up.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from palestra.errors import BadValue
from palestra.tools.search import layout
from palestra.tools.search.build import build, build_aside
from palestra.tools.search.dense import Encoder, encoder_of, fused, nearest
from palestra.tools.search.hit import Hit
from palestra.tools.search.layout import Numbers, Weights
from palestra.tools.search.passages import Passage
from palestra.tools.search.words import analyser, raw_words

MODES = ("bm25", "dense", "hybrid")
MOST_TERMS = 256  # of a query; the rest is not looked at, so that a megabyte of query takes no minute
REACH = 500  # passages before and after one that still count to its page
DEEP = 100  # how many of each ranking a hybrid one is made of
_SHORT = 4096  # postings that are added up before anybody thinks about pruning
_SLACK = 1e-5  # sums of floats may be off in the last digits; a bound must not be

Scored = list[tuple[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Term:
    times: int  # in the query
    bound: float  # no passage gets more from it
    docs: Numbers
    weights: Weights


class Index:
    """An opened index. Threads may share it; processes that open the same folder share its memory."""

    def __init__(self, folder: str | Path, *, encoder: Encoder | None = None) -> None:
        self.folder = Path(folder).absolute()
        self.meta = meta = layout.read_meta(self.folder)
        at = self.folder
        self._starts = layout.mapped(at, layout.STARTS, layout.POSITION, meta.terms + 1)
        self._docs: Numbers = layout.mapped(at, layout.DOCS, layout.NUMBER, meta.postings)
        self._weights: Weights = layout.mapped(at, layout.WEIGHTS, layout.WEIGHT, meta.postings)
        self._bounds = layout.mapped(at, layout.BOUNDS, layout.WEIGHT, meta.terms)
        self._term_starts = layout.mapped(at, layout.TERM_STARTS, layout.POSITION, meta.terms + 1)
        self._term_numbers = layout.mapped(at, layout.TERM_NUMBERS, layout.NUMBER, meta.terms)
        self._terms = layout.mapped_bytes(at, layout.TERMS)
        self._passage_starts = layout.mapped(at, layout.PASSAGE_STARTS, layout.POSITION, meta.passages + 1)
        self._passages = layout.mapped_bytes(at, layout.PASSAGES)
        self._vectors: NDArray[np.float32] | None = None
        if meta.encoder is not None:
            flat = layout.mapped(at, layout.VECTORS, layout.WEIGHT, meta.passages * meta.dimensions)
            self._vectors = flat.reshape(meta.passages, meta.dimensions)
        self._encoder = encoder
        self._analyse = analyser(meta.analyser)
        self._local = threading.local()  # each thread adds up in an array of its own
        self._aside = False

    @classmethod
    def build(cls, passages: Iterable[Passage], out: str | Path | None = None, **options: Any) -> Index:
        """Build and open; without `out` the index lives as long as the object. Options are those of `build`."""
        if out is not None:
            return cls(build(passages, out, **options), encoder=options.get("encoder"))
        folder = build_aside(passages, **options)
        index = cls(folder, encoder=options.get("encoder"))
        shutil.rmtree(folder.parent)  # what is mapped stays readable
        index._aside = True
        return index

    def __len__(self) -> int:
        return self.meta.passages

    def __reduce__(self) -> tuple[Any, ...]:
        if self._aside:
            raise BadValue("an index without a folder cannot move to another process; build it with out=FOLDER")
        return (Index, (self.folder,))

    def search(self, query: str, topk: int = 3, *, mode: str = "bm25") -> list[Hit]:
        """The `topk` best passages, best first; of equals the earlier. Fewer where fewer share a word with it."""
        ranked = self.rank(query, topk, mode=mode)
        return [Hit(passage=self.passage(number), score=score, number=number) for number, score in ranked]

    def passage(self, number: int) -> Passage:
        begin, end = int(self._passage_starts[number]), int(self._passage_starts[number + 1])
        row = json.loads(self._passages[begin:end])
        return Passage(id=row["id"], title=row["title"], text=row["text"])

    def page(self, number: int) -> list[Passage]:
        """The page that a passage is of: it and its neighbours of the same title, in order; `REACH` each way."""
        middle = self.passage(number)
        before: list[Passage] = []
        after: list[Passage] = []
        if middle.title:
            for side, numbers in ((before, range(number - 1, -1, -1)), (after, range(number + 1, len(self)))):
                for other in numbers[:REACH]:
                    passage = self.passage(other)
                    if passage.title != middle.title:
                        break
                    side.append(passage)
        return [*before[::-1], middle, *after]

    def rank(self, query: str, topk: int = 3, *, mode: str = "bm25") -> Scored:
        """`search` with the passages' numbers in place of themselves."""
        if topk < 1:
            raise BadValue(f"topk is at least 1, got {topk}")
        if mode not in MODES:
            raise BadValue(f"a mode is one of {', '.join(MODES)}, got {mode!r}")
        if mode == "bm25":
            return self._bm25(query, topk)
        if self._vectors is None:
            raise BadValue(
                f"{self.folder} has no vectors for mode={mode!r}; build it with --dense ngrams, or another encoder"
            )
        if mode == "dense":
            return self._dense(self._vectors, query, topk)
        deep = max(DEEP, topk)
        return fused(
            [[n for n, _ in self._bm25(query, deep)], [n for n, _ in self._dense(self._vectors, query, deep)]], topk
        )

    def _dense(self, vectors: NDArray[np.float32], query: str, topk: int) -> Scored:
        if self._encoder is None:
            self._encoder = encoder_of(self.meta.encoder or "")
        return nearest(vectors, self._encoder.queries([query])[0], topk)

    # BM25

    def _bm25(self, query: str, topk: int) -> Scored:
        terms = self._query_terms(query)
        if not terms:
            return []
        if len(terms) == 1:
            only = terms[0]
            return _best(only.docs, only.weights * np.float32(only.times), topk)
        scores = self._scores()
        read: list[Numbers] = []
        try:
            return self._added_up(terms, topk, scores, read)
        finally:
            if sum(map(len, read)) * 4 < len(scores):
                for docs in read:
                    scores[docs] = 0
            else:
                scores.fill(0)

    def _added_up(self, terms: list[_Term], topk: int, scores: Weights, read: list[Numbers]) -> Scored:
        rest = _suffix_sums([term.times * term.bound for term in terms])
        floor = 0.0  # at least `topk` passages reach it
        at = 0
        while at < len(terms) and (len(terms[at].docs) <= _SHORT or rest[at] >= floor * (1 - _SLACK)):
            term = terms[at]
            read.append(term.docs)
            sums = scores[term.docs]
            sums += term.weights if term.times == 1 else term.weights * np.float32(term.times)
            scores[term.docs] = sums
            if len(sums) >= topk:
                floor = max(floor, float(np.partition(sums, -topk)[-topk]))
            at += 1
        docs = _reaching(scores, read, floor * (1 - _SLACK) - rest[at])
        sums = scores[docs]
        for term in terms[at:]:
            places = np.searchsorted(term.docs, docs)
            places[places == len(term.docs)] = 0
            hits = term.docs[places] == docs
            sums[hits] += term.weights[places[hits]] * np.float32(term.times)
        return _best(docs, sums, topk)

    def _scores(self) -> Weights:
        scores: Weights | None = getattr(self._local, "scores", None)
        if scores is None:
            scores = self._local.scores = np.zeros(len(self), np.float32)
        return scores

    def _query_terms(self, query: str) -> list[_Term]:
        """What the query's words stand for here, weightiest first."""
        times: dict[str, int] = {}
        for word in raw_words(query):
            term = self._analyse(word)
            if term is not None and (term in times or len(times) < MOST_TERMS):
                times[term] = times.get(term, 0) + 1
        found = []
        for term, often in times.items():
            number = self._number(term.encode())
            if number is not None:
                begin, end = int(self._starts[number]), int(self._starts[number + 1])
                bound = float(self._bounds[number])
                docs, weights = self._docs[begin:end], self._weights[begin:end]
                found.append((number, _Term(times=often, bound=bound, docs=docs, weights=weights)))
        found.sort(key=lambda pair: (-pair[1].bound, pair[0]))
        return [term for _, term in found]

    def _number(self, term: bytes) -> int | None:
        starts, low, high = self._term_starts, 0, self.meta.terms
        while low < high:
            middle = (low + high) // 2
            if self._terms[starts[middle] : starts[middle + 1]] < term:
                low = middle + 1
            else:
                high = middle
        if low < self.meta.terms and self._terms[starts[low] : starts[low + 1]] == term:
            return int(self._term_numbers[low])
        return None


def _suffix_sums(values: list[float]) -> list[float]:
    sums = [0.0]
    for value in reversed(values):
        sums.append(sums[-1] + value)
    return sums[::-1]


def _reaching(scores: Weights, read: list[Numbers], floor: float) -> Numbers:
    """Passages whose sum so far is at least `floor`, in order; the cheaper of two ways to find them."""
    if floor > 0 and sum(map(len, read)) * 2 > len(scores):
        return np.flatnonzero(scores >= np.float32(floor)).astype(np.int32)
    pieces = [docs[scores[docs] >= np.float32(floor)] for docs in read]
    return np.unique(np.concatenate(pieces))


def _best(docs: Numbers, scores: Weights, topk: int) -> Scored:
    if len(docs) > topk:
        limit = np.partition(scores, -topk)[-topk]
        kept = np.flatnonzero(scores >= limit)
        docs, scores = docs[kept], scores[kept]
    order = np.lexsort((docs, -scores))[:topk]
    return [(int(docs[i]), float(scores[i])) for i in order]
