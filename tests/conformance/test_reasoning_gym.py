"""reasoning-gym's ids keep the laws, each checked at a fraction of what a check costs on its own.

A data set goes through all laws in this process, with three episodes of each player, at its defaults or, where those
take long to draw, at an easy level. Its other levels are the same code with other settings: an episode of the expert,
the prompt, the floor. The replays in a fresh process are done in one for all data sets, defaults and one level of each.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from typing import Any

import pytest

import palestra
from palestra.conformance.recording import shown_by
from palestra.parsing import boxed

IDS = palestra.list_envs("rg")
DEFAULTS = [env_id for env_id in IDS if palestra.get_spec(env_id).parts.variant is None]
EASIER = {
    "rg:arc_agi": "rg:arc_agi-l0",
    "rg:futoshiki": "rg:futoshiki-l0",
    "rg:intermediate_integration": "rg:intermediate_integration-l0",
    "rg:puzzle24": "rg:puzzle24-l0",
    "rg:rush_hour": "rg:rush_hour-l0",
    "rg:sokoban": "rg:sokoban-l1",
    "rg:zebra_puzzles": "rg:zebra_puzzles-l0",
}
LAWS = [EASIER.get(env_id, env_id) for env_id in DEFAULTS]
SLOW = ["rg:jugs-l2", "rg:sokoban-l0", "rg:zebra_puzzles-l5"]  # seconds an item
OTHERS = [env_id for env_id in IDS if env_id not in LAWS and env_id not in SLOW]

REPLAY = """
import json, pickle, sys
import palestra
from palestra.conformance.recording import shown_by
from palestra.core import Env
again = []
for env_id, seed, action, snapshot in pickle.load(sys.stdin.buffer):
    env = palestra.make(env_id)
    prompt, _ = env.reset(seed=seed)
    moved = Env.restore(snapshot) if snapshot else env
    again.append([env_id, prompt, shown_by(env.step(action)) if snapshot is None else shown_by(moved.step(action))])
print(json.dumps(again))
"""


def elsewhere(tapes: list[tuple[str, int, str, bytes | None]], hash_seed: str) -> list[list[str]]:
    """What the same seeds and actions show in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", REPLAY],
        input=pickle.dumps(tapes),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    found: list[list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("env_id", LAWS)
def test_laws_of_a_data_set(env_id: str) -> None:
    report = palestra.check_env(env_id, episodes=3, seconds=1.0, processes=False, step_timeout=60.0)
    assert len(report.passed) == 7
    assert report.notes == ["replays in fresh processes were left out"]


def test_items_are_the_same_in_other_processes() -> None:
    """Laws 1 and 5 across processes; backwards, as what was drawn before must not matter."""
    first: dict[str, str] = {}
    for env_id in OTHERS:
        if env_id not in DEFAULTS:
            first.setdefault(palestra.get_spec(env_id).kwargs["name"], env_id)
    tapes: list[tuple[str, int, str, bytes | None]] = []
    shown: list[list[str]] = []
    for number, env_id in enumerate([*LAWS, *first.values()]):
        env: Any = palestra.make(env_id)
        prompt, _ = env.reset(seed=1)
        action = env.expert_action() if number % 2 else boxed(number)
        tapes.append((env_id, 1, action, env.snapshot() if number % 3 else None))
        shown.append([env_id, prompt, shown_by(env.step(action))])
    assert elsewhere(tapes[::-1], "4242") == shown[::-1]


def played(env_id: str) -> None:
    spec = palestra.get_spec(env_id)
    with palestra.make(env_id) as env:
        prompt, info = env.reset(seed=1)
        assert isinstance(prompt, str)
        assert env.example_action() in prompt
        assert "1 attempt" in prompt
        assert info["seed"] == 1
        nothing = env.fork().step("")
        assert (nothing.reward, nothing.info["success"]) == (-0.1, False)
        expert = env.expert_action()
        assert expert is not None
        first, again = env.fork().step(expert), env.step(expert)
        assert shown_by(first) == shown_by(again)
        assert first.done
        assert first.info["success"] or spec.expert_success != 1.0, (env_id, first.info)
        assert first.reward == (1.0 if first.info["success"] else 0.0)


@pytest.mark.parametrize("part", range(8))
def test_other_settings(part: int) -> None:
    for env_id in OTHERS[part::8]:
        played(env_id)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", SLOW)
def test_slow_settings(env_id: str) -> None:
    played(env_id)


def test_no_id_is_left_out() -> None:
    assert {*LAWS, *OTHERS, *SLOW} == set(IDS)
