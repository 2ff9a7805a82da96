"""Dense retrieval: encode texts as unit vectors, search for nearest neighbors, and fuse rankings."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any, Protocol
from urllib.error import URLError
from urllib.parse import urldefrag
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray

from palestra.errors import BadValue, ParsingFailed, ToolFailed
from palestra.optional import require
from palestra.tools.search.analysis import STOP_WORDS, raw_words

Vectors = NDArray[np.float32]


class Encoder(Protocol):
    """Encode texts as vectors of unit length. An index stores `name`, from which `get_encoder` creates its encoder."""

    name: str

    def passages(self, texts: Sequence[str]) -> Vectors: ...

    def queries(self, texts: Sequence[str]) -> Vectors: ...


def get_encoder(name: str) -> Encoder:
    """Return an encoder by name: `ngrams`, `hf:MODEL` (folder or hub id) or `http://HOST/v1/embeddings#MODEL`."""
    if name == "ngrams":
        return NgramEncoder()
    if name.startswith("hf:"):
        return TransformerEncoder(name[3:])
    if name.startswith(("http://", "https://")):
        return EmbeddingsEndpoint(name)
    raise BadValue(f"`encoder` must be ngrams, hf:MODEL or http(s)://HOST/v1/embeddings#MODEL; got {name!r}")


def _unit(rows: NDArray[Any]) -> Vectors:
    sizes = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(sizes == 0, 1, sizes)).astype(np.float32)


class NgramEncoder:
    """Encode texts by hashed character n-grams of length 3 and 4.

    This encoder needs no model, and it finds misspelled names that BM25 misses.
    """

    name = "ngrams"
    dimensions = 1024

    def passages(self, texts: Sequence[str]) -> Vectors:
        return _unit(np.stack([self._row(text) for text in texts]))

    queries = passages

    def _row(self, text: str) -> NDArray[np.float64]:
        hashes = [
            zlib.crc32(padded[start : start + size].encode())
            for word in raw_words(text)
            if word not in STOP_WORDS
            for padded in (f"^{word}$",)
            for size in (3, 4)
            for start in range(len(padded) - size + 1)
        ]
        row = np.zeros(self.dimensions)
        if hashes:
            values = np.array(hashes, np.int64)
            # Each hash also determines a sign, so that collisions cancel out on average.
            np.add.at(row, values % self.dimensions, np.where(values >> 31, 1.0, -1.0))
        return np.asarray(np.sign(row) * np.sqrt(np.abs(row)))  # reduces the weight of repeated words


class TransformerEncoder:
    """Encode texts with a Hugging Face model (E5, BGE, ...) by mean pooling over its last hidden layer."""

    def __init__(self, model: str, *, batch: int = 32) -> None:
        transformers = require("transformers", extra="hf")
        self.name = f"hf:{model}"
        self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(model)
        self._model: Any = transformers.AutoModel.from_pretrained(model).eval().requires_grad_(False)
        self._batch = batch
        # E5 models are trained with these prefixes.
        self._prefixes = ("passage: ", "query: ") if "e5" in model.lower().rpartition("/")[2] else ("", "")

    def passages(self, texts: Sequence[str]) -> Vectors:
        return self._encode([self._prefixes[0] + text for text in texts])

    def queries(self, texts: Sequence[str]) -> Vectors:
        return self._encode([self._prefixes[1] + text for text in texts])

    def _encode(self, texts: Sequence[str]) -> Vectors:
        limit = min(int(getattr(self._model.config, "max_position_embeddings", 512)), 512)
        rows = []
        for start in range(0, len(texts), self._batch):
            inputs = self._tokenizer(
                list(texts[start : start + self._batch]),
                padding=True,
                truncation=True,
                max_length=limit,
                return_tensors="pt",
            ).to(self._model.device)
            states = self._model(**inputs).last_hidden_state.float().cpu().numpy()
            mask = inputs["attention_mask"].cpu().numpy()[:, :, None]
            rows.append((states * mask).sum(1) / np.maximum(mask.sum(1), 1))
        return _unit(np.concatenate(rows))


class EmbeddingsEndpoint:
    """Encode texts on a server with OpenAI's `/v1/embeddings` API (vLLM, SGLang, text-embeddings-inference, ...)."""

    def __init__(self, address: str, *, timeout: float = 60.0, batch: int = 64) -> None:
        self.name = address
        self._url, self._model = urldefrag(address)
        if not self._model:
            raise BadValue(f"an embeddings server's address must end with #MODEL, got {address!r}")
        self._timeout = timeout
        self._batch = batch

    def passages(self, texts: Sequence[str]) -> Vectors:
        return _unit(
            np.concatenate([self._request(texts[i : i + self._batch]) for i in range(0, len(texts), self._batch)])
        )

    queries = passages

    def _request(self, texts: Sequence[str]) -> NDArray[np.float64]:
        body = json.dumps({"model": self._model, "input": list(texts)}).encode()
        request = Request(self._url, body, {"Content-Type": "application/json"})  # noqa: S310  # always http or https
        try:
            with urlopen(request, timeout=self._timeout) as response:  # noqa: S310
                reply = json.load(response)
        except (URLError, OSError) as err:
            raise ToolFailed(f"the embeddings server at {self._url} failed: {err}") from err
        except ValueError as err:
            raise ParsingFailed(f"{self._url} returned invalid JSON: {err}") from err
        try:
            ordered = sorted(reply["data"], key=lambda item: int(item["index"]))
            rows = np.array([item["embedding"] for item in ordered], np.float64)
        except (KeyError, TypeError, ValueError) as err:
            raise ParsingFailed(f"{self._url} returned no embeddings: {str(reply)[:200]}") from err
        if rows.ndim != 2 or len(rows) != len(texts):
            raise ParsingFailed(f"{self._url} returned {len(rows)} embeddings for {len(texts)} texts")
        return rows


def nearest(vectors: Vectors, query: Vectors, topk: int, *, block: int = 65_536) -> list[tuple[int, float]]:
    """Return (row, score) of the `topk` rows with the largest inner product, by exact search; ties in row order."""
    best = np.zeros(0, np.float32)
    rows = np.zeros(0, np.int64)
    for start in range(0, len(vectors), block):
        scores = vectors[start : start + block] @ query
        best = np.concatenate([best, scores])
        rows = np.concatenate([rows, np.arange(start, start + len(scores))])
        order = np.lexsort((rows, -best))[:topk] if len(best) <= 4096 else _largest(best, rows, topk)
        best, rows = best[order], rows[order]
    return [(int(row), float(score)) for row, score in zip(rows, best, strict=True)]


def _largest(scores: NDArray[Any], rows: NDArray[Any], topk: int) -> NDArray[np.int64]:
    if topk >= len(scores):
        return np.lexsort((rows, -scores))
    limit = np.partition(scores, -topk)[-topk]
    selected = np.flatnonzero(scores >= limit)
    return np.asarray(selected[np.lexsort((rows[selected], -scores[selected]))][:topk])


def fuse_rankings(rankings: Sequence[Sequence[int]], topk: int, *, damping: int = 60) -> list[tuple[int, float]]:
    """Merge rankings by reciprocal rank fusion, which uses only ranks and no scores."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0.0) + 1 / (damping + rank)
    return sorted(scores.items(), key=lambda item: (-item[1], item[0]))[:topk]
