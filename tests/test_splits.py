"""Test splits: training and test tasks never overlap, in environments, training runs and evaluations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.core import Env
from palestra.errors import BadValue, ConformanceError, EpisodeOver, ResetNeeded
from palestra.evals.suite import suite_entry
from palestra.registry import with_split
from palestra.rollout import Trajectory
from palestra.rollout.task_log import TaskLog, overlap, read_training_tasks
from palestra.rollout.types import Task
from palestra.spec import check_split, fingerprint, split_of

WORDLE = "game:Wordle-v0-easy"


class Pick(Env):
    """Env whose task is a number from 0 to `tasks` - 1."""

    def __init__(
        self, *, tasks: int = 1_000, split: str | None = None, leaky: bool = False, fixed: bool = False
    ) -> None:
        self.tasks = tasks
        self.num_tasks = tasks if fixed else None
        self.split = check_split(split)
        self.filters_tasks = not leaky

    running = False
    reward_range = (0.0, 1.0)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.start_episode(seed)
        self.number = self.sample_task(lambda: self.rng.randrange(self.tasks), key=int)
        self.running = True
        return f"Say {self.number}, as in 12.", {"seed": self.seed, "task_id": self.task_id}

    def step(self, action: str) -> Any:
        if not self.running:
            raise EpisodeOver("call reset()") if hasattr(self, "number") else ResetNeeded("call reset()")
        self.running = False
        right = action == str(self.number)
        return "The end.", float(right), True, False, {"success": right}

    def example_action(self) -> str:
        return "12"

    def sample_random_action(self) -> str:
        return str(self.player_rng.randrange(self.tasks))


@given(seeds=st.lists(st.integers(0, 2**40), min_size=2, max_size=40))
@settings(max_examples=50)
def test_no_task_is_in_both_splits(seeds: list[int]) -> None:
    tasks = {}
    for split in ("train", "test"):
        env = Pick(split=split)
        tasks[split] = {env.reset(seed=seed)[1]["task_id"] for seed in seeds}
        assert {split_of(task) for task in tasks[split]} == {split}
    assert not tasks["train"] & tasks["test"]


def test_one_task_in_eight_is_held_out() -> None:
    share = sum(split_of(fingerprint(key)) == "test" for key in range(8_000)) / 8_000
    assert share == pytest.approx(1 / 8, abs=0.02)


def test_a_split_does_not_change_the_episodes_of_all_tasks() -> None:
    """A seed whose task belongs to the split starts the same episode as without a split."""
    everything, train = Pick(), Pick(split="train")
    kept = [seed for seed in range(50) if split_of(everything.reset(seed=seed)[1]["task_id"]) == "train"]
    assert kept
    for seed in kept:
        assert train.reset(seed=seed) == everything.reset(seed=seed)


def test_too_few_tasks_raise() -> None:
    other = "train" if split_of(fingerprint(0)) == "test" else "test"
    with pytest.raises(BadValue, match="too few tasks"):
        Pick(tasks=1, split=other).reset(seed=1)


@pytest.mark.parametrize("env_id", [WORDLE, "math:Arithmetic-v0-easy", "textcraft:Depth2-v0"])
def test_invalid_split(env_id: str) -> None:
    with pytest.raises(BadValue, match='split must be "train", "test" or None'):
        palestra.make(env_id, split="validation")


def test_with_split() -> None:
    assert with_split(WORDLE, {"max_turns": 3}, "test") == {"max_turns": 3, "split": "test"}
    assert with_split(WORDLE, {"split": "train"}, "test") == {"split": "train"}
    assert with_split("game:TowerofHanoi-v0-easy", {}, "test") == {}
    assert with_split("sciworld:Find-v0", {"data_split": "dev"}, "test") == {"data_split": "dev"}


def test_evaluations_use_the_test_split() -> None:
    entry = suite_entry(WORDLE, n=2)
    assert entry.kwargs == {"split": "test"}
    assert entry.name == WORDLE


@pytest.mark.parametrize(("registered", "given"), [({"leaky": True}, {}), ({}, {"leaky": True})])
def test_conformance_finds_a_leak(registered: dict[str, Any], given: dict[str, Any]) -> None:
    palestra.register(
        "splits:Pick-v0", Pick, splits=("train", "test"), reward_range=(0.0, 1.0), random_success=0.0, **registered
    )
    try:
        with pytest.raises(ConformanceError, match="has the same task as seed"):
            palestra.check_env("splits:Pick-v0", kwargs=given, episodes=3)
        with pytest.raises(ConformanceError, match="has the same task as seed"):
            palestra.check_env(palestra.make("splits:Pick-v0", **given), episodes=3)
    finally:
        palestra.unregister("splits:Pick-v0")


def test_a_fixed_list_of_tasks_need_not_be_split() -> None:
    """Keyword arguments may fix the tasks, such as the `size` of a reasoning-gym dataset."""
    palestra.register("splits:Pick-v0", Pick, splits=("train", "test"), reward_range=(0.0, 1.0), random_success=0.0)
    try:
        fixed = {"leaky": True, "fixed": True}
        assert "validity" in palestra.check_env("splits:Pick-v0", kwargs=fixed, episodes=3, processes=False).passed
    finally:
        palestra.unregister("splits:Pick-v0")


def played(*tasks: str) -> list[Trajectory]:
    return [replace(Trajectory.of(Task(env_id=WORDLE, seed=i)), task_id=task) for i, task in enumerate(tasks)]


def test_the_log_of_training_tasks_survives_a_resume(tmp_path: Path) -> None:
    log = TaskLog(tmp_path, from_step=-1)
    log.add(0, played("a", "b", "a"))
    log.add(1, played("b", "c", ""))
    assert read_training_tasks(tmp_path) == frozenset({"a", "b", "c"})
    resumed = TaskLog(tmp_path, from_step=1)  # step 1 is repeated
    assert resumed.tasks == {"a", "b"}
    assert read_training_tasks(tmp_path) == frozenset({"a", "b"})
    assert read_training_tasks(tmp_path / "elsewhere") is None


def test_overlap() -> None:
    assert overlap(played("a", "b", "b", "x"), {"b"}) == (3, 0.5)
    assert overlap(played("", ""), {"b"}) is None
