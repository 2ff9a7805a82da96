"""Locate the cache folder for downloads and other files that can be recreated."""

from __future__ import annotations

import os
from pathlib import Path

CACHE = "PALESTRA_CACHE"  # environment variable that contains the path of the folder


def cache_folder() -> Path:
    """Return the folder in $PALESTRA_CACHE, by default ~/.cache/palestra."""
    folder = os.environ.get(CACHE)
    if folder:
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "palestra"
