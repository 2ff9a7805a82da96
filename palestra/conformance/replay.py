"""Play tapes again in a fresh Python with another hash seed; `__main__` is what runs there."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import subprocess
import sys
from typing import Any

from palestra.conformance.recording import Tape
from palestra.core import Env
from palestra.errors import EnvFailed


def replay_elsewhere(
    recipe: dict[str, Any], tapes: list[Tape], snapshots: list[tuple[bytes, tuple[str, ...]]], hash_seed: int
) -> tuple[list[list[str]], list[list[str]]]:
    """The records of `tapes` and of what follows each snapshot, as another process sees them."""
    job = pickle.dumps({"recipe": recipe, "tapes": tapes, "snapshots": snapshots, "path": sys.path})
    child = subprocess.run(
        [sys.executable, "-m", "palestra.conformance"],
        input=job,
        capture_output=True,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        timeout=600,
        check=False,
    )
    if child.returncode != 0:
        raise EnvFailed(f"the replaying process failed:\n{child.stderr.decode(errors='replace')[-2000:]}")
    records, continued = json.loads(child.stdout)
    return records, continued


def build(recipe: dict[str, Any]) -> Env:
    """The environment a recipe describes."""
    if "id" in recipe:
        from palestra.registry import make

        return make(recipe["id"], **recipe["kwargs"])
    target: Any = importlib.import_module(recipe["module"])
    for part in recipe["name"].split("."):
        target = getattr(target, part)
    env: Env = target(*recipe["args"], **recipe["kwargs"])
    return env
