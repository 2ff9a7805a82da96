"""Let runs that share a GPU compute at the same time, with NVIDIA's Multi-Process Service (MPS)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from processes import end_all

CONTROL = "nvidia-cuda-mps-control"
FOLDERS = {"CUDA_MPS_PIPE_DIRECTORY": "pipes", "CUDA_MPS_LOG_DIRECTORY": "logs"}
SECONDS_TO_END = 10  # then it ends programs that still use it


@contextmanager
def service(enabled: bool) -> Iterator[None]:
    """Start MPS for the processes that this one starts; at the end, end these processes and MPS.

    Its pipes are in a temporary folder, so it does not affect other programs on the GPU.
    """
    if not enabled:
        yield
        return
    if shutil.which(CONTROL) is None:
        raise SystemExit(f"--mps needs {CONTROL}, a part of NVIDIA's driver; runs can share a GPU without --mps")
    before = {name: os.environ.get(name) for name in FOLDERS}
    with TemporaryDirectory(prefix="mps-", ignore_cleanup_errors=True) as folder:
        for name, part in FOLDERS.items():
            (Path(folder) / part).mkdir()
            os.environ[name] = str(Path(folder) / part)
        try:
            started = _control("-d")
            if started.returncode != 0:
                reason = (started.stderr or started.stdout).strip() or f"exit code {started.returncode}"
                raise SystemExit(f"{CONTROL} did not start: {reason}")
            try:
                yield
            finally:
                end_all()
                _control(commands=f"quit -t {SECONDS_TO_END}\n")
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _control(*arguments: str, commands: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([CONTROL, *arguments], input=commands, capture_output=True, text=True, check=False)
