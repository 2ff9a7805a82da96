"""Temporary folders that are deleted even if the process that created them is killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import weakref
from pathlib import Path


class LockedFolder:
    """A temporary folder, which `remove` deletes.

    It is also deleted when this object is garbage-collected and, with `at_exit`, when the process ends normally. The
    folder of a killed process is deleted by `remove_stale` in another process.

    The kernel releases a folder's lock when the process ends, so the folder of a killed process can be recognized. The
    folder gets its name after it is locked, so that no other process mistakes it for an unused folder.
    """

    def __init__(self, prefix: str, parent: Path | None = None, *, at_exit: bool = True) -> None:
        unlocked = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=parent))
        self._lock = os.open(unlocked, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.path = unlocked.rename(unlocked.with_name(unlocked.name.removeprefix(".")))
        self._finalizer = weakref.finalize(self, _remove_own, self.path, self._lock, os.getpid())
        self._finalizer.atexit = at_exit

    def remove(self) -> None:
        if self._finalizer.detach() is not None:  # at exit, calling the finalizer itself would have no effect
            _remove_own(self.path, self._lock, os.getpid())

    def disown(self) -> None:
        """Release the parent's folder in a forked child process."""
        if self._finalizer.detach() is not None:
            os.close(self._lock)


def _remove_own(folder: Path, lock: int, process: int) -> None:
    if process == os.getpid():
        remove_folder(folder)
    os.close(lock)


def remove_folder(folder: Path) -> None:
    """Delete a folder, even if processes that are shutting down still write to it."""
    for _ in range(20):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return


def remove_stale(prefix: str, parent: Path | None = None) -> None:
    """Delete folders with this prefix that killed processes left behind."""
    for folder in (parent or Path(tempfile.gettempdir())).glob(f"{prefix}*"):
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue  # another process removed it, or it belongs to another user
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(folder)
        except OSError:
            pass  # in use
        finally:
            os.close(handle)
