"""Lock output folders, record the files written to them, detect damage, and delete only the recorded files."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from palestra.errors import BadValue, StoreFailed, UsageError

MANIFEST = "manifest.json"  # names, sizes and checksums of the files that were written to a folder
ERROR = "error.json"  # the error that ended the last process that wrote to a run folder; absent if it did not fail
_BLOCK = 1 << 20  # bytes read at a time


def check_unused(folder: Path, *, ours: bool, what: str) -> None:
    """Raise BadValue if `folder` contains files but was not created by the same command (`ours`)."""
    if folder.exists() and not folder.is_dir():
        raise BadValue(f"{folder} is a file, not a folder; choose another name")
    if not ours and folder.is_dir() and any(folder.iterdir()):
        raise BadValue(f"{folder} is not empty and contains no {what}; choose another folder, or empty this one first")


def shortened(value: Any) -> str:
    """Return a setting's value as text of at most 60 characters, for a message about different settings."""
    if isinstance(value, list) and len(value) > 3:
        return f"{len(value)} items"
    text = "unset" if value is None else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


@contextmanager
def locked(folder: Path, *, activity: str) -> Iterator[None]:
    """Create `folder` if necessary and hold an exclusive lock on it, so that one process at a time writes to it.

    If the block fails before it has written a file, a folder that was created is removed.
    """
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as err:
        raise StoreFailed(f"cannot write to the folder {folder}: {err.strerror}. Choose another one") from err
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as err:
        raise BadValue(f"another process is {activity} in {folder}; wait for it, or choose another folder") from err
    else:
        try:
            yield
        except BaseException:
            if is_new:
                with suppress(OSError):  # the folder is not empty
                    folder.rmdir()
            raise
    finally:
        os.close(handle)


@contextmanager
def error_record(folder: Path) -> Iterator[None]:
    """Record the error that ends the block in `folder`, except invalid settings, and remove an earlier record."""
    (folder / ERROR).unlink(missing_ok=True)
    try:
        yield
    except Exception as err:
        if not isinstance(err, UsageError):
            text = json.dumps({"kind": type(err).__name__, "message": str(err)})
            with suppress(OSError):  # the disk may be full
                (folder / ERROR).write_text(text + "\n", encoding="utf-8")
        raise


def write_manifest(folder: Path) -> None:
    """Record the size and checksum of every file in `folder`; call this after all files have been written."""
    files = {str(path.relative_to(folder)): _summary(path) for path in sorted(folder.rglob("*")) if path.is_file()}
    (folder / MANIFEST).write_text(json.dumps({"files": files}, indent=1) + "\n", encoding="utf-8")


def damage(folder: Path) -> str | None:
    """Describe the first difference between the files in `folder` and its manifest; None if it is intact."""
    files = _files(folder)
    if files is None:
        return f"{MANIFEST} is missing or damaged"
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        try:
            if _summary(path) != expected:
                return f"{name} was changed or truncated"
        except OSError as err:
            return f"{name} cannot be read: {err.strerror}"
    return None


def delete_written(folder: Path) -> None:
    """Delete the files that the manifest of `folder` lists, and the folder if nothing else is in it."""
    if folder.is_dir() and not folder.is_symlink():
        delete_files(folder, [*(_files(folder) or {}), MANIFEST])
        with suppress(OSError):  # the folder contains other files
            folder.rmdir()


def delete_files(folder: Path, names: Iterable[str]) -> None:
    """Delete the files `names` in `folder`, then any empty subfolders."""
    directories: set[Path] = set()
    for name in names:
        path = folder / name
        if folder in path.parents and ".." not in path.parts:
            path.unlink(missing_ok=True)
            directories.update(parent for parent in path.parents if folder in parent.parents)
    for directory in sorted(directories, key=lambda path: -len(path.parts)):
        with suppress(OSError):  # the subfolder contains other files or does not exist
            directory.rmdir()


def replace_folder(new: Path, folder: Path) -> None:
    """Move the folder `new` to `folder`; files in a previous `folder` that its manifest does not list are preserved."""
    old = folder.with_name(f".{folder.name}.old")
    recover_folder(folder)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    _finish(old, folder)


def recover_folder(folder: Path) -> None:
    """Complete or undo a `replace_folder` that was interrupted."""
    old = folder.with_name(f".{folder.name}.old")
    if not old.exists():
        return
    if folder.exists():
        _finish(old, folder)
    else:
        old.rename(folder)


def _finish(old: Path, folder: Path) -> None:
    """Delete the files that were written to `old` and move all others to `folder`."""
    if not old.exists():
        return
    delete_written(old)
    for path in sorted(old.rglob("*")) if old.exists() else []:
        if path.is_symlink() or not path.is_dir():
            target = folder / path.relative_to(old)
            while target.exists() or target.is_symlink():
                target = target.with_name(f"{target.name}.old")
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _files(folder: Path) -> dict[str, list[int]] | None:
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return files if isinstance(files, dict) else None


def _summary(path: Path) -> list[int]:
    """Return the size and the CRC-32 of a file, which detects truncation and accidental changes."""
    size = checksum = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            size += len(block)
            checksum = zlib.crc32(block, checksum)
    return [size, checksum]
