"""Find the runs in a folder and their files, without access to files outside that folder."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from palestra.errors import BadValue
from palestra.viewer.lines import open_file

SETTINGS, METRICS, SUMMARY = "run.json", "metrics.jsonl", "summary.json"
EPISODES = ("episodes.jsonl", "episodes.jsonl.gz")
STORED = "trajectories"
ENDINGS = (".jsonl", ".jsonl.gz")
_PARTS_OF_A_RUN = frozenset({STORED, "checkpoints", "last", "best", "start", "tensorboard", "wandb"})
_DEEPEST = 5


class NotFound(BadValue):
    """The run or file does not exist, or access to it is not allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLocation:
    """Location of a run: a run folder or a single trajectory file."""

    name: str  # path relative to the served folder, with slashes; "." for the folder itself
    path: Path
    is_file: bool = False


class Folder:
    """The folder of runs that the viewer serves."""

    def __init__(self, path: str | Path) -> None:
        try:
            self.path = Path(path).resolve(strict=True)
        except OSError as err:
            raise BadValue(f"there is no folder {path}") from err
        if not self.path.is_dir():
            raise BadValue(f"{path} is a file; pass the folder that contains it")

    def inside(self, path: Path) -> Path:
        """Resolve all links in `path`; raise NotFound if the result is outside the folder."""
        try:
            real = path.resolve(strict=True)
        except (
            OSError,
            ValueError,
            RuntimeError,
        ) as err:  # missing file, NUL character in the name, or symlink loop
            raise NotFound("no such file") from err
        if not real.is_relative_to(self.path):
            raise NotFound("no such file")
        return real

    def run(self, name: str) -> RunLocation:
        """Return the run named `name`."""
        parts = PurePosixPath(name).parts
        if not name or name.startswith("/") or ".." in parts or "\0" in name or any(p.startswith(".") for p in parts):
            raise NotFound(f"no run {name!r}")
        path = self.path.joinpath(*parts)
        try:
            self.inside(path)
        except NotFound as err:
            raise NotFound(f"no run {name!r}") from err
        if path.is_dir() and _is_run(path):
            return RunLocation(name=name, path=path)
        if path.is_file() and path.name.endswith(ENDINGS) and not _is_run(path.parent):
            return RunLocation(name=name, path=path, is_file=True)
        raise NotFound(f"no run {name!r}")

    def runs(self) -> list[RunLocation]:
        """Return all runs, sorted by name. A folder with several names is listed once, by its own name if possible."""
        links: deque[tuple[Path, str, int]] = deque()
        listed: set[Path] = set()
        places = list(self._below(self.path, self.path, "", 0, links, listed))
        while links:
            path, name, depth = links.popleft()
            places += self._below(path, path.resolve(), name, depth, links, listed)
        return sorted(places, key=lambda place: place.name)

    def _below(
        self,
        folder: Path,
        real: Path,
        prefix: str,
        depth: int,
        links: deque[tuple[Path, str, int]],
        listed: set[Path],
    ) -> Iterator[RunLocation]:
        """Yield the runs in a folder, unless its resolved path `real` is in `listed`, to which it is added.

        Symbolic links to folders are added to `links`.
        """
        if real in listed:
            return
        listed.add(real)
        is_run = _is_run(folder)
        if is_run:
            yield RunLocation(name=prefix or ".", path=folder)
            if depth:
                return  # a run's subfolders belong to the run
        if depth >= _DEEPEST:
            return
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return  # no read permission
        for entry in entries:
            name = f"{prefix}/{entry.name}" if prefix else entry.name
            if entry.name.startswith(".") or (is_run and entry.name in _PARTS_OF_A_RUN):
                continue
            if entry.is_symlink() and not self._leads_inside(entry):
                continue
            if entry.is_dir():
                path = Path(entry.path)
                if entry.is_symlink():
                    links.append((path, name, depth + 1))
                else:
                    yield from self._below(path, real / entry.name, name, depth + 1, links, listed)
            elif entry.name.endswith(ENDINGS) and not is_run and entry.is_file():
                yield RunLocation(name=name, path=Path(entry.path), is_file=True)

    def _leads_inside(self, entry: os.DirEntry[str]) -> bool:
        try:
            self.inside(Path(entry.path))
        except NotFound:
            return False
        return True

    def files(self, place: RunLocation) -> list[tuple[str, Path]]:
        """Return (name within the run, path) for every trajectory file, sorted by name."""
        if place.is_file:
            return [(place.path.name, place.path)] if self._safe(place.path) else []
        paths = [(name, place.path / name) for name in EPISODES]
        stored = place.path / STORED
        if stored.is_dir() and self._safe(stored):
            for folder, _, names in os.walk(stored):
                for name in names:
                    if name.endswith(ENDINGS) and not name.startswith("."):
                        path = Path(folder, name)
                        paths.append((path.relative_to(place.path).as_posix(), path))
        return sorted((name, path) for name, path in paths if path.is_file() and self._safe(path))

    def file(self, place: RunLocation, name: str) -> Path:
        """Return the resolved path of one of the run's `files`; raise NotFound for any other name."""
        parts = PurePosixPath(name).parts
        own = place.is_file and name == place.path.name
        listed = not place.is_file and (name in EPISODES or (parts[:1] == (STORED,) and name.endswith(ENDINGS)))
        if not (own or listed) or ".." in parts or "\0" in name:
            raise NotFound(f"no file {name!r} in this run")
        return self.inside(place.path if own else place.path.joinpath(*parts))

    def _safe(self, path: Path) -> bool:
        try:
            self.inside(path)
        except NotFound:
            return False
        return True

    def read(self, path: Path, *, most: int = 64 << 20) -> bytes:
        """Read a small file; raise NotFound if it is missing, outside the folder, or larger than `most`."""
        real = self.inside(path)
        try:
            with open_file(real) as file:
                if os.fstat(file.fileno()).st_size > most:
                    raise NotFound(f"{path.name} is too large")
                return file.read()
        except OSError as err:
            raise NotFound(f"cannot read {path.name}") from err


def _is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in (SETTINGS, METRICS, *EPISODES)) or (folder / STORED).is_dir()
