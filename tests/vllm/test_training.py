"""Test training with vLLM servers: LoRA, and resuming after the trainer was killed."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import palestra
from tests.training.killed_runs import start
from tests.vllm.test_policy_engine import make

ENV = "game:GuessTheNumber-v0-easy"
COMMON: dict[str, Any] = {
    "env": ENV,
    "engine": "vllm",
    "engine_kwargs": {"max_context": 1024, "start_timeout": 600.0},
    "algorithm": "grpo",
    "group_size": 8,
    "concurrency": 64,
    "seed": 1,
}
SHORT: dict[str, Any] = {
    **COMMON,
    "steps": 3,
    "episodes": 32,
    "max_tokens": 16,
    "optimizer": "muon",
    "lr": 1e-3,
    "warm_start": 320,
    "warm_player": "expert",
    "eval_episodes": 8,
    "threads": 1,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a tiny untrained model and return its folder."""
    return save_model(tmp_path_factory.mktemp("tiny"), tied=True)


def save_model(folder: Path, *, tied: bool) -> str:
    for part in make(tied=tied):
        part.save_pretrained(folder)
    return str(folder)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def check_steps(folder: Path, steps: int, *, updates: bool = True) -> None:
    """Check that every step was trained on fresh samples of the right weights."""
    rows = [row for row in rows_of(folder) if row["step"] >= 0]
    assert [row["step"] for row in rows] == list(range(steps))
    assert all(row["probe_difference"] < 1e-3 for row in rows)
    assert all(row["engine_kl"] < 1e-4 for row in rows)
    assert all(row["staleness_max"] == 0 for row in rows)
    assert all("is_weight_mean" in row for row in rows)
    assert not updates or sum(row.get("updates", 0) for row in rows) > 0


def test_lora(tmp_path: Path, model: str) -> None:
    palestra.train(**SHORT, model=model, lora_rank=4, out=str(tmp_path))
    check_steps(tmp_path, 3, updates=False)  # the warm start trains the adapter, but too little to solve a task


def test_resume_after_the_trainer_was_killed(tmp_path: Path, model: str) -> None:
    settings = {**SHORT, "model": model, "save_every": 1, "out": str(tmp_path)}
    killed = start(settings, kill_at=1)
    try:
        assert killed.wait(timeout=1800) == -signal.SIGKILL
    finally:
        if killed.poll() is None:
            killed.kill()
    deadline = time.monotonic() + 60
    while servers_of(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert servers_of(tmp_path) == []  # the servers ended with the trainer
    palestra.train(**settings)
    check_steps(tmp_path, 3)


def servers_of(folder: Path) -> list[int]:
    """Return the process ids of the servers that were started for a run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if str(folder / "engine" / "model").encode() in command:
            found.append(int(path.parent.name))
    return found
