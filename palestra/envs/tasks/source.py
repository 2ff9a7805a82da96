"""The location of a dataset (`Source`) and the interface to its loaded rows (`Table`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

MIRROR = "PALESTRA_MIRROR"


class Table(Protocol):
    """Rows of one split, accessed by index."""

    columns: tuple[str, ...]

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Location of the rows: `path` (a file or folder) takes precedence over `dataset` (an id on the Hub)."""

    dataset: str | None = None
    path: str | None = None
    split: str | None = None  # None selects the only split, or "train"
    config: str | None = None  # configuration (subset) of the dataset
    revision: str | None = None  # revision of the Hub repository
    mirror: str | None = None

    @property
    def name(self) -> str:
        """Name of the source, for use in messages."""
        location = self.path or self.dataset or "?"
        return f"{location} ({self.split})" if self.split else location
