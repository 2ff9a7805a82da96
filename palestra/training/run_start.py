"""Prepare a run's folder: create it for a new run, or find the checkpoint from which the run continues."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from palestra import __version__
from palestra.errors import BadValue
from palestra.folders import check_unused, shortened
from palestra.training import checkpoint
from palestra.training.reporting.run_folder import delete_run, holds_run, readable_settings, write_settings
from palestra.training.resume import changed_settings, with_added


def prepare_folder(
    folder: Path, settings: Mapping[str, Any], *, resume: bool, log: Callable[[str], None]
) -> Path | None:
    """Create the folder of a new run, or return the checkpoint to continue from; the caller must have locked it.

    Raises BadValue if the folder contains other files, or a run with other settings.
    """
    tables = json.loads(json.dumps(settings))
    check_unused(folder, ours=holds_run(folder), what="training run")
    last = checkpoint.newest_intact(folder, log) if resume else None
    if last is None and resume and checkpoint.checkpoints(folder):
        raise BadValue(f"all checkpoints in {folder} are damaged; --overwrite (overwrite=True) starts over")
    if last is None:
        delete_run(folder)
    else:
        saved = with_added(checkpoint.saved_config(last))
        changed = []
        for section, key in changed_settings(saved, tables):
            before, after = (shortened(config.get(section, {}).get(key)) for config in (saved, tables))
            changed.append(f"\n  {section}.{key}: {before} -> {after}")
        if changed:
            raise BadValue(
                f"{folder} contains a run with different settings:{''.join(changed)}\nChoose another --out, start over "
                f"with --overwrite, or continue with the run's own settings: palestra train --out {folder} --resume"
            )
    if last is None or not readable_settings(folder):
        write_settings(folder, {"config": tables, "versions": _versions(), "command": sys.argv})
    return last


def damaged_start(path: Path, problem: object) -> BadValue:
    """Return the error for a run that cannot continue because its model at the start of RL is missing or damaged."""
    return BadValue(
        f"{path}, the model at the start of RL, is missing or damaged ({problem}). Restore it from a copy, or start "
        "over with --overwrite (overwrite=True)"
    )


@cache  # finding a package's metadata takes about 10 ms
def _versions() -> dict[str, str]:
    versions = {"palestra": __version__, "python": platform.python_version()}
    return versions | {name: version(name) for name in ("torch", "transformers", "tokenizers")}
