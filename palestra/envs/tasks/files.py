"""Read tables from files and folders: JSONL, JSON, CSV, TSV, Parquet and Arrow.

JSONL, JSON, CSV and TSV files, optionally compressed (`.gz`), need only the standard library. A folder was either
written by `Dataset.save_to_disk` or contains one or more files per split (for example `train.jsonl`,
`data/test-00000-of-00002.parquet` or `validation/0001.parquet`).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from palestra.envs.tasks.source import Table
from palestra.errors import BadValue, DataMissing
from palestra.optional import require

FORMATS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow")
_SHARD = re.compile(r"(?P<split>.+?)[-_.](?:part[-_]?)?\d+(?:[-_]of[-_]\d+)?(?:-[0-9a-f]{8,})?")  # train-00000-of-00002
_NUMBER = re.compile(r"(?:part[-_]?)?\d+(?:[-_]of[-_]\d+)?")  # 0001 in a folder named after the split
_ALIASES = {"valid": "validation", "val": "validation", "dev": "validation", "training": "train", "testing": "test"}
_NEUTRAL = frozenset({"data", "default"})  # folder and file names that do not name a split


def read_path(path: Path, *, split: str | None = None, config: str | None = None) -> Table:
    """Read one split from a file or folder."""
    if path.is_dir():
        if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
            return _load_from_disk(path, split)
        return _read_folder(path, split, config)
    return _read_files([path], split)


class DictTable:
    """In-memory table of dictionaries."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.rows = rows
        self.columns = tuple(dict.fromkeys(name for row in rows[:100] for name in row))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.rows[index]


class JsonLinesTable:
    """Table in JSON Lines format; rows are parsed on access, so that only the raw bytes are held in memory."""

    def __init__(self, text: bytes, name: str) -> None:
        self.text = text
        self.name = name
        self.bounds = array("Q", _line_bounds(text))
        self.columns = tuple(dict.fromkeys(key for i in range(min(100, len(self))) for key in self[i]))

    def __len__(self) -> int:
        return len(self.bounds) // 2

    def __getitem__(self, index: int) -> dict[str, Any]:
        start, end = self.bounds[2 * index], self.bounds[2 * index + 1]
        try:
            row = json.loads(self.text[start:end])
        except (ValueError, RecursionError) as err:
            raise BadValue(f"{self.name}, row {index}: not JSON: {err}") from err
        if not isinstance(row, dict):
            raise BadValue(f"{self.name}, row {index}: expected a JSON object, got {type(row).__name__}")
        return row


def _line_bounds(text: bytes) -> list[int]:
    """Return the start and end positions of all lines that are not blank."""
    bounds: list[int] = []
    start = 3 if text.startswith(b"\xef\xbb\xbf") else 0
    while start < len(text):
        end = text.find(b"\n", start)
        end = len(text) if end < 0 else end
        if text[start:end].strip():
            bounds += (start, end)
        start = end + 1
    return bounds


class ArrowTable:
    """Adapter for an Arrow table or a `datasets.Dataset`; images are not decoded."""

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


class ConcatenatedTable:
    """Concatenation of several tables."""

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


def iter_rows(table: Table, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """Yield all rows; columns other than `columns` may be missing, because reading them can take long."""
    if isinstance(table, ConcatenatedTable):
        for part in table.tables:
            yield from iter_rows(part, columns)
    elif isinstance(table, ArrowTable) and hasattr(table.table, "features"):
        yield from table.table.select_columns([name for name in columns if name in table.columns])
    elif isinstance(table, ArrowTable):
        for batch in table.table.select([name for name in columns if name in table.columns]).to_batches():
            yield from batch.to_pylist()
    else:
        yield from (table[index] for index in range(len(table)))


def without_decoding(dataset: Any) -> ArrowTable:
    """Wrap a `datasets.Dataset` so that images are returned as encoded bytes."""
    datasets = require("datasets", extra="data")
    return ArrowTable(dataset.cast(datasets.Features(_undecoded_feature(dataset.features, datasets))).with_format(None))


def _undecoded_feature(feature: Any, datasets: Any) -> Any:
    if isinstance(feature, datasets.Image):
        return datasets.Image(decode=False)
    if isinstance(feature, dict):
        return {name: _undecoded_feature(inner, datasets) for name, inner in feature.items()}
    if isinstance(feature, list):
        return [_undecoded_feature(inner, datasets) for inner in feature]
    if isinstance(feature, datasets.List):
        return datasets.List(_undecoded_feature(feature.feature, datasets), length=feature.length)
    return feature


def _load_from_disk(path: Path, split: str | None) -> Table:
    """Load a folder written by `Dataset.save_to_disk` as memory-mapped files."""
    datasets = require("datasets", extra="data")
    dataset = datasets.load_from_disk(str(path))
    if isinstance(dataset, datasets.DatasetDict):
        dataset = dataset[choose_split(list(dataset), split, str(path))]
    return without_decoding(dataset)


def choose_split(names: Sequence[str], split: str | None, source: str) -> str:
    """Return the name of the requested split; if `split` is None, return the only split or "train"."""
    if split is not None:
        matches = [name for name in names if name == split or _ALIASES.get(name) == _ALIASES.get(split, split)]
        if matches:
            return matches[0]
        raise BadValue(f"{source} has no split {split!r}; its splits are {', '.join(sorted(names))}")
    if len(names) == 1:
        return names[0]
    if "train" in names:
        return "train"
    raise BadValue(f"{source} has several splits; select one with data_split=: {', '.join(sorted(names))}")


def _read_folder(folder: Path, split: str | None, config: str | None) -> Table:
    if config is not None:
        inner = folder / config
        named = [path for path in sorted(folder.glob(f"{config}.*")) if _format(path) is not None]
        if named:  # one file per configuration, as in GPQA
            return _read_files(named[:1], split)
        if not inner.is_dir():
            raise DataMissing(f"{folder} has no folder for the configuration {config!r}")
        folder = inner
    by_split: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and _format(path) is not None and not any(part.startswith(".") for part in parts):
            by_split.setdefault(_split_of(path, folder), []).append(path)
    if not by_split:
        raise DataMissing(
            f"{folder} contains no data files; supported endings: {', '.join(FORMATS)}, with or without .gz"
        )
    files = by_split[choose_split(list(by_split), split, str(folder))]
    parents = {path.parent for path in files}
    if len(parents) > 1:
        names = ", ".join(sorted(str(parent.relative_to(folder)) for parent in parents))
        raise BadValue(f"the split is in several folders of {folder}; select one with config=: {names}")
    return _read_files(files, None)


def _split_of(path: Path, root: Path) -> str:
    """Return the split name of a file, such as `train` for `train-00000-of-00002.parquet` or `train/0001.parquet`."""
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
    is_data = suffix in FORMATS and path.name not in ("dataset_info.json", "dataset_infos.json", "state.json")
    return suffix if is_data else None


def _read_files(files: Sequence[Path], split: str | None) -> Table:
    tables = [_read_file(path, split) for path in files]
    return tables[0] if len(tables) == 1 else ConcatenatedTable(tables)


def _read_file(path: Path, split: str | None) -> Table:
    suffix = _format(path)
    if suffix is None:
        raise BadValue(f"{path} is not a data file; supported endings: {', '.join(FORMATS)}, with or without .gz")
    if suffix == ".parquet":
        return _read_parquet(path)
    if suffix == ".arrow":
        datasets = require("datasets", extra="data")
        return without_decoding(datasets.Dataset.from_file(str(path)))
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if suffix in (".csv", ".tsv"):
        return _read_csv(text, path, "\t" if suffix == ".tsv" else ",")
    if suffix == ".json":
        return _read_json(text, path, split)
    return JsonLinesTable(text, str(path))


def _read_parquet(path: Path) -> Table:
    parquet = require("pyarrow.parquet", extra="data")
    try:
        return ArrowTable(parquet.read_table(path))
    except (OSError, ValueError) as err:  # Arrow's exceptions are subclasses of these
        raise BadValue(f"{path} cannot be read as Parquet: {err}") from err


def _read_csv(text: bytes, path: Path, delimiter: str) -> Table:
    limit = csv.field_size_limit(sys.maxsize)  # some questions exceed the default limit of 128 KiB
    try:
        reader = csv.DictReader(io.StringIO(text.decode("utf-8-sig"), newline=""), delimiter=delimiter)
        rows = list(reader)
    except (UnicodeDecodeError, csv.Error) as err:
        raise BadValue(f"{path} cannot be read as CSV in UTF-8: {err}") from err
    finally:
        csv.field_size_limit(limit)
    if any(None in row or None in row.values() for row in rows):
        wrong = next(i for i, row in enumerate(rows) if None in row or None in row.values())
        raise BadValue(f"{path}, row {wrong}: the number of fields differs from the header")
    return DictTable(rows)


def _read_json(text: bytes, path: Path, split: str | None) -> Table:
    """Read a list of objects, or an object that maps each split to such a list."""
    try:
        value = json.loads(text.decode("utf-8-sig"))
    except (UnicodeDecodeError, ValueError, RecursionError) as err:
        if b"\n" in text.strip():
            return JsonLinesTable(text, str(path))  # some .json files contain JSON Lines
        raise BadValue(f"{path} is not JSON: {err}") from err
    if isinstance(value, dict) and value and all(isinstance(rows, list) for rows in value.values()):
        value = value[choose_split(list(value), split, str(path))]
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise BadValue(f"{path} must contain a list of objects, one per row")
    return DictTable(value)
