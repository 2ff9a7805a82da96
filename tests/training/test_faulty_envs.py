"""Test that a run continues, even after being resumed, if an environment returns invalid rewards or exits."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from palestra.core import Env, Reset
from palestra.training import train
from palestra.training.recipe import from_mapping
from palestra.types import Step


class Faulty(Env):
    """Env with one step that fails for two of three seeds."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        seed = self.start_episode(seed)
        return "Say something.", {"seed": seed}

    def step(self, action: str) -> Step:
        if self.seed % 3 == 0:
            sys.exit(0)
        reward = float("nan") if self.seed % 3 == 1 else float(len(action) % 2)
        return Step("Done.", reward, True, False, {"success": reward > 0})


def test_a_run_goes_on_with_the_other_episodes(tmp_path: Path) -> None:
    settings = {
        "env": f"{__name__}:Faulty",
        "model": "default:0.1M",
        "out": str(tmp_path / "run"),
        "warm_start": 0,
        "episodes": 24,
        "group_size": 2,
        "eval_episodes": 12,
        "max_tokens": 4,
        "retries": 0,
        "threads": 1,
    }
    lines: list[str] = []
    train(from_mapping({**settings, "steps": 1}), log=lines.append)
    described = [line for line in lines if "failed and is left out" in line]
    assert len(described) == len({line.partition("(")[2].partition(")")[0] for line in described}) == 2  # once per kind
    assert all(f"{__name__}:Faulty with seed" in line for line in described)
    assert any("nan" in line for line in described)
    rows = train(from_mapping({**settings, "steps": 2})).rows
    assert [row["step"] for row in rows] == [-1, 0, 1]
    for row in rows[1:]:
        assert 0 < row["failures"] < 24
        assert row["failures_env"] == row["failures"]
        assert 0 <= row["return"] <= 1
