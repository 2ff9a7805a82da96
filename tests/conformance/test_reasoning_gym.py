"""Check the invariants of the reasoning-gym environments with few episodes.

All invariants are checked for each dataset in this process, with three episodes per player, at the default level or,
if generating its items is slow, at an easy level. The other levels run the same code, so only one expert episode, the
prompt and the lowest reward are checked. A new process replays the default level and one other level of every dataset.
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
from palestra.conformance.recording import summarize_step
from palestra.parsing import boxed
from tests.conformance.variants import PEEKS

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
# id -> seed; generating one item takes seconds, and much longer with some other seeds
SLOW = {"rg:jugs-l2": 1, "rg:sokoban-l0": 5, "rg:zebra_puzzles-l5": 8}
OTHERS = [env_id for env_id in IDS if env_id not in LAWS and env_id not in SLOW]

REPLAY = """
import json, pickle, sys
import palestra
from palestra.conformance.recording import summarize_step
from palestra.core import Env
again = []
for env_id, seed, action, snapshot in pickle.load(sys.stdin.buffer):
    env = palestra.make(env_id)
    prompt, _ = env.reset(seed=seed)
    moved = Env.restore(snapshot) if snapshot else env
    again.append([env_id, prompt, summarize_step((env if snapshot is None else moved).step(action))])
print(json.dumps(again))
"""


def elsewhere(tapes: list[tuple[str, int, str, bytes | None]], hash_seed: str) -> list[list[str]]:
    """Replay the same seeds and actions in a new process and return the results."""
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
def test_invariants_of_a_data_set(env_id: str) -> None:
    report = palestra.check_env(env_id, episodes=3, seconds=1.0, processes=False, step_timeout=60.0)
    assert len(report.passed) == 7
    assert report.notes == [PEEKS, "replays in fresh processes were skipped because of processes=False"]


def test_items_are_the_same_in_other_processes() -> None:
    """Replay in reverse order, which detects a dependence on earlier items."""
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
        shown.append([env_id, prompt, summarize_step(env.step(action))])
    assert elsewhere(tapes[::-1], "4242") == shown[::-1]


def played(env_id: str, seed: int = 1) -> None:
    spec = palestra.get_spec(env_id)
    with palestra.make(env_id) as env:
        prompt, info = env.reset(seed=seed)
        assert isinstance(prompt, str)
        assert env.example_action() in prompt
        assert "1 attempt" in prompt
        assert info["seed"] == seed
        nothing = env.fork().step("")
        assert (nothing.reward, nothing.info["success"]) == (-0.1, False)
        expert = env.expert_action()
        assert expert is not None
        first, again = env.fork().step(expert), env.step(expert)
        assert summarize_step(first) == summarize_step(again)
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
    played(env_id, SLOW[env_id])


def test_every_id_is_checked() -> None:
    assert {*LAWS, *OTHERS, *SLOW} == set(IDS)
