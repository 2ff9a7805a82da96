"""Locations of the interpreter's packages, and their place where a program's own directory would hide them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

HOME = "/tmp"  # noqa: S108  # of a program: a private file system, mounted for each program
RELOCATED = "/.prefix"  # second mount point of prefixes below HOME, from which they are mounted again


def interpreter_prefixes() -> list[str]:
    """Return the directories that hold the interpreter and its packages, outermost first."""
    prefixes: list[str] = []
    for prefix in (sys.base_prefix, sys.base_exec_prefix, sys.prefix, sys.exec_prefix):
        for path in (prefix, os.path.realpath(prefix)):
            if path != "/" and not any(Path(path).is_relative_to(outer) for outer in ("/usr", *prefixes)):
                prefixes.append(path)
    return sorted(prefixes)


def covered_prefixes() -> list[tuple[str, str]]:
    """Return (path, second mount point) of each prefix below HOME."""
    covered = [path for path in interpreter_prefixes() if Path(path).is_relative_to(HOME)]
    return [(path, f"{RELOCATED}/{index}") for index, path in enumerate(covered)]
