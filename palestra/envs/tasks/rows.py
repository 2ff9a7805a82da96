"""Where a task's rows come from -> the rows: read once per process, shared by every env and fork that asks about them.

A `Source` names a data set of the Hugging Face hub, a file or a folder. A folder of mirrored data sets, one at
`owner/name` each, stands in for the hub where one is given (`mirror=`, or the environment variable PALESTRA_MIRROR).
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from palestra.errors import BadValue, DataMissing

MIRROR = "PALESTRA_MIRROR"


class Table(Protocol):
    """Rows of one split, read by index; what a reader returns."""

    columns: tuple[str, ...]

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Which rows. `path` is a file or a folder and goes before `dataset`, an id of the hub."""

    dataset: str | None = None
    path: str | None = None
    split: str | None = None  # None: the only one there is, or "train"
    config: str | None = None  # a data set's configuration, or subset
    revision: str | None = None  # of the hub's repository
    mirror: str | None = None

    @property
    def name(self) -> str:
        """For messages."""
        what = self.path or self.dataset or "?"
        return f"{what} ({self.split})" if self.split else what


class Rows:
    """The rows of a source. Copies and pickles share them: a pickle holds the source alone."""

    __slots__ = ("folder", "source", "table")

    def __init__(self, source: Source, table: Table, folder: Path | None) -> None:
        self.source = source
        self.table = table
        self.folder = folder  # what relative paths of pictures start from

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.table[index]

    def __reduce__(self) -> tuple[Any, ...]:
        return open_rows, (self.source,)

    def __deepcopy__(self, memo: dict[int, Any]) -> Rows:
        return self

    def need(self, column: str, keyword: str) -> None:
        """BadValue with the columns there are, where `column` is none of them."""
        first = column.partition(".")[0]
        if column in self.table.columns or first in self.table.columns:
            return
        from difflib import get_close_matches

        near = get_close_matches(first, self.table.columns, n=1)
        hint = f" Did you mean {keyword}={near[0]!r}?" if near else ""
        raise BadValue(
            f"{self.source.name} has no column {column!r}; it has {', '.join(self.table.columns)}. "
            f"Name the right one with {keyword}=.{hint}"
        )


_open: dict[Any, Rows] = {}
_lock = threading.Lock()  # one reader at a time: the second asks for what the first has read


def open_rows(source: Source) -> Rows:
    """The rows of `source`, read now or before."""
    if not source.path and not source.dataset:
        raise BadValue('there is nothing to ask about: give path="my.jsonl" (or a folder), or dataset="owner/name"')
    place = _local(source)
    key = (source, str(place), _stamp(place))
    with _lock:
        rows = _open.get(key)
        if rows is None:
            rows = _open[key] = Rows(source, *_read(source, place))
    return rows


def forget_rows() -> None:
    """Let go of everything that was read."""
    with _lock:
        _open.clear()


def _read(source: Source, place: Path | None) -> tuple[Table, Path | None]:
    if place is None:
        from palestra.envs.tasks.hub import download

        table: Table = download(source, searched=_mirror(source))
    else:
        from palestra.envs.tasks.files import read_path

        table = read_path(place, split=source.split, config=source.config)
    if not len(table):
        raise DataMissing(f"{source.name} has no rows")
    return table, place if place is None or place.is_dir() else place.parent


def _local(source: Source) -> Path | None:
    """The file or folder the rows are in; None: they are asked of the hub."""
    if source.path:
        place = Path(source.path).expanduser()
        if not place.exists():
            raise DataMissing(f"there is no file or folder {source.path!r} (looked for in {Path.cwd()})")
        return place.resolve()
    mirror = _mirror(source)
    if mirror is not None and source.dataset:
        owner, _, name = source.dataset.rpartition("/")
        here = mirror / owner / name
        if here.exists():
            return here.resolve()
    return None


def _mirror(source: Source) -> Path | None:
    given = source.mirror or os.environ.get(MIRROR)
    if not given:
        return None
    mirror = Path(given).expanduser()
    if not mirror.is_dir():
        raise DataMissing(f"the mirror {given!r} is no folder; it holds data sets as owner/name")
    return mirror


def _stamp(place: Path | None) -> tuple[int, int] | None:
    """Changes when the file does, so that an edited one is read again."""
    if place is None or not place.is_file():
        return None
    state = place.stat()
    return state.st_mtime_ns, state.st_size
