"""Train in another process that kills itself."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tests import warm_process

# Train in this process, and kill it after it has written the metrics of a step, before it saves the checkpoint.
CODE = """
import json, os, signal, sys
from palestra.training import train
from palestra.training.recipe import from_mapping
from palestra.training.trainer import Trainer

record = Trainer.record

def record_and_die(self, row):
    record(self, row)
    if row["step"] == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

Trainer.record = record_and_die
train(from_mapping(json.loads(sys.argv[1])))
"""
NEVER = -2  # no step has this number


def start(settings: dict[str, Any], kill_at: int = NEVER, **environment: str) -> Any:
    """Start a run that is killed in step `kill_at`, and return its process."""
    command = [sys.executable, "-c", CODE, json.dumps(settings), str(kill_at)]
    return warm_process.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
