"""Test each warning on a training run that is configured to have the problem that the warning reports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from palestra.algorithms.hooks import register_reward_hook
from palestra.rollout.types import Trajectory
from palestra.training import train
from palestra.training.recipe import from_mapping
from palestra.training.reporting.warnings import Warnings

torch.set_num_threads(1)

ENV = "game:GuessTheNumber-v0-easy"


def long_replies(trajectories: Sequence[Trajectory]) -> list[list[float]]:
    return [[float(sum(len(call.ids) for call in turn.action.calls)) for turn in t.turns] for t in trajectories]


def invalid_actions(trajectories: Sequence[Trajectory]) -> list[list[float]]:
    return [[float("invalid" in turn.info) for turn in t.turns] for t in trajectories]


register_reward_hook("test-long-replies", long_replies)
register_reward_hook("test-invalid-actions", invalid_actions)

FREE = {"lr": 1e-2, "lr_schedule": "linear", "lr_warmup": 0, "target_kl": 0.0, "kl_backtrack": 0.0, "max_kl": 0.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"entropy": -1.0, **FREE}, "the policy has stopped exploring"),
        ({"model": "default:0.1M", "warm_start": 0, "steps": 5}, "no learning signal in 5 of the last 5 steps"),
        ({"reward_hook": "test-invalid-actions", **FREE}, "the model loses the action format"),
        (
            {"reward_hook": "test-long-replies", "max_tokens": 16, "steps": 12, **FREE},
            "may favor longer text. Lower --max-tokens",
        ),
        ({**FREE, "kl_backtrack": 1e-9, "steps": 5}, "the KL limit --kl-backtrack was exceeded in 5 of the last 5"),
        ({**FREE, "lr": 1.0, "steps": 2}, "a step changed the policy by a KL of"),
    ],
    ids=["entropy", "signal", "format", "length", "backtracking", "kl"],
)
def test_a_run_that_goes_wrong_is_reported(settings: dict[str, Any], words: str, taught: str, tmp_path: Path) -> None:
    small = {"steps": 8, "episodes": 16, "concurrency": 16, "group_size": 1, "eval_every": 0, "eval_episodes": 4}
    common = {"env": ENV, "model": taught, "optimizer": "muon", "minibatches": 4, "store": False, "max_tokens": 8}
    lines: list[str] = []
    train(from_mapping({**common, **small, "out": str(tmp_path), "threads": 1, **settings}), log=lines.append)
    assert sum(words in line for line in lines) == 1, lines


def test_healthy_runs_have_no_warnings() -> None:
    """Check runs that start at different success rates, learn, and become almost deterministic."""
    for seed in range(20):
        rng = Random(seed)
        warnings = Warnings(from_mapping({"env": ENV}))
        rows: list[dict[str, Any]] = [{"step": -1, "eval_success": 0.3}]
        start = rng.uniform(0.05, 0.7)
        for step in range(60):
            done = min(1.0, step / 50)
            success = start + (0.97 - start) * done + rng.gauss(0, 0.02)
            row = {
                "success": success,
                "entropy": 0.6 * (1 - done) + 0.02 + rng.uniform(0, 0.03),
                "invalid_actions": max(0.0, 0.15 * (1 - done) + rng.gauss(0, 0.02)),
                "tokens_per_reply": 4 + rng.uniform(0, 1),
                "cut_replies": 0.0,
                "step_kl": rng.uniform(0.0, 0.06),
                "signal": 1.0,
            }
            rows.append({"step": step, **row, **({"backtracked": 1.0} if rng.random() < 0.05 else {})})
            assert warnings.check(rows) == []
