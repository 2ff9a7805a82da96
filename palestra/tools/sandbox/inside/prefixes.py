"""Where the interpreter and its packages lie, and how they stay visible where a program's own folder covers them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HOME = "/tmp"  # noqa: S108  # of a program: a file system of its own, made for its call
APART = "/.prefix"  # prefixes below HOME are shown here too, to be put back from


def prefixes() -> list[str]:
    """Folders to be shown, outermost ones first."""
    found: list[str] = []
    for prefix in (sys.base_prefix, sys.base_exec_prefix, sys.prefix, sys.exec_prefix):
        for path in (prefix, os.path.realpath(prefix)):
            if path != "/" and not any(Path(path).is_relative_to(known) for known in ("/usr", *found)):
                found.append(path)
    return sorted(found)


def covered() -> list[tuple[str, str]]:
    """(path, where it is shown too) of those that a program's folder would hide."""
    hidden = [path for path in prefixes() if Path(path).is_relative_to(HOME)]
    return [(path, f"{APART}/{index}") for index, path in enumerate(hidden)]
