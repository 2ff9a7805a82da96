"""Resolve model names to checkpoint folders, without importing torch."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

_EDGE = 1 << 20  # bytes hashed at the start, middle and end of a large file
_SMALL = 4 << 20  # bytes; files up to this size are hashed completely


def model_folder(name: str) -> str:
    """Return the best checkpoint in a run folder, or the last one if there is no best; return other names unchanged.

    An interrupted save may have left a checkpoint under its temporary name (.best.old, .last.old).
    """
    folder = Path(name)
    if (folder / "run.json").exists():
        for checkpoint in ("best", ".best.old", "last", ".last.old"):
            if (folder / checkpoint / "config.json").exists():
                return str(folder / checkpoint)
    return name


def fingerprint(folder: str | Path) -> str:
    """Return a hash of the file names, sizes and parts of the file contents, computed in milliseconds."""
    digest = blake2b(digest_size=16)
    for path in sorted(Path(folder).iterdir()):
        if not path.is_file() or path.name.startswith("."):
            continue
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            if size <= _SMALL:
                digest.update(file.read())
            else:
                digest.update(file.read(_EDGE))
                file.seek(size // 2)
                digest.update(file.read(_EDGE))
                file.seek(size - _EDGE)
                digest.update(file.read(_EDGE))
    return digest.hexdigest()
