"""Test that `--mps` starts NVIDIA's service for the runs of one command and ends it, with a script instead of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.papers.scripts import PAPERS

CONTROL = """#!/bin/sh
folders=$(ls -d "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY" | wc -l)
kill -0 $RUN 2>/dev/null && run=running || run=none
echo "$*:$(cat):$folders folders, run: $run" >> "{log}"
{then}
"""

PROGRAM = """
import os, subprocess, sys
sys.path.insert(0, sys.argv[1])
import mps, processes
with mps.service(True):
    process = processes.Process()
    processes._all.add(process)
    os.environ["RUN"] = str(process._process.pid)
    subprocess.run([mps.CONTROL, "ps"], stdin=subprocess.DEVNULL, check=True)
    command = ["sh", "-c", "echo $CUDA_MPS_PIPE_DIRECTORY"]
    assert subprocess.check_output(command, text=True).strip() == os.environ["CUDA_MPS_PIPE_DIRECTORY"]
    if sys.argv[2] == "error":
        raise ValueError("a run")
print(process.running, os.environ.get("CUDA_MPS_PIPE_DIRECTORY"))
"""


def run(tmp_path: Path, outcome: str = "", then: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    control = tmp_path / "nvidia-cuda-mps-control"
    control.write_text(CONTROL.format(log=tmp_path / "log", then=then))
    control.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(PAPERS), outcome],
        env={**os.environ, "PATH": path, "TMPDIR": str(tmp_path), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_service_ends_after_the_runs(tmp_path: Path) -> None:
    done = run(tmp_path, CUDA_MPS_PIPE_DIRECTORY="/elsewhere")
    assert (done.stdout, done.stderr) == ("False /elsewhere\n", "")
    assert (tmp_path / "log").read_text().splitlines() == [
        "-d::2 folders, run: none",
        "ps::2 folders, run: running",
        ":quit -t 10:2 folders, run: none",
    ]
    assert not list(tmp_path.glob("mps-*"))


def test_the_service_ends_after_an_error(tmp_path: Path) -> None:
    done = run(tmp_path, "error")
    assert done.stderr.endswith("ValueError: a run\n")
    assert (tmp_path / "log").read_text().splitlines()[-1] == ":quit -t 10:2 folders, run: none"


def test_a_service_that_does_not_start_is_reported(tmp_path: Path) -> None:
    done = run(tmp_path, then="echo 'Cannot find MPS control daemon process' >&2; exit 1")
    assert done.returncode == 1
    assert done.stderr == "nvidia-cuda-mps-control did not start: Cannot find MPS control daemon process\n"
    assert len((tmp_path / "log").read_text().splitlines()) == 1


@pytest.mark.parametrize("script", ["stability.py", "gem.py"])
def test_without_a_driver_the_message_says_what_is_missing(script: str, tmp_path: Path) -> None:
    arguments = [sys.executable, str(PAPERS / script), "--gpu", "--mps", "--out", str(tmp_path)]
    folder = tmp_path / "bin"
    folder.mkdir()
    done = subprocess.run(
        arguments, env={"PATH": str(folder)}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("--mps needs nvidia-cuda-mps-control, a part of NVIDIA's driver"), done.stderr
