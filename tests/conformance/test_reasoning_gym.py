"""Check the invariants of the reasoning-gym environments with few episodes.

All datasets share one class, so all invariants are checked for a few of them. For each dataset, the invariants that may
depend on its generator and its scorer are checked, including hostile actions, at the default level or, if generating
its items is slow, at an easy level. The other levels run the same code, so only one expert episode, the prompt and the
lowest reward are checked, for a quarter of these levels in each run. A new process replays one level of every dataset.
`make conformance` checks all invariants for each dataset, and all levels, including those whose items take seconds to
generate.
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
from palestra.conformance import invariants
from palestra.conformance.recording import summarize_step
from palestra.parsing import boxed
from tests.conformance.variants import COMPLETE, PEEKS, check_briefly, sample

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
FULL = LAWS if COMPLETE else ["rg:ab", "rg:chain_sum", "rg:countdown", "rg:letter_counting", "rg:mini_sudoku"]
# id -> seed; generating one item takes seconds, and much longer with some other seeds
SLOW = {
    "rg:jugs-l2": 1,
    "rg:n_queens-l4": 1,
    "rg:sokoban-l0": 5,
    "rg:sokoban-l7": 1,
    "rg:sokoban-l8": 1,
    "rg:zebra_puzzles-l3": 1,
    "rg:zebra_puzzles-l4": 1,
    "rg:zebra_puzzles-l5": 8,
}
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
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "TZ": "Asia/Tokyo"},
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    found: list[list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("part", range(8))
def test_every_generator_and_scorer(part: int) -> None:
    for env_id in LAWS[part::8]:
        invariants.any_action(check_briefly(env_id)[0])
        with palestra.make(env_id) as env:
            env.reset(seed=1)
            assert not env.step(boxed("zyx")).info["success"], env_id


@pytest.mark.parametrize("env_id", FULL)
def test_invariants_of_a_data_set(env_id: str) -> None:
    report = palestra.check_env(env_id, episodes=3, seconds=1.0, processes=False, step_timeout=60.0)
    assert len(report.passed) == 7
    assert report.notes == [PEEKS, "replays in fresh processes were skipped because of processes=False"]


def test_items_are_the_same_in_other_processes() -> None:
    """Replay in reverse order, which detects a dependence on earlier items, and in another time zone."""
    tapes: list[tuple[str, int, str, bytes | None]] = []
    shown: list[list[str]] = []
    for number, env_id in enumerate(LAWS):
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


@pytest.mark.parametrize("part", range(8 if COMPLETE else 2))
def test_other_settings(part: int) -> None:
    for env_id in [*sample(OTHERS, len(OTHERS) // 4), *(SLOW if COMPLETE else ())][part :: 8 if COMPLETE else 2]:
        played(env_id, SLOW.get(env_id, 1))


def test_every_id_is_checked() -> None:
    assert {*LAWS, *OTHERS, *SLOW} == set(IDS)
    for env_id in SLOW:
        palestra.make(env_id).close()
