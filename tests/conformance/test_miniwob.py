"""Check the invariants of the MiniWoB environments.

All ids share one class, so all invariants are checked for only one id. For 24 other ids, or all in `make conformance`,
the prompt, one invalid action and two random actions are tested, and the same episode is played twice. Episodes of four
ids are replayed in another process. `make conformance` also stops the browser, which is noticed after 25 seconds.
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
from palestra.browser.pool import pool
from palestra.conformance.recording import replay_actions
from tests.conformance.variants import COMPLETE, sample
from tests.suspending import suspend

IDS = palestra.list_envs("miniwob")
FULL = "miniwob:ClickButton-v0"
MOVED = ["miniwob:ClickCheckboxes-v0", "miniwob:ClickMenu-v0", "miniwob:UseAutocomplete-v0", "miniwob:DragShapes-v0"]
REPLAY = """
import json, pickle, sys
import palestra
from palestra.conformance.recording import replay_actions
again = []
for env_id, seed, actions, snapshot in pickle.load(sys.stdin.buffer):
    with palestra.make(env_id) as env, palestra.Env.restore(snapshot) as moved:
        prompt, _ = env.reset(seed=seed)
        again.append([env_id, prompt, *replay_actions(env, actions), *replay_actions(moved, actions[1:])])
print(json.dumps(again))
"""


def test_invariants() -> None:
    report = palestra.check_env(FULL, episodes=3, seconds=1.0, processes=False, step_timeout=120.0)
    assert len(report.passed) == 7
    assert report.notes == ["replays in fresh processes were skipped because of processes=False"]


@pytest.mark.parametrize("env_id", sample(IDS, 24))
def test_one_id(env_id: str) -> None:
    spec = palestra.get_spec(env_id)
    with palestra.make(env_id) as env:
        prompt, info = env.reset(seed=2)
        assert env.example_action() in prompt
        assert f"You have {env.max_turns} turns" in prompt
        assert f"Task: {info['goal']}" in prompt
        assert (env.expert_action() is None) is (spec.expert_success is None)
        actions = ["", env.sample_random_action()]
        shown = replay_actions(env, actions)
        assert "contains no action" in shown[0]
        actions.append(env.sample_random_action())
        if len(shown) == 2 and ", True, False)" not in shown[1]:
            shown += replay_actions(env, actions[2:])
        assert env.reset(seed=2)[0] == prompt
        assert replay_actions(env, actions) == shown


def test_episodes_are_the_same_in_another_process() -> None:
    tapes: list[tuple[str, int, list[str], bytes]] = []
    shown: list[list[Any]] = []
    for env_id in MOVED:
        with palestra.make(env_id) as env:
            prompt, _ = env.reset(seed=3)
            actions: list[str] = []
            record: list[str] = []
            snapshot = b""
            while not record or ", True, False)" not in record[-1]:
                actions.append(env.expert_action() or "")
                record += replay_actions(env, actions[-1:])
                snapshot = snapshot or env.snapshot()
        tapes.append((env_id, 3, actions, snapshot))
        shown.append([env_id, prompt, *record, *record[1:]])
    done = subprocess.run(
        [sys.executable, "-c", REPLAY],
        input=pickle.dumps(tapes[::-1]),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "4242"},
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert json.loads(done.stdout) == shown[::-1]


if COMPLETE:

    def test_an_episode_survives_a_browser_that_hangs() -> None:
        shown: list[list[Any]] = []
        for hangs in (False, True):
            with palestra.make("miniwob:ClickCheckboxes-v0") as env:
                shown.append([env.reset(seed=2)[0]])
                shown[-1] += replay_actions(env, [env.expert_action() or ""])
                if hangs:
                    assert pool.browser is not None
                    suspend(pool.browser.process.pid)
                shown[-1] += replay_actions(env, [env.expert_action() or ""])
        assert shown[0] == shown[1]
