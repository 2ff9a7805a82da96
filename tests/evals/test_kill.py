"""Test that an evaluation of 500 episodes that is killed ten times has the same table as an uninterrupted run."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests import warm_process
from tests.evals.players import GAME

ROOT = Path(__file__).parents[2]
KILLS, EPISODES = 10, 500


def command(folder: Path, concurrency: int) -> list[str]:
    args = [GAME, "--agent", "tests.evals.players:slow_guess", "-n", "125", "-k", "4", "--quiet", "--out", str(folder)]
    return [sys.executable, "-m", "palestra", "eval", *args, "--concurrency", str(concurrency)]


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.slow
def test_ten_kills_do_not_change_the_table(tmp_path: Path) -> None:
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    path = killed / "episodes.jsonl"
    for kill in range(KILLS):
        wanted = lines(path) + 20 + 3 * kill
        process = warm_process.Popen(command(killed, 4), cwd=ROOT)
        while lines(path) < wanted:
            assert process.poll() is None, "the evaluation ended before it could be killed"
            time.sleep(0.005)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert lines(path) < EPISODES
    before = path.read_bytes()
    assert warm_process.run(command(killed, 4), cwd=ROOT, check=False).returncode == 0
    # Finished episodes are preserved byte for byte; a kill may leave one partial line.
    whole_lines = before[: before.rfind(b"\n") + 1]
    assert path.read_bytes().startswith(whole_lines)
    played = Counter((data["seed"], data["member"]) for data in map(json.loads, path.read_bytes().splitlines()))
    assert len(played) == EPISODES
    assert set(played.values()) == {1}  # no finished episode was played again
    assert warm_process.run(command(whole, 16), cwd=ROOT, check=False).returncode == 0
    assert (killed / "table.csv").read_bytes() == (whole / "table.csv").read_bytes()
    tables = [json.loads((folder / "summary.json").read_text())["table"] for folder in (killed, whole)]
    assert tables[0] == tables[1]
    assert tables[0]["total"]["episodes"] == EPISODES
