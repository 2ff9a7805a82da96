"""Test that Palestra's environments can be created and played through skyrl_gym's registry."""

from __future__ import annotations

from typing import Any

import pytest
import skyrl_gym

from palestra.integrations.skyrl_gym import register_all, task_rows
from palestra.registry import list_envs, make

# One environment per family that needs neither a download nor Java.
FAMILIES = [
    "game:GuessTheNumber-v0-easy",
    "math:Arithmetic-v0-easy",
    "code:Puzzles-v0-easy",
    "logic:Rules-v0-d1",
    "qa:World-v0-2hop",
    "search:World-v0-2hop",
    "sql:Library-v0-easy",
    "rg:leg_counting",
    "babyai:GoToObjS6-v0",
    "textcraft:Depth2-v0",
    "webshop:test-text",
]


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    register_all()


@pytest.mark.parametrize("name", FAMILIES)
def test_registry_plays_every_family(name: str) -> None:
    row = task_rows(name, 1, seed=3)[0]
    env = skyrl_gym.make(row["env_class"], env_config=None, extras=row)
    system = {"role": "system", "content": "Play well."}
    messages, info = env.init([system])
    reference = make(name)
    first, _ = reference.reset(seed=row["seed"])
    assert messages[0] == system
    assert messages[1] == {"role": "user", "content": first}
    assert info["seed"] == row["seed"]
    total, done = 0.0, False
    while not done:
        output: Any = env.step(str(reference.expert_action()))
        expected = reference.step(str(reference.expert_action()))
        assert output["reward"] == expected.reward
        done = output["done"]
        assert done == (expected.terminated or expected.truncated)
        total += output["reward"]
    assert env.get_metrics() == {"success": 1.0, "turns": env.turns, "episode_reward": total}
    env.close()


def test_every_id_is_registered() -> None:
    assert {f"palestra/{env_id}" for env_id in list_envs()} <= set(skyrl_gym.registry)
    assert register_all() == []
    env: Any = skyrl_gym.make("palestra/game:Wordle-v0-easy", extras={"seed": 4})
    assert "Wordle" in env.init([])[0][0]["content"]
