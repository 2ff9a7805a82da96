"""Replay recordings in a fresh Python process that has a different hash seed and runs `palestra.conformance`."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable

from palestra.conformance.recording import Recording
from palestra.core import Env
from palestra.errors import EnvFailed


def replay_in_process(
    factory: Callable[[], Env],
    recordings: list[Recording],
    snapshots: list[tuple[bytes, tuple[str, ...]]],
    hash_seed: int,
) -> tuple[list[list[str]], list[list[str]]]:
    """Replay in another process; return the records for `recordings` and for the steps taken after each snapshot."""
    job = pickle.dumps({"factory": factory, "recordings": recordings, "snapshots": snapshots})
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
