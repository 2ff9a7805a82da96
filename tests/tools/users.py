"""Run a script as root or as an unprivileged user, to test both ways in which the sandbox confines programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import palestra

NOBODY = 65534


def copy_package(folder: Path) -> Path:
    """Copy the package to a folder that every user can read, because a checkout may be readable only by its owner."""
    shutil.copytree(Path(palestra.__file__).parent, folder / "palestra", ignore=shutil.ignore_patterns("data"))
    subprocess.run(["chmod", "-R", "a+rX", str(folder)], check=True)
    return folder


def run_script(script: str, package: Path, *, unprivileged: bool) -> str:
    """Run a script with the copied package and return its standard output; it must not write to standard error.

    With `unprivileged`, run it as user nobody if the tests run as root. Otherwise, run it as the current user.
    """
    switch = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if unprivileged and os.geteuid() == 0 else {}
    done = subprocess.run(
        ["/usr/bin/python3" if switch else sys.executable, "-c", script],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(package)},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        **switch,  # type: ignore[call-overload]
    )
    assert done.stderr == ""
    return str(done.stdout)
