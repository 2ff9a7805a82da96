"""A server's temporary folder, which the next server removes if this one is killed.

The folder contains a file that its server locks. If another process can lock this file, the server no longer runs.
Folders of other programs and users are never touched: a folder must have the right name, owner and permissions, and
contain a lock file with the right text.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "palestra-serve-"
LOCK = "server.lock"
MARK = b"Temporary folder of a Palestra server; it is removed when that server has stopped.\n"


class ScratchFolder:
    """Temporary folder that exists until `remove` is called or, after a kill, until another server starts."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        # The lock is held under another name first, so that no other server can lock the file in the meantime.
        unfinished = self.path / f".{LOCK}"
        self._handle = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        os.write(self._handle, MARK)
        unfinished.rename(self.path / LOCK)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def remove_abandoned() -> None:
    """Remove the temporary folders of servers that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # the folder was removed in the meantime or cannot be read
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) != 0o700:
        return
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISREG(os.fstat(handle).st_mode) and os.read(handle, len(MARK) + 1) == MARK:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises BlockingIOError if the server is running
            shutil.rmtree(folder)
    finally:
        os.close(handle)
