from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from palestra.errors import BadValue
from palestra.training.config import TrainConfig, from_mapping, read_recipe

GAME = "game:GuessTheNumber-v0-easy"


def test_a_recipe_is_flat_settings_under_any_headings(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text(f'env = "{GAME}"\n[rollout]\nepisodes = 64\n[learning]\nlr = 1\nalgo = "grpo"\n')
    config = from_mapping(read_recipe(path))
    assert (config.env, config.episodes, config.lr, config.algo) == ((GAME,), 64, 1.0, "grpo")


def test_what_is_saved_is_read_back() -> None:
    config = from_mapping({"env": [GAME, "game:Sudoku-v0-easy=3"], "steps": 7})
    assert from_mapping(json.loads(json.dumps(config.to_dict()))) == config
    assert config.envs == {GAME: 1.0, "game:Sudoku-v0-easy": 3.0}


def test_the_folder_is_named_after_the_run() -> None:
    assert from_mapping({"env": GAME, "seed": 3}).folder == Path("runs/GuessTheNumber-v0-easy-rebn-3")
    assert from_mapping({"env": GAME, "out": "x/y"}).folder == Path("x/y")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"env": GAME, "epissodes": 3}, "Did you mean episodes"),
        ({}, "name at least one environment"),
        ({"env": GAME, "algo": "grop"}, "algo is one of reinforce"),
        ({"env": GAME, "steps": 0}, "steps is at least 1"),
        ({"env": GAME, "steps": "5"}, "steps is a int"),
        ({"env": GAME, "steps": True}, "steps is a int"),
        ({"env": GAME, "episodes": 10, "group_size": 4}, "multiple of group_size"),
        ({"env": GAME, "gamma": 1.5}, r"lie in \[0, 1\]"),
        ({"env": GAME, "algo": "rloo", "group_size": 1}, "group_size is at least 2"),
        ({"env": GAME, "horizon": "5,10"}, "stages need"),
    ],
)
def test_mistakes_are_named(values: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        from_mapping(values)


@pytest.mark.parametrize("text", [f"{GAME}=x", f"{GAME}=0"])
def test_weights(text: str) -> None:
    with pytest.raises(BadValue):
        TrainConfig(env=(text,)).envs  # noqa: B018


def test_recipes_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="there is no recipe"):
        read_recipe(tmp_path / "none.toml")
    path = tmp_path / "r.toml"
    path.write_text("env = ")
    with pytest.raises(BadValue, match="is no TOML"):
        read_recipe(path)
    path.write_text("[a]\nsteps = 1\n[b]\nsteps = 2\n")
    with pytest.raises(BadValue, match="sets steps twice"):
        read_recipe(path)
