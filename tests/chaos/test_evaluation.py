"""Chaos in evaluations: environments fail and return invalid rewards, and the process is killed at random moments."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import palestra
from palestra.evals import EvalSettings, EvaluatedAgent, Suite, run_evaluation, suite_entry
from palestra.rollout import read
from tests.chaos.rounds import rounds
from tests.chaos.unreliable import FAULTS, PROCESS_FAULTS, Unreliable, fault_of, is_solvable

ROOT = Path(__file__).parents[2]
ID = "chaos:Unreliable-v0"
EPISODES = 24


def evaluate(folder: Path, chaos: int, faults: list[str], **settings: Any) -> dict[str, Any]:
    entry = suite_entry(ID, n=EPISODES, kwargs={"chaos": chaos, "faults": faults})
    asyncio.run(
        run_evaluation(
            Suite(name="chaos", entries=(entry,)),
            EvaluatedAgent("random"),
            folder,
            settings=EvalSettings(retries=0, give_up_after=EPISODES, **settings),
            command=["palestra", "eval"],
        )
    )
    row: dict[str, Any] = json.loads((folder / "summary.json").read_text())["table"]["total"]
    return row


def test_faulty_environments(tmp_path: Path) -> None:
    """Check that every fault fails only its own episode, and that all other episodes have the correct results."""
    palestra.register(ID, Unreliable)
    try:
        for number, rng in enumerate(rounds("faulty environments")):
            folder, chaos = tmp_path / f"{number}", rng.randrange(10**6)
            faults = rng.sample(FAULTS, 3)
            settings: dict[str, Any] = {"env_backend": rng.choice(["inline", "thread"])}
            if rng.random() < 0.5:
                faults += PROCESS_FAULTS
                settings = {"env_backend": "process", "env_workers": 2, "step_timeout": 5.0, "reset_timeout": 60.0}
            total = evaluate(folder, chaos, faults, **settings)
            failed = healthy = 0
            for trajectory in read(folder / "episodes.jsonl"):
                if fault_of(trajectory.seed, chaos, faults):
                    failed += 1
                    assert trajectory.failure is not None
                else:
                    healthy += 1
                    solved = is_solvable(trajectory.seed)
                    assert (trajectory.failure, trajectory.success) == (None, solved)
                    assert trajectory.total_reward == 0.25 + 0.75 * solved
            assert failed + healthy == EPISODES
            assert (total["episodes"], total["failed"]) == (healthy, failed)
    finally:
        palestra.unregister(ID)


def command(folder: Path, seed: int) -> list[str]:
    args = ["game:GuessTheNumber-v0-easy", "--agent", "tests.evals.players:slow_guess", "-n", "40", "--quiet"]
    return [sys.executable, "-m", "palestra", "eval", *args, "--seed", str(seed), "--out", str(folder)]


def kill_at_random(args: list[str], progress: Path, rng: Random) -> None:
    """Start a process and kill it when it has written a random amount to `progress`, or let it finish."""
    size = progress.stat().st_size if progress.exists() else 0
    wanted = size + rng.randrange(20_000)
    process = subprocess.Popen(args, cwd=ROOT)
    while process.poll() is None and not (progress.exists() and progress.stat().st_size >= wanted):
        time.sleep(0.002)
    process.kill()
    process.wait()


def test_killed_evaluations(tmp_path: Path) -> None:
    """Check that an evaluation that is killed several times has the same table as an uninterrupted one."""
    for number, rng in enumerate(rounds("killed evaluations")):
        killed, whole, seed = tmp_path / f"killed-{number}", tmp_path / f"whole-{number}", rng.randrange(1000)
        for _ in range(rng.randint(1, 2)):
            kill_at_random(command(killed, seed), killed / "episodes.jsonl", rng)
        for folder in (killed, whole):
            assert subprocess.run(command(folder, seed), cwd=ROOT, check=False).returncode == 0
        assert (killed / "table.csv").read_bytes() == (whole / "table.csv").read_bytes()
        tables = [json.loads((folder / "summary.json").read_text())["table"] for folder in (killed, whole)]
        assert tables[0] == tables[1]
        assert tables[0]["total"]["episodes"] == 40
