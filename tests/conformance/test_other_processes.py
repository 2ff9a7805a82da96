"""Replay episodes from every environment in new processes with other hash seeds, one process for all environments.

`check_env` starts two processes per environment, which test_every_env.py does for a few environments only, because
starting a process and importing the packages takes longer than the replays. The ids of reasoning-gym and ScienceWorld
are replayed in their own files.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from typing import NamedTuple

import pytest

import palestra
from palestra.conformance.rates import Player, next_action
from palestra.conformance.recording import first_difference, summarize_step
from tests.conformance.variants import EVERY, VARIANTS

REPLAY = """
import json, pickle, sys
import palestra
from palestra.conformance.recording import replay_actions
results = []
for env_id, episodes in pickle.load(sys.stdin.buffer):
    with palestra.make(env_id) as env:
        for seed, actions, snapshot, rest in episodes:
            prompt, _ = env.reset(seed=seed)
            with palestra.Env.restore(snapshot) as moved:
                results.append([repr(prompt), *replay_actions(env, actions), *replay_actions(moved, rest)])
print(json.dumps(results))
"""
MAX_TURNS = 60  # longer episodes are cut


class Episode(NamedTuple):
    seed: int
    actions: list[str]
    snapshot: bytes  # taken in the middle of the episode
    rest: list[str]  # actions after the snapshot


def record(env: palestra.Env, seed: int, player: Player) -> tuple[Episode, list[str]]:
    """Play an episode and return it with its expected replay: the prompt, all steps, the steps after the snapshot."""
    prompt, _ = env.reset(seed=seed)
    actions: list[str] = []
    shown = [repr(prompt)]
    with env.fork() as played:
        for _ in range(MAX_TURNS):
            actions.append(next_action(played, player) or "")
            step = played.step(actions[-1])
            shown.append(summarize_step(step))
            if step.done:
                break
    middle = len(actions) // 2
    for action in actions[:middle]:
        env.step(action)
    return Episode(seed, actions, env.snapshot(), actions[middle:]), [*shown, *shown[1 + middle :]]


@pytest.fixture(scope="module")
def episodes() -> list[tuple[str, list[tuple[Episode, list[str]]]]]:
    """Record four episodes per main id and two per variant."""
    recorded = []
    for env_id in (*EVERY, *VARIANTS):
        with palestra.make(env_id) as env:
            seeds = (3,) if env_id in VARIANTS else (3, 4)
            recorded.append((env_id, [record(env, seed, player) for seed in seeds for player in ("expert", "random")]))
    return recorded


@pytest.mark.parametrize("hash_seed", ["1", "4242"])
def test_episodes_are_the_same(episodes: list[tuple[str, list[tuple[Episode, list[str]]]]], hash_seed: str) -> None:
    """Replay in reverse order, which detects a dependence on earlier episodes."""
    backwards = [(env_id, recorded[::-1]) for env_id, recorded in episodes[::-1]]
    done = subprocess.run(
        [sys.executable, "-c", REPLAY],
        input=pickle.dumps([(env_id, [tuple(episode) for episode, _ in recorded]) for env_id, recorded in backwards]),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    expected = [(env_id, episode.seed, shown) for env_id, recorded in backwards for episode, shown in recorded]
    for (env_id, seed, shown), again in zip(expected, json.loads(done.stdout), strict=True):
        assert first_difference(shown, again) is None, (env_id, seed)
