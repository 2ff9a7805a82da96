"""Where Palestra keeps what it can make again."""

from __future__ import annotations

import os
from pathlib import Path

CACHE = "PALESTRA_CACHE"  # the environment variable that moves the cache folder


def cache_folder() -> Path:
    """$PALESTRA_CACHE, or ~/.cache/palestra."""
    named = os.environ.get(CACHE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "palestra"
