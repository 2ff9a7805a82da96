"""Test learners in two processes that share vLLM servers, one of which is killed while they train."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.training.test_distributed import SCRIPT, has_copies, train_in_two_processes
from tests.vllm.test_training import SHORT, check_steps, rows_of, save_model, servers_of

TWO: dict[str, Any] = {**SHORT, "warm_start": 64, "episodes": 16, "concurrency": 16, "save_every": 1}


def kill_a_server(folder: Path, killed: list[int]) -> None:
    """Kill all processes of one server after the first step."""
    end = time.monotonic() + 1800
    while time.monotonic() < end:
        if (folder / "metrics.jsonl").exists() and any(row["step"] >= 0 for row in rows_of(folder)):
            killed.append(min(servers_of(folder)))
            os.killpg(os.getpgid(killed[0]), signal.SIGKILL)
            return
        time.sleep(0.1)


def test_two_processes_share_two_servers_of_which_one_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = {**TWO, "model": save_model(tmp_path / "model", tied=True), "engine_servers": 2, "out": str(folder)}
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_server, args=(folder, killed), daemon=True)
    killer.start()
    codes, output = train_in_two_processes([{**settings, "steps": 4}], tmp_path / "run.py")
    killer.join()
    assert codes == [0, 0], output
    assert killed
    check_steps(folder, 4, updates=False)
    assert not has_copies(folder)  # the servers sample
    assert servers_of(folder) == []


def test_two_processes_of_torchrun_with_lora(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    settings = {**TWO, "model": save_model(tmp_path / "model", tied=False), "lora_rank": 4, "out": str(folder)}
    (tmp_path / "run.py").write_text(SCRIPT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*torchrun, str(tmp_path / "run.py"), json.dumps([{**settings, "steps": 2}])],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    check_steps(folder, 2, updates=False)
    assert has_copies(folder)  # of the base model, from which the servers start
