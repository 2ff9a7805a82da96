from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra.errors import StoreFailed
from palestra.wrappers import Record
from tests.evals.players import AnyInfo


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def play(env: palestra.Env, seed: int) -> None:
    env.reset(seed=seed)
    while not env.step(env.expert_action() or "").done:
        pass


def test_one_line_per_episode_suffices_to_replay_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "episodes.jsonl"
    with Record(palestra.make("game:GuessTheNumber-v0-hard", max_turns=9), path) as env:
        for seed in range(3):
            play(env, seed)
    episodes = lines(path)
    assert [episode["seed"] for episode in episodes] == [0, 1, 2]
    for episode in episodes:
        assert episode["finished"]
        assert episode["success"]
        assert episode["return"] == 1.0
        again = palestra.make(episode["env"], **episode["kwargs"])
        assert again.reset(seed=episode["seed"])[0] == episode["prompt"]
        for turn in episode["turns"]:
            step = again.step(turn["action"])
            assert [step.observation, step.reward, step.terminated] == [
                turn["observation"],
                turn["reward"],
                turn["terminated"],
            ]


def test_an_abandoned_episode_is_recorded_as_unfinished(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    env = Record(palestra.make("game:GuessTheNumber-v0-hard"), path)
    env.reset(seed=1)
    env.reset(seed=2)  # an episode without steps is not recorded
    env.step(r"\boxed{99}")
    env.close()
    env.close()
    (episode,) = lines(path)
    assert episode["seed"] == 2
    assert not episode["finished"]


def test_any_action_can_be_written(tmp_path: Path) -> None:
    env = Record(palestra.make("game:GuessTheNumber-v0-hard"), tmp_path / "e.jsonl")
    env.reset(seed=1)
    env.step("\ud800\x00 \u2028 \n")
    assert lines(tmp_path / "e.jsonl")[0]["turns"][0]["action"] == "\ud800\x00 \u2028 \n"


def test_any_info_can_be_written(tmp_path: Path) -> None:
    env = Record(AnyInfo(), tmp_path / "e.jsonl")
    env.reset(seed=1)
    env.step("a")
    info = lines(tmp_path / "e.jsonl")[0]["turns"][0]["info"]
    assert (info["self"][0], info["bytes"]) == ("... (refers to itself)", "<1 bytes>")


def test_forks_and_other_processes_share_the_file(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    env = Record(palestra.make("game:GuessTheNumber-v0-hard"), path)
    workers = [multiprocessing.get_context("spawn").Process(target=_worker, args=(env, i)) for i in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    env.reset(seed=999)
    fork = env.fork()
    env.step("x")
    fork.step("x")
    assert sorted(episode["seed"] for episode in lines(path)) == [*range(60), 999, 999]


def _worker(env: Record, number: int) -> None:
    for seed in range(number * 30, number * 30 + 30):
        play(env, seed)


def test_a_full_disk_is_an_infrastructure_error() -> None:
    env = Record(palestra.make("game:GuessTheNumber-v0-hard"), "/dev/full")
    env.reset(seed=1)
    with pytest.raises(StoreFailed, match="cannot write the episode to /dev/full"):
        env.step("x")
