"""Find the passages with the highest BM25 scores in a memory-mapped index, by exact search.

Postings store complete term weights, so that a score is a sum of weights. Terms are processed in order of decreasing
maximum weight. Once the remaining terms cannot raise a new passage above the k-th best score, their long posting lists
are no longer traversed; the weights of the remaining candidates are looked up in them instead.
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
from palestra.tools.search.analysis import analyser, raw_words
from palestra.tools.search.build import build, build_temporary
from palestra.tools.search.dense import Encoder, fuse_rankings, get_encoder, nearest
from palestra.tools.search.layout import Numbers, Weights
from palestra.tools.search.passages import Hit, Passage

MODES = ("bm25", "dense", "hybrid")
MAX_TERMS = 256  # maximum number of terms in a query; further terms are ignored, to bound the search time
PAGE_REACH = 500  # maximum number of passages that `page` returns on each side of a hit
HYBRID_DEPTH = 100  # number of hits from each ranking that a hybrid search combines
_SHORT = 4096  # posting lists up to this length are always traversed
_SLACK = 1e-5  # relative margin for floating-point rounding errors

Scored = list[tuple[int, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueryTerm:
    count: int  # occurrences in the query
    bound: float  # maximum weight in any passage
    docs: Numbers
    weights: Weights


class Index:
    """An open index. Threads can share it; processes that open the same folder share its memory."""

    def __init__(self, folder: str | Path, *, encoder: Encoder | None = None) -> None:
        self.folder = Path(folder).absolute()
        self.meta = meta = layout.read_meta(self.folder)
        at = self.folder
        self._starts = layout.map_array(at, layout.STARTS, layout.POSITION, meta.terms + 1)
        self._docs: Numbers = layout.map_array(at, layout.DOCS, layout.NUMBER, meta.postings)
        self._weights: Weights = layout.map_array(at, layout.WEIGHTS, layout.WEIGHT, meta.postings)
        self._bounds = layout.map_array(at, layout.BOUNDS, layout.WEIGHT, meta.terms)
        self._term_starts = layout.map_array(at, layout.TERM_STARTS, layout.POSITION, meta.terms + 1)
        self._term_numbers = layout.map_array(at, layout.TERM_NUMBERS, layout.NUMBER, meta.terms)
        self._terms = layout.map_bytes(at, layout.TERMS)
        self._passage_starts = layout.map_array(at, layout.PASSAGE_STARTS, layout.POSITION, meta.passages + 1)
        self._passages = layout.map_bytes(at, layout.PASSAGES)
        self._vectors: NDArray[np.float32] | None = None
        if meta.encoder is not None:
            flat = layout.map_array(at, layout.VECTORS, layout.WEIGHT, meta.passages * meta.dimensions)
            self._vectors = flat.reshape(meta.passages, meta.dimensions)
        self._encoder = encoder
        self._analyse = analyser(meta.analyser)
        self._local = threading.local()  # each thread has its own score array
        self._temporary = False

    @classmethod
    def build(cls, passages: Iterable[Passage], out: str | Path | None = None, **options: Any) -> Index:
        """Build an index and open it; without `out`, it is temporary. `options` are passed to `build`."""
        if out is not None:
            return cls(build(passages, out, **options), encoder=options.get("encoder"))
        folder = build_temporary(passages, **options)
        index = cls(folder, encoder=options.get("encoder"))
        shutil.rmtree(folder.parent)  # the files stay readable while they are mapped
        index._temporary = True
        return index

    def __len__(self) -> int:
        return self.meta.passages

    def __reduce__(self) -> tuple[Any, ...]:
        if self._temporary:
            raise BadValue("a temporary index cannot be pickled; build it with out=FOLDER")
        return (Index, (self.folder,))

    def search(self, query: str, topk: int = 3, *, mode: str = "bm25") -> list[Hit]:
        """Return up to `topk` passages that share a term with the query, best first; ties are in index order."""
        ranked = self.rank(query, topk, mode=mode)
        return [Hit(passage=self.passage(number), score=score, number=number) for number, score in ranked]

    def passage(self, number: int) -> Passage:
        start, end = int(self._passage_starts[number]), int(self._passage_starts[number + 1])
        row = json.loads(self._passages[start:end])
        return Passage(id=row["id"], title=row["title"], text=row["text"])

    def page(self, number: int) -> list[Passage]:
        """Return the passage and its neighbors with the same title, in order, up to `PAGE_REACH` in each direction."""
        middle = self.passage(number)
        before: list[Passage] = []
        after: list[Passage] = []
        if middle.title:
            for side, numbers in ((before, range(number - 1, -1, -1)), (after, range(number + 1, len(self)))):
                for other in numbers[:PAGE_REACH]:
                    passage = self.passage(other)
                    if passage.title != middle.title:
                        break
                    side.append(passage)
        return [*before[::-1], middle, *after]

    def rank(self, query: str, topk: int = 3, *, mode: str = "bm25") -> Scored:
        """Return (number, score) for the passages that `search` would return."""
        if topk < 1:
            raise BadValue(f"`topk` must be at least 1, got {topk}")
        if mode not in MODES:
            raise BadValue(f"`mode` must be one of {', '.join(MODES)}; got {mode!r}")
        if mode == "bm25":
            return self._bm25(query, topk)
        if self._vectors is None:
            raise BadValue(f"{self.folder} has no vectors, which mode={mode!r} needs; build it with --dense ENCODER")
        if mode == "dense":
            return self._dense(self._vectors, query, topk)
        depth = max(HYBRID_DEPTH, topk)
        return fuse_rankings(
            [[n for n, _ in self._bm25(query, depth)], [n for n, _ in self._dense(self._vectors, query, depth)]], topk
        )

    def _dense(self, vectors: NDArray[np.float32], query: str, topk: int) -> Scored:
        if self._encoder is None:
            self._encoder = get_encoder(self.meta.encoder or "")
        return nearest(vectors, self._encoder.queries([query])[0], topk)

    # BM25

    def _bm25(self, query: str, topk: int) -> Scored:
        terms = self._query_terms(query)
        if not terms:
            return []
        if len(terms) == 1:
            only = terms[0]
            return _best(only.docs, only.weights * np.float32(only.count), topk)
        scores = self._scores()
        read: list[Numbers] = []
        try:
            return self._accumulate(terms, topk, scores, read)
        finally:
            if sum(map(len, read)) * 4 < len(scores):
                for docs in read:
                    scores[docs] = 0
            else:
                scores.fill(0)

    def _accumulate(self, terms: list[_QueryTerm], topk: int, scores: Weights, read: list[Numbers]) -> Scored:
        rest = _suffix_sums([term.count * term.bound for term in terms])
        floor = 0.0  # lower bound of the k-th best score
        at = 0
        while at < len(terms) and (len(terms[at].docs) <= _SHORT or rest[at] >= floor * (1 - _SLACK)):
            term = terms[at]
            read.append(term.docs)
            sums = scores[term.docs]
            sums += term.weights if term.count == 1 else term.weights * np.float32(term.count)
            scores[term.docs] = sums
            if len(sums) >= topk:
                floor = max(floor, float(np.partition(sums, -topk)[-topk]))
            at += 1
        docs = _candidates(scores, read, floor * (1 - _SLACK) - rest[at])
        sums = scores[docs]
        for term in terms[at:]:
            places = np.searchsorted(term.docs, docs)
            places[places == len(term.docs)] = 0
            hits = term.docs[places] == docs
            sums[hits] += term.weights[places[hits]] * np.float32(term.count)
        return _best(docs, sums, topk)

    def _scores(self) -> Weights:
        scores: Weights | None = getattr(self._local, "scores", None)
        if scores is None:
            scores = self._local.scores = np.zeros(len(self), np.float32)
        return scores

    def _query_terms(self, query: str) -> list[_QueryTerm]:
        """Return the query terms that occur in the index, in order of decreasing maximum weight."""
        counts: dict[str, int] = {}
        for word in raw_words(query):
            term = self._analyse(word)
            if term is not None and (term in counts or len(counts) < MAX_TERMS):
                counts[term] = counts.get(term, 0) + 1
        terms = []
        for term, count in counts.items():
            number = self._term_number(term.encode())
            if number is not None:
                start, end = int(self._starts[number]), int(self._starts[number + 1])
                bound = float(self._bounds[number])
                docs, weights = self._docs[start:end], self._weights[start:end]
                terms.append((number, _QueryTerm(count=count, bound=bound, docs=docs, weights=weights)))
        terms.sort(key=lambda pair: (-pair[1].bound, pair[0]))
        return [term for _, term in terms]

    def _term_number(self, term: bytes) -> int | None:
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


def _candidates(scores: Weights, read: list[Numbers], floor: float) -> Numbers:
    """Return the passages whose partial score is at least `floor`, in order, with the faster of two methods."""
    if floor > 0 and sum(map(len, read)) * 2 > len(scores):
        return np.flatnonzero(scores >= np.float32(floor)).astype(np.int32)
    pieces = [docs[scores[docs] >= np.float32(floor)] for docs in read]
    return np.unique(np.concatenate(pieces))


def _best(docs: Numbers, scores: Weights, topk: int) -> Scored:
    if len(docs) > topk:
        limit = np.partition(scores, -topk)[-topk]
        selected = np.flatnonzero(scores >= limit)
        docs, scores = docs[selected], scores[selected]
    order = np.lexsort((docs, -scores))[:topk]
    return [(int(docs[i]), float(scores[i])) for i in order]
