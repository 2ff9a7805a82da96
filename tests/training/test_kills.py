"""Kill asynchronous and distributed runs with SIGKILL, and resume them; other tests kill the other kinds of runs."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from palestra.rollout import read
from palestra.sockets import listen
from tests.training.killed_runs import NEVER, start

SMALL: dict[str, Any] = {
    "env": "game:GuessTheNumber-v0-easy",
    "model": "default:0.1M",
    "device": "cpu",
    "steps": 3,
    "episodes": 16,
    "group_size": 4,
    "concurrency": 8,
    "eval_every": 2,
    "eval_episodes": 4,
    "max_tokens": 8,
    "warm_start": 0,
    "save_every": 1,
    "threads": 1,
}


def rows(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if "second" not in k} for line in lines]


def test_an_asynchronous_run_loses_and_repeats_no_episode(tmp_path: Path) -> None:
    settings = {**SMALL, "asynchronous": True, "staleness": 1, "out": str(tmp_path)}
    assert start(settings, 1).wait() == -signal.SIGKILL
    assert start(settings).wait() == 0
    assert [row["step"] for row in rows(tmp_path)] == [-1, 0, 1, 2]
    for step in range(3):
        episodes = list(read(tmp_path / "trajectories" / f"step-{step:06d}.jsonl.gz"))
        assert len({(t.seed, t.group, t.member) for t in episodes}) == len(episodes) == 16


def test_the_death_of_a_rank_ends_the_others_and_the_run_resumes(tmp_path: Path) -> None:
    settings = {**SMALL, "steps": 2, "out": str(tmp_path)}

    def ranks(*, killed: bool) -> list[int]:
        with listen("127.0.0.1", 0) as free:
            group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        processes = [
            start(settings, 0 if killed and rank == 1 else NEVER, RANK=str(rank), LOCAL_RANK=str(rank), **group)
            for rank in range(2)
        ]
        return [process.wait() for process in processes]

    assert ranks(killed=True) == [1, -signal.SIGKILL]
    assert ranks(killed=False) == [0, 0]
    assert [row["step"] for row in rows(tmp_path)] == [-1, 0, 1]
