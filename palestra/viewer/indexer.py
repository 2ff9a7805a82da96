"""Background thread that keeps the index up to date, starting with the run that is being viewed."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic

from palestra.errors import ParsingFailed
from palestra.viewer.facts import EpisodeFields, episode_fields, parse
from palestra.viewer.folder import Folder, NotFound, RunLocation
from palestra.viewer.index import FileState, Index
from palestra.viewer.lines import Line, LinePosition, open_file, scan

PAUSE = 1.0  # seconds between two scans of the folder
BATCH_SECONDS = 0.4  # maximum seconds between two commits
BATCH_ROWS = 2000
HEAD = 256  # number of bytes at the start of a file that are compared to detect a replaced file
UNREAD = -1  # modification time stored for a file that is not completely indexed
_log = logging.getLogger(__name__)


class Indexer:
    """Indexing thread; `wake(run)` gives priority to the run that a user is viewing."""

    def __init__(self, folder: Folder, index: Index) -> None:
        self.folder = folder
        self.index = index
        self.places: list[RunLocation] = []
        self.versions: dict[str, int] = {}  # one counter per run, incremented whenever more of the run has been indexed
        self._busy: set[str] = set()
        self._indexed_once: set[str] = set()
        self._wanted: list[str] = []
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._first = threading.Event()
        self._lock: int | None = None
        self._thread = threading.Thread(target=self._run, name="palestra-viewer-index", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. May be called more than once, and before `start`."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(10)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def wake(self, run: str) -> None:
        if self._wanted[-1:] != [run]:
            self._wanted = [*(name for name in self._wanted if name != run), run][-8:]
        self._wake.set()

    def seen(self) -> list[RunLocation]:
        """Return the runs found by the last scan."""
        self._first.wait(5)
        return self.places

    def reading(self, run: str) -> bool:
        """Return whether a run has data that is not indexed yet."""
        return run in self._busy or run not in self._indexed_once

    def _run(self) -> None:
        while not self._stop.is_set():
            started = monotonic()
            try:
                self.places = self.folder.runs()
                self._first.set()
                if self._claim():
                    self._update()
                else:
                    self._indexed_once.update(place.name for place in self.places)  # another process updates the index
            except (OSError, sqlite3.Error) as err:
                _log.warning("could not update the index: %s", err)
            took = monotonic() - started
            self._wake.wait(max(PAUSE, 3 * took))  # scan large folders less often
            self._wake.clear()
            self._stop.wait(0.2)  # combine several wake-ups into one scan

    def _claim(self) -> bool:
        """Try to lock the index for writing, and return whether it is locked; only one viewer may write to it."""
        if self._lock is None:
            handle = os.open(self.index.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(handle)
                return False
            self._lock = handle
        return True

    def _update(self) -> None:
        listed = {place.name: self.folder.files(place) for place in self.places}
        existing = {(name, file) for name, files in listed.items() for file, _ in files}
        waiting = {name: self._behind(name, listed[name]) for name in sorted(listed, key=lambda n: _size(listed[n]))}
        while waiting and not self._stop.is_set():
            name = next((name for name in reversed(self._wanted) if name in waiting), next(iter(waiting)))
            behind = waiting.pop(name)
            if behind:
                self._add_sizes(name, behind)
            for i, (file, path) in enumerate(behind):
                if self._wanted and self._wanted[-1] != name and waiting.get(self._wanted[-1]):
                    waiting[name] = behind[i:]  # the user switched to another run, which is indexed first
                    break
                self._read(name, file, path)
                if self._stop.is_set():
                    return
            if name not in waiting:
                self._busy.discard(name)
                self._indexed_once.add(name)
        if not self._stop.is_set():
            for run, file in self.index.indexed_files():
                if (run, file) not in existing:
                    self.index.remove(run, file)
                    self._changed(run)

    def _behind(self, run: str, files: list[tuple[str, Path]]) -> list[tuple[str, Path]]:
        """Return the files with new data."""
        return [(file, path) for file, path in files if self.is_behind(run, file, path)]

    def is_behind(self, run: str, file: str, path: Path) -> bool:
        """Return whether a file has data that is not indexed yet."""
        known = self.index.state(run, file)
        try:
            now = path.stat()
        except OSError:
            return False
        return known is None or (known.inode, known.size, known.mtime) != (now.st_ino, now.st_size, now.st_mtime_ns)

    def _add_sizes(self, run: str, files: list[tuple[str, Path]]) -> None:
        """Store the file sizes before indexing, so that progress can be displayed."""
        self._busy.add(run)
        for file, path in files:
            if self.index.state(run, file) is None:
                try:
                    self.index.add(run, file, replace(_current_state(path), mtime=UNREAD), ())
                except OSError:
                    continue
        self._changed(run)

    def _read(self, run: str, file: str, path: Path) -> None:
        """Index the new part of a file, or the whole file if it was replaced."""
        try:
            path = self.folder.inside(path)
            now = _current_state(path)
            known = self.index.state(run, file)
            if known is not None and _same(known, now):
                now = replace(now, done=known.done, lines=known.lines, bad=known.bad)
            elif known is not None:
                self.index.remove(run, file)
            self._add_lines(run, file, path, now)
        except (OSError, NotFound):
            return  # the file was deleted; the next scan removes it from the index
        self._changed(run)

    def _add_lines(self, run: str, file: str, path: Path, state: FileState) -> None:
        rows: list[tuple[int, LinePosition, EpisodeFields]] = []
        lines, bad, clock = state.lines, state.bad, monotonic()
        try:
            for line in scan(path, state.done):
                facts = _facts(line)
                if facts is None:
                    bad += 1
                else:
                    rows.append((lines, line.spot, facts))
                lines += 1
                if line.resume is not None:
                    state = replace(state, done=line.resume, lines=lines, bad=bad)
                if len(rows) >= BATCH_ROWS or monotonic() - clock > BATCH_SECONDS:
                    self.index.add(run, file, replace(state, mtime=UNREAD), rows)
                    rows, clock = [], monotonic()
                    self._changed(run)
                    if self._stop.is_set():
                        return
        except ParsingFailed as err:
            state = replace(state, error=str(err))
        self.index.add(run, file, state, rows)

    def _changed(self, run: str) -> None:
        self.versions[run] = self.versions.get(run, 0) + 1


def _size(files: list[tuple[str, Path]]) -> int:
    """Return the total size of the files; smaller runs are indexed first."""
    total = 0
    for _, path in files:
        with suppress(OSError):
            total += path.stat().st_size
    return total


def _current_state(path: Path) -> FileState:
    """Return the state of a file before any of it is indexed."""
    with open_file(path) as file:
        now = os.fstat(file.fileno())
        head = file.read(HEAD)
    return FileState(inode=now.st_ino, size=now.st_size, mtime=now.st_mtime_ns, head=head, done=0, lines=0)


def _same(known: FileState, now: FileState) -> bool:
    """Return whether data was only appended to the file since it was indexed."""
    return known.inode == now.inode and now.head.startswith(known.head) and known.done <= now.size


def _facts(line: Line) -> EpisodeFields | None:
    """Extract the indexed fields; return None if the line does not contain an episode."""
    try:
        return None if line.data is None else episode_fields(parse(line.data))
    except ParsingFailed:
        return None
