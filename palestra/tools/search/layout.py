"""File layout of an index: little-endian arrays that are memory-mapped, so that an index opens almost instantly."""

from __future__ import annotations

import json
import mmap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from palestra.errors import BadValue

FORMAT = 2
META = "palestra-search.json"
PASSAGES, PASSAGE_STARTS = "passages.jsonl", "passages.starts"  # passages, one per line, and their line offsets
TERMS, TERM_STARTS, TERM_NUMBERS = "terms.utf8", "terms.starts", "terms.numbers"  # sorted terms, offsets, numbers
STARTS, DOCS, WEIGHTS, BOUNDS = "postings.starts", "postings.docs", "postings.weights", "postings.bounds"
VECTORS = "vectors"

POSITION, NUMBER, WEIGHT = np.dtype("<i8"), np.dtype("<i4"), np.dtype("<f4")

Positions = NDArray[np.int64]
Numbers = NDArray[np.int32]
Weights = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMeta:
    """Size and settings of an index."""

    passages: int
    terms: int
    postings: int
    mean_length: float  # mean number of terms per passage
    k1: float
    b: float
    analyser: str
    encoder: str | None = None  # name of the encoder that computed the vectors
    dimensions: int = 0
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        (folder / META).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


def read_meta(folder: Path) -> IndexMeta:
    """Read the metadata for the index at `folder`."""
    path = folder / META
    if not path.is_file():
        raise BadValue(
            f"there is no search index at {folder}. Build one with: palestra search-index SOURCE --out {folder}"
        )
    try:
        meta = IndexMeta(**json.loads(path.read_text(encoding="utf-8")))
    except (json.JSONDecodeError, TypeError) as err:
        raise BadValue(f"{path} cannot be read ({err}); build the index again") from err
    if meta.format != FORMAT:
        raise BadValue(
            f"{folder} has index format {meta.format}, but this version reads {FORMAT}; build the index again"
        )
    return meta


def map_array(folder: Path, name: str, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Memory-map an array in the index; its pages are read from disk on first access."""
    path = folder / name
    size = path.stat().st_size if path.is_file() else -1
    if size != count * dtype.itemsize:
        raise BadValue(
            f"{path} is damaged: it has {size} bytes instead of {count * dtype.itemsize}; build the index again"
        )
    if count == 0:
        return np.empty(0, dtype)  # an empty file cannot be mapped
    return np.asarray(np.memmap(path, dtype, mode="r", shape=(count,)))


def map_bytes(folder: Path, name: str) -> mmap.mmap | bytes:
    with (folder / name).open("rb") as file:
        file.seek(0, 2)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b""
