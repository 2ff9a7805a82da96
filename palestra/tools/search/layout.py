"""The files of an index: plain little-endian arrays side by side, so that opening one maps them and reads nothing."""

from __future__ import annotations

import json
import mmap
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from palestra.errors import BadValue

FORMAT = 1
META = "palestra-search.json"
PASSAGES, PASSAGE_STARTS = "passages.jsonl", "passages.starts"  # a line a passage; where each begins, and the end
TERMS, TERM_STARTS, TERM_NUMBERS = "terms.utf8", "terms.starts", "terms.numbers"  # sorted, with the number of each
STARTS, DOCS, WEIGHTS, BOUNDS = "postings.starts", "postings.docs", "postings.weights", "postings.bounds"
VECTORS = "vectors"

POSITION, NUMBER, WEIGHT = np.dtype("<i8"), np.dtype("<i4"), np.dtype("<f4")

Positions = NDArray[np.int64]
Numbers = NDArray[np.int32]
Weights = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """What an index is, beside its arrays."""

    passages: int
    terms: int
    postings: int
    mean_length: float  # of a passage, in terms
    k1: float
    b: float
    analyser: str
    encoder: str | None = None  # what made the vectors
    dimensions: int = 0
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        (folder / META).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")


def read_meta(folder: Path) -> Meta:
    """What is at `folder`; BadValue where that is no index of ours."""
    path = folder / META
    if not path.is_file():
        raise BadValue(
            f"there is no search index at {folder}. Build one with: palestra search-index SOURCE --out {folder}"
        )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        meta = Meta(**found)
    except (json.JSONDecodeError, TypeError) as err:
        raise BadValue(f"{path} cannot be read ({err}); build the index again") from err
    if meta.format != FORMAT:
        raise BadValue(f"{folder} is an index of format {meta.format}, this version reads {FORMAT}; build it again")
    return meta


def mapped(folder: Path, name: str, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """An array of the index, read when it is touched."""
    path = folder / name
    size = path.stat().st_size if path.is_file() else -1
    if size != count * dtype.itemsize:
        raise BadValue(f"{path} is damaged: {size} bytes instead of {count * dtype.itemsize}; build the index again")
    if count == 0:
        return np.empty(0, dtype)  # nothing cannot be mapped
    return np.asarray(np.memmap(path, dtype, mode="r", shape=(count,)))


def mapped_bytes(folder: Path, name: str) -> mmap.mmap | bytes:
    with (folder / name).open("rb") as file:
        file.seek(0, 2)
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if file.tell() else b""
