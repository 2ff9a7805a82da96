"""Replay episodes from every environment in one new process with another hash seed.

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

import palestra
from palestra.conformance.rates import Player, next_action
from palestra.conformance.recording import first_difference, summarize_step
from tests.conformance.variants import READY, VARIANTS

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
MAX_TURNS = 60  # maximum number of turns to record


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


def record_some(env_id: str) -> list[tuple[Episode, list[str]]]:
    """Record four episodes of a main id or two of a variant."""
    with palestra.make(env_id) as env:
        seeds = (3,) if env_id in VARIANTS else (3, 4)
        return [record(env, seed, player) for seed in seeds for player in ("expert", "random")]


def test_episodes_are_the_same() -> None:
    """Replay in reverse order, which detects a dependence on earlier episodes."""
    episodes = [(env_id, record_some(env_id)) for env_id in READY]
    backwards = [(env_id, recorded[::-1]) for env_id, recorded in episodes[::-1]]
    done = subprocess.run(
        [sys.executable, "-c", REPLAY],
        input=pickle.dumps([(env_id, [tuple(episode) for episode, _ in recorded]) for env_id, recorded in backwards]),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "4242"},
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    expected = [(env_id, episode.seed, shown) for env_id, recorded in backwards for episode, shown in recorded]
    for (env_id, seed, shown), again in zip(expected, json.loads(done.stdout), strict=True):
        assert first_difference(shown, again) is None, (env_id, seed)
