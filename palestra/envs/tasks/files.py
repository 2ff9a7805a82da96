"""A file or a folder -> a table of rows: JSONL, JSON, CSV, Parquet, Arrow, and folders of those by split.

JSONL, JSON and CSV need the standard library alone, `.gz` included. A folder is one that `Dataset.save_to_disk` wrote,
or holds a file or shards a split (`train.jsonl`, `data/test-00000-of-00002.parquet`, `validation/0001.parquet`).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from palestra.envs.tasks.rows import Table
from palestra.errors import BadValue, DataMissing
from palestra.optional import require

FORMATS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow")
_SHARD = re.compile(r"(?P<split>.+?)[-_.](?:part[-_]?)?\d+(?:[-_]of[-_]\d+)?(?:-[0-9a-f]{8,})?")  # train-00000-of-00002
_NUMBER = re.compile(r"(?:part[-_]?)?\d+(?:[-_]of[-_]\d+)?")  # 0001: the folder says which split
_ALIASES = {"valid": "validation", "val": "validation", "dev": "validation", "training": "train", "testing": "test"}
_NEUTRAL = frozenset({"data", "default"})  # folders that name no split


def read_path(place: Path, *, split: str | None = None, config: str | None = None) -> Table:
    """The rows of one split of a file or folder."""
    if place.is_dir():
        if (place / "dataset_dict.json").is_file() or (place / "state.json").is_file():
            return _saved(place, split)
        return _shards(place, split, config)
    return _read_files([place], split)


class Objects:
    """Rows that are dictionaries already."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = rows
        self.columns = tuple(dict.fromkeys(name for row in rows[:100] for name in row))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


class Lines:
    """JSON lines, each parsed when it is asked for: a large file costs its size, not that of its objects."""

    def __init__(self, text: bytes, name: str) -> None:
        self.text = text
        self.name = name
        self.starts = array("Q", _starts(text))
        self.columns = tuple(dict.fromkeys(key for i in range(min(100, len(self))) for key in self[i]))

    def __len__(self) -> int:
        return len(self.starts) // 2

    def __getitem__(self, index: int) -> dict[str, Any]:
        start, end = self.starts[2 * index], self.starts[2 * index + 1]
        try:
            row = json.loads(self.text[start:end])
        except (ValueError, RecursionError) as err:
            raise BadValue(f"{self.name}, row {index}: not JSON: {err}") from err
        if not isinstance(row, dict):
            raise BadValue(f"{self.name}, row {index}: a row is an object, got {type(row).__name__}")
        return row


def _starts(text: bytes) -> list[int]:
    """Begin and end of every line that is not blank."""
    found: list[int] = []
    start = 3 if text.startswith(b"\xef\xbb\xbf") else 0
    while start < len(text):
        end = text.find(b"\n", start)
        end = len(text) if end < 0 else end
        if text[start:end].strip():
            found += (start, end)
        start = end + 1
    return found


class Columns:
    """An Arrow table, or a `datasets.Dataset`; pictures stay as the bytes they were stored as."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.columns = tuple(table.column_names)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        if hasattr(self.table, "features"):
            row: dict[str, Any] = self.table[index]
            return row
        return {name: self.table.column(name)[index].as_py() for name in self.columns}


class Chained:
    """Several tables, one after the other."""

    def __init__(self, tables: Sequence[Table]) -> None:
        self.tables = tables
        self.columns = tuple(dict.fromkeys(name for table in tables for name in table.columns))

    def __len__(self) -> int:
        return sum(map(len, self.tables))

    def __getitem__(self, index: int) -> dict[str, Any]:
        for table in self.tables:
            if index < len(table):
                return table[index]
            index -= len(table)
        raise IndexError(index)


def undecoded(dataset: Any) -> Columns:
    """A `datasets.Dataset` whose pictures and sounds are handed out as stored, not opened."""
    datasets = require("datasets", extra="data")
    return Columns(dataset.cast(datasets.Features(_undecoded(dataset.features, datasets))).with_format(None))


def _undecoded(feature: Any, datasets: Any) -> Any:
    if isinstance(feature, datasets.Image):
        return datasets.Image(decode=False)
    if isinstance(feature, dict):
        return {name: _undecoded(inner, datasets) for name, inner in feature.items()}
    if isinstance(feature, list):
        return [_undecoded(inner, datasets) for inner in feature]
    if isinstance(feature, datasets.List):
        return datasets.List(_undecoded(feature.feature, datasets), length=feature.length)
    return feature


def _saved(place: Path, split: str | None) -> Table:
    """What `save_to_disk` wrote, memory-mapped."""
    datasets = require("datasets", extra="data")
    found = datasets.load_from_disk(str(place))
    if isinstance(found, datasets.DatasetDict):
        found = found[chosen_split(list(found), split, str(place))]
    return undecoded(found)


def chosen_split(names: Sequence[str], split: str | None, where: str) -> str:
    """The split that was asked for; else the only one, or "train"."""
    if split is not None:
        wanted = [name for name in names if name == split or _ALIASES.get(name) == _ALIASES.get(split, split)]
        if wanted:
            return wanted[0]
        raise BadValue(f"{where} has no split {split!r}; it has {', '.join(sorted(names))}")
    if len(names) == 1:
        return names[0]
    if "train" in names:
        return "train"
    raise BadValue(f"{where} has several splits: say which with split=: {', '.join(sorted(names))}")


def _shards(place: Path, split: str | None, config: str | None) -> Table:
    if config is not None:
        inner = place / config
        if not inner.is_dir():
            raise DataMissing(f"{place} has no folder for the configuration {config!r}")
        place = inner
    by_split: dict[str, list[Path]] = {}
    for path in sorted(place.rglob("*")):
        parts = path.relative_to(place).parts
        if path.is_file() and _format(path) is not None and not any(part.startswith(".") for part in parts):
            by_split.setdefault(_split_of(path, place), []).append(path)
    if not by_split:
        raise DataMissing(f"{place} holds no rows; they are in files that end in {', '.join(FORMATS)} (.gz allowed)")
    files = by_split[chosen_split(list(by_split), split, str(place))]
    folders = {path.parent for path in files}
    if len(folders) > 1:
        names = ", ".join(sorted(str(folder.relative_to(place)) for folder in folders))
        raise BadValue(f"{place} has that split in several folders: say which with config=: {names}")
    return _read_files(files, None)


def _split_of(path: Path, root: Path) -> str:
    """`train-00000-of-00002.parquet`, `train.jsonl` and `train/0001.parquet` are all of the split `train`."""
    stem = path.name.removesuffix(".gz").rpartition(".")[0]
    if not _NUMBER.fullmatch(stem):
        shard = _SHARD.fullmatch(stem)
        name = shard["split"] if shard else stem
        if name not in _NEUTRAL:
            return name
    parent = path.parent.name
    return parent if path.parent != root and parent not in _NEUTRAL else "train"


def _format(path: Path) -> str | None:
    suffix = Path(path.name.removesuffix(".gz")).suffix.lower()
    named = suffix in FORMATS and path.name not in ("dataset_info.json", "dataset_infos.json", "state.json")
    return suffix if named else None


def _read_files(files: Sequence[Path], split: str | None) -> Table:
    tables = [_read_file(path, split) for path in files]
    return tables[0] if len(tables) == 1 else Chained(tables)


def _read_file(path: Path, split: str | None) -> Table:
    suffix = _format(path)
    if suffix is None:
        raise BadValue(f"{path} is no file of rows: those end in {', '.join(FORMATS)} (.gz allowed)")
    if suffix == ".parquet":
        return _parquet(path)
    if suffix == ".arrow":
        datasets = require("datasets", extra="data")
        return undecoded(datasets.Dataset.from_file(str(path)))
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if suffix in (".csv", ".tsv"):
        return _csv(text, path, "\t" if suffix == ".tsv" else ",")
    if suffix == ".json":
        return _json(text, path, split)
    return Lines(text, str(path))


def _parquet(path: Path) -> Table:
    parquet = require("pyarrow.parquet", extra="data")
    try:
        return Columns(parquet.read_table(path))
    except (OSError, ValueError) as err:  # Arrow's own errors are among them
        raise BadValue(f"{path} cannot be read as Parquet: {err}") from err


def _csv(text: bytes, path: Path, delimiter: str) -> Table:
    limit = csv.field_size_limit(sys.maxsize)  # a question may be longer than the 128 KiB it starts with
    try:
        reader = csv.DictReader(io.StringIO(text.decode("utf-8-sig"), newline=""), delimiter=delimiter)
        rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as err:
        raise BadValue(f"{path} cannot be read as CSV in UTF-8: {err}") from err
    finally:
        csv.field_size_limit(limit)
    if any(None in row or None in row.values() for row in rows):
        wrong = next(i for i, row in enumerate(rows) if None in row or None in row.values())
        raise BadValue(f"{path}, row {wrong}: it has another number of fields than the header")
    return Objects(rows)


def _json(text: bytes, path: Path, split: str | None) -> Table:
    """A list of objects; or an object with such a list for every split."""
    try:
        value = json.loads(text.decode("utf-8-sig"))
    except (UnicodeDecodeError, ValueError, RecursionError) as err:
        if b"\n" in text.strip():
            return Lines(text, str(path))  # JSON lines go by this name, too
        raise BadValue(f"{path} is not JSON: {err}") from err
    if isinstance(value, dict) and value and all(isinstance(rows, list) for rows in value.values()):
        value = value[chosen_split(list(value), split, str(path))]
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise BadValue(f"{path} has to be a list of objects, one a row")
    return Objects(value)
