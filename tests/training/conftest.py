"""Fixtures for the training tests."""

from __future__ import annotations

import pytest

from palestra.training import train
from palestra.training.recipe import from_mapping


@pytest.fixture(scope="session")
def taught(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a run whose model was trained on the random player's games, so that its own returns vary."""
    settings = {
        "env": "game:GuessTheNumber-v0-easy",
        "model": "default:0.1M",
        "out": str(tmp_path_factory.mktemp("taught") / "run"),
        "steps": 1,
        "episodes": 16,
        "group_size": 4,
        "warm_start": 512,
        "warm_epochs": 3,
        "warm_lr": 1e-2,
        "lr": 1e-9,
        "eval_episodes": 8,
        "max_tokens": 8,
        "threads": 1,
    }
    return str(train(from_mapping(settings)).folder)
