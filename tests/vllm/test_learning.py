"""Test that GRPO with a vLLM server learns a game, for models with tied and with separate embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import palestra
from tests.vllm.test_training import COMMON, check_steps, save_model

TARGET = 0.9
# The options are the defaults for an untrained model; the folder of a model counts as trained. With the KL limits and
# the entropy bonus of a trained model, runs with some seeds stall.
LEARNING: dict[str, Any] = {
    **COMMON,
    "episodes": 256,
    "steps": 80,
    "max_tokens": 6,
    "optimizer": "muon",
    "lr": 1e-2,
    "max_grad_norm": 0.3,
    "minibatches": 8,
    "gamma": 0.9,
    "target_kl": 0.03,
    "kl_backtrack": 0.06,
    "entropy": 0.01,
    "entropy_floor": 0.3,
    "cut_penalty": 0.1,
    "warm_start": 208,
    "warm_player": "expert",
    "eval_every": 2,
    "eval_episodes": 256,
    "target": TARGET,
    "threads": 1,
}


# The expert's games teach the reply format and part of the strategy: usually the first three guesses, which find 7 of
# the 10 numbers. GRPO has to learn the later guesses.
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_grpo_reaches_the_target(tmp_path: Path, tied: bool) -> None:
    model = save_model(tmp_path / "model", tied=tied)
    run = palestra.train(**LEARNING, model=model, out=str(tmp_path / "run"), progress=False)
    rates = [round(rate, 3) for rate in run.evaluations]
    print(f"success on held-out games, {'tied' if tied else 'untied'}: {rates}")
    assert rates[0] < 0.87, rates
    assert rates[-1] >= TARGET, rates
    assert run.final_success is not None
    assert run.final_success >= TARGET - 0.1, rates  # lower, because the run ends at its first good evaluation
    check_steps(tmp_path / "run", len([row for row in run.rows if row["step"] >= 0]))
