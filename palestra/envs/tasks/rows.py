"""Load the rows in a dataset once per process and share them between environments and forks.

A `Source` is a dataset on the Hugging Face Hub, a file or a folder. A mirror is a local folder with datasets at
`owner/name`, set with `mirror=` or the environment variable PALESTRA_MIRROR; it is searched before the Hub.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from palestra.envs.tasks.files import iter_rows, read_path
from palestra.envs.tasks.hub import load_from_hub
from palestra.envs.tasks.source import MIRROR, Source, Table
from palestra.envs.tasks.splits import row_fingerprint, split_rows
from palestra.errors import BadValue, DataMissing


class MemoryTable:
    """Rows that the caller passed as a list of mappings or as a `datasets.Dataset`."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows = rows
        names = getattr(rows, "column_names", None)
        self.columns = tuple(names) if names else tuple(dict.fromkeys(name for row in rows for name in row))

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int, /) -> dict[str, Any]:
        return dict(self._rows[index])


class Rows:
    """The rows from a source. Copies share the rows. A pickle contains only the source, unless it is in memory."""

    __slots__ = ("_splits", "folder", "source", "table")

    def __init__(self, source: Source, table: Table, folder: Path | None) -> None:
        self.source = source
        self.table = table
        self.folder = folder  # image paths are relative to this folder
        self._splits: dict[tuple[str, ...], Sequence[int]] = {}

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.table[index]

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.table, MemoryTable):
            return Rows, (self.source, self.table, self.folder)
        return open_rows, (self.source,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Rows:
        return self

    def in_split(self, split: str | None, columns: tuple[str, ...]) -> Sequence[int]:
        """Return the numbers of the rows in a split, in ascending order; `columns` identify a question."""
        if split is None:
            return range(len(self))
        key = (split, *columns)
        if key not in self._splits:
            rows = iter_rows(self.table, [column for column in self.table.columns if _is_part(column, columns)])
            self._splits[key] = split_rows([row_fingerprint(row, columns) for row in rows], split)
        return self._splits[key]

    def require_column(self, column: str, keyword: str) -> None:
        """Raise BadValue if `column` does not exist; `keyword` is the name of the argument that selects the column."""
        first = column.partition(".")[0]
        if column in self.table.columns or first in self.table.columns:
            return
        from difflib import get_close_matches

        matches = get_close_matches(first, self.table.columns, n=1)
        hint = f" Did you mean {keyword}={matches[0]!r}?" if matches else ""
        raise BadValue(
            f"{self.source.name} has no column {column!r}; its columns are {', '.join(self.table.columns)}. "
            f"Select one with {keyword}=.{hint}"
        )


def _is_part(column: str, names: Sequence[str]) -> bool:
    """Return whether one of the names, which may be dotted, refers to this column or to a value in it."""
    return any(column in (name, name.partition(".")[0]) for name in names)


_cache: dict[Any, Rows] = {}
_lock = threading.Lock()  # prevents threads from reading the same source at the same time


def open_rows(source: Source) -> Rows:
    """Return the rows from `source`, or from the cache if they were read before."""
    if not source.path and not source.dataset:
        raise BadValue('no data source: pass path="my.jsonl" (or a folder), or dataset="owner/name"')
    path = local_path(source)
    key = (source, str(path), _fingerprint(path))
    with _lock:
        rows = _cache.get(key)
        if rows is None:
            rows = _cache[key] = Rows(source, *_read(source, path))
    return rows


def memory_rows(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """Return rows that the caller passed instead of a source."""
    table = MemoryTable(rows)
    if not len(table):
        raise DataMissing("`dataset` has no rows")
    return Rows(Source(dataset="dataset in memory"), table, None)


def clear_cache() -> None:
    """Drop all cached rows."""
    with _lock:
        _cache.clear()


def _read(source: Source, path: Path | None) -> tuple[Table, Path | None]:
    if path is None:
        table: Table = load_from_hub(source, mirror=_mirror(source))
    else:
        table = read_path(path, split=source.split, config=source.config)
    if not len(table):
        raise DataMissing(f"{source.name} has no rows")
    return table, path if path is None or path.is_dir() else path.parent


def local_path(source: Source) -> Path | None:
    """Return the file or folder with the rows, or None if they must be loaded from the Hub."""
    if source.path:
        path = Path(source.path).expanduser()
        if not path.exists():
            raise DataMissing(f"the file or folder {source.path!r} does not exist (working directory: {Path.cwd()})")
        return path.resolve()
    mirror = _mirror(source)
    if mirror is not None and source.dataset:
        owner, _, name = source.dataset.rpartition("/")
        path = mirror / owner / name
        if path.exists():
            return path.resolve()
    return None


def _mirror(source: Source) -> Path | None:
    folder = source.mirror or os.environ.get(MIRROR)
    if not folder:
        return None
    mirror = Path(folder).expanduser()
    if not mirror.is_dir():
        raise DataMissing(f"the mirror {folder!r} is not a folder; a mirror is a folder with datasets at owner/name")
    return mirror


def _fingerprint(path: Path | None) -> tuple[int, int] | None:
    """Return the modification time and size of a file, so that a modified file is read again."""
    if path is None or not path.is_file():
        return None
    state = path.stat()
    return state.st_mtime_ns, state.st_size
