"""A name of a model -> the folder that holds it: the folder of a run stands for its best checkpoint. No torch here."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path

_EDGE = 1 << 20  # bytes of either end of a file that are looked at
_SMALL = 4 << 20  # bytes; files up to here are read whole


def model_folder(name: str) -> str:
    """A run folder stands for its best checkpoint, else its last; a kill may have left one of them aside."""
    folder = Path(name)
    if (folder / "run.json").exists():
        for choice in ("best", ".best.old", "last", ".last.old"):
            if (folder / choice / "config.json").exists():
                return str(folder / choice)
    return name


def fingerprint(folder: str | Path) -> str:
    """Tells one checkpoint from another in milliseconds: names and sizes of all files, both ends of what they hold."""
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
