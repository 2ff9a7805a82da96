"""Check the invariants of variants that share their code with an id that test_every_env.py checks in full.

All invariants are checked for each variant in this process, with three episodes per player. A new process with a
different hash seed replays episodes of all variants.
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
from palestra.conformance.recording import replay_actions
from tests.conformance.variants import VARIANTS

REPLAY = """
import json, pickle, sys
import palestra
from palestra.conformance.recording import replay_actions
again = []
for env_id, seed, actions, snapshot in pickle.load(sys.stdin.buffer):
    with palestra.make(env_id) as env, palestra.Env.restore(snapshot) as moved:
        prompt, _ = env.reset(seed=seed)
        again.append([env_id, prompt, *replay_actions(env, actions), *replay_actions(moved, actions)])
print(json.dumps(again))
"""


@pytest.mark.parametrize("env_id", VARIANTS)
def test_invariants_of_a_variant(env_id: str) -> None:
    report = palestra.check_env(env_id, episodes=3, seconds=1.0, processes=False)
    assert len(report.passed) == 7
    assert report.notes == ["replays in fresh processes were skipped because of processes=False"]


def test_episodes_are_the_same_in_another_process() -> None:
    """Replay in reverse order, which detects a dependence on earlier episodes."""
    tapes: list[tuple[str, int, list[str], bytes]] = []
    shown: list[list[Any]] = []
    for env_id in reversed(VARIANTS):
        with palestra.make(env_id) as env:
            prompt, _ = env.reset(seed=3)
            snapshot, scout, actions = env.snapshot(), env.fork(), []
            while True:
                actions.append(scout.expert_action() or "")
                if scout.step(actions[-1]).done:
                    break
            record = replay_actions(env, actions)
        tapes.append((env_id, 3, actions, snapshot))
        shown.append([env_id, prompt, *record, *record])
    done = subprocess.run(
        [sys.executable, "-c", REPLAY],
        input=pickle.dumps(tapes),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "4242"},
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert json.loads(done.stdout) == shown
