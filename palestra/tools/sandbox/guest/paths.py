"""Locate the interpreter's packages, and choose a second mount point for those under HOME.

The private file system that is mounted on HOME for each program would otherwise hide them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

HOME = "/tmp"  # noqa: S108  # home directory of a program: a private file system, mounted for each program
RELOCATED = "/.prefix"  # second mount point for prefixes under HOME, which are bound from here to their original path


def interpreter_prefixes() -> list[str]:
    """Return the directories that hold the interpreter and its packages, outermost first."""
    prefixes: list[str] = []
    for prefix in (sys.base_prefix, sys.base_exec_prefix, sys.prefix, sys.exec_prefix):
        for path in (prefix, os.path.realpath(prefix)):
            if path != "/" and not any(Path(path).is_relative_to(outer) for outer in ("/usr", *prefixes)):
                prefixes.append(path)
    return sorted(prefixes)


def covered_prefixes() -> list[tuple[str, str]]:
    """Return (path, second mount point) for each interpreter prefix under HOME."""
    covered = [path for path in interpreter_prefixes() if Path(path).is_relative_to(HOME)]
    return [(path, f"{RELOCATED}/{index}") for index, path in enumerate(covered)]
