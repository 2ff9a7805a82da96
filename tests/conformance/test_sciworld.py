"""Check the invariants of the ScienceWorld environments with few episodes, since each reset takes 0.1 s.

All ids share one class with different tasks. The invariants are checked for one id, which mixes several task types, in
short episodes; `make conformance` runs the complete check, which includes hostile actions (tests/envs/sciworld tests
some of them). Recordings of every task group are replayed in another process. For 12 ids, and for all in `make
conformance`, the prompt, a random action and an invalid action are tested. Gold paths are tested on tasks with short
solutions.
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
from palestra.conformance import invariants, success_rate
from palestra.conformance.recording import replay_actions
from palestra.envs.sciworld.tasks import TYPES
from tests.conformance.variants import COMPLETE, check_briefly, sample

IDS = palestra.list_envs("sciworld")
SHORT: dict[str, Any] = {"max_turns": 3, "prepare_next": False}
MIXED = "sciworld:Lifespan-v0-test"  # ScienceWorld finds solutions of its tasks quickly
GROUPS = [  # one id per group
    MIXED,
    "sciworld:ChemistryMix-v0-dev",
    "sciworld:Find-v0",
    "sciworld:Measure-v0",
    "sciworld:TestConductivity-v0",
]
QUICK = ["sciworld:FindNonLivingThing-v0", "sciworld:Lifespan-v0-test"]  # ids whose episodes take a few seconds

REPLAY = """
import json, pickle, sys
import palestra
from palestra.conformance.recording import replay_actions
again = []
for env_id, seed, actions, snapshot in pickle.load(sys.stdin.buffer):
    with palestra.make(env_id, max_turns=3, prepare_next=False) as env, palestra.Env.restore(snapshot) as moved:
        prompt, _ = env.reset(seed=seed)
        again.append([env_id, prompt, *replay_actions(env, actions), *replay_actions(moved, actions[2:])])
print(json.dumps(again))
"""


@pytest.mark.slow
def test_invariants() -> None:
    if not COMPLETE:
        subject, recordings = check_briefly(MIXED, **SHORT)
        invariants.no_side_effects(subject, frozenset())
        invariants.determinism(subject, recordings)
        invariants.cleanup(subject)
        return
    report = palestra.check_env(MIXED, kwargs=SHORT, episodes=2, seconds=1.0, processes=False, step_timeout=120.0)
    assert len(report.passed) == 7
    assert report.notes == [
        "the environment sets expert_peeks, so the expert may read hidden state",
        "replays in fresh processes were skipped because of processes=False",
    ]


def test_episodes_are_the_same_in_another_process() -> None:
    """Replay in reverse order, which detects a dependence on earlier episodes."""
    tapes: list[tuple[str, int, list[str], bytes]] = []
    shown: list[list[Any]] = []
    for env_id in (*GROUPS, "sciworld:All-v0", "sciworld:GrowFruit-v0"):
        with palestra.make(env_id, **SHORT) as env:
            prompt, _ = env.reset(seed=3)
            actions = ["wait", env.sample_random_action(), "look around"]
            record = replay_actions(env, actions[:2])
            snapshot = env.snapshot()
            rest = replay_actions(env, actions[2:])
        tapes.append((env_id, 3, actions, snapshot))
        shown.append([env_id, prompt, *record, *rest, *rest])
    done = subprocess.run(
        [sys.executable, "-c", REPLAY],
        input=pickle.dumps(tapes[::-1]),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "4242"},
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert json.loads(done.stdout) == shown[::-1]


@pytest.mark.parametrize("env_id", sample(IDS, 12))
def test_one_id_states_its_budget_and_accepts_actions(env_id: str) -> None:
    spec = palestra.get_spec(env_id)
    with palestra.make(env_id, prepare_next=False) as env:
        prompt, info = env.reset(seed=2)
        assert env.example_action() in prompt
        assert f"You have {env.max_turns} turns" in prompt
        assert info["variation"] in TYPES[info["task"]].split(spec.kwargs.get("data_split", "train"))
        assert env.reward_range == spec.reward_range
        assert env.step("").info["invalid"] == "format"
        assert "invalid" not in env.step(env.example_action()).info
        assert env.step(env.sample_random_action()).observation


@pytest.mark.parametrize("env_id", sample(QUICK, 1))
def test_gold_paths_solve_their_tasks(env_id: str) -> None:
    with palestra.make(env_id, prepare_next=False) as env:
        assert success_rate(env, "expert", range(3)).value == 1.0
