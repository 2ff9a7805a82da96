"""Test the tasks in a training step: weights, seeds, horizons and curriculum levels."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.errors import BadValue
from palestra.rollout import Task
from palestra.rollout.types import Trajectory
from palestra.training.config import TrainConfig
from palestra.training.recipe import from_mapping
from palestra.training.tasks import Curriculum, held_out_tasks, training_tasks

EASY, HARD = "game:GuessTheNumber-v0-easy", "game:GuessTheNumber-v0-hard"


def _config(**settings: Any) -> TrainConfig:
    return from_mapping({"env": [EASY, HARD], "episodes": 64, "group_size": 4, **settings})


def _played(env_id: str, won: list[bool]) -> list[Trajectory]:
    return [replace(Trajectory.of(Task(env_id=env_id, seed=i)), success=success) for i, success in enumerate(won)]


@given(st.integers(0, 500), st.integers(0, 2**32))
@settings(max_examples=20)
def test_tasks_depend_on_the_step_only(step: int, seed: int) -> None:
    config = _config(seed=seed)
    curriculum = Curriculum.of(config)
    tasks = training_tasks(config, step, curriculum)
    assert tasks == training_tasks(config, step, curriculum)
    assert len(tasks) == 64
    groups: dict[int, set[tuple[str, int]]] = {}
    for task in tasks:
        groups.setdefault(task.group, set()).add((task.env_id, task.seed))
    assert len(groups) == 16
    assert all(len(shared) == 1 for shared in groups.values())  # all episodes in a group play the same task
    assert not {t.seed for t in tasks} & {t.seed for t in training_tasks(config, step + 1, curriculum)}
    assert not {t.seed for t in tasks} & {t.seed for t in held_out_tasks(config)}


def test_steps_visit_a_data_set_row_by_row() -> None:
    """Check that consecutive steps use consecutive rows, so that an epoch over n rows has n groups."""
    config = _config(env=EASY)
    curriculum = Curriculum.of(config)
    seeds = [
        task.seed
        for step in range(5)
        for task in training_tasks(config, step, curriculum)[:: config.sampling.group_size]
    ]
    assert seeds == list(range(seeds[0], seeds[0] + 5 * 16))


def test_evaluation_can_use_other_environments() -> None:
    config = _config(env=EASY, env_kwargs='{"max_turns": 9}', eval_env=[HARD, EASY], eval_env_kwargs='{"max_turns": 5}')
    tasks = held_out_tasks(config)
    assert Counter(task.env_id for task in tasks) == {EASY: 128, HARD: 128}
    assert all(task.kwargs == {"max_turns": 5} for task in tasks)
    for env_id in (EASY, HARD):
        mine = [task.seed for task in tasks if task.env_id == env_id]
        assert mine == list(range(mine[0], mine[0] + 128))
    assert {task.env_id for task in training_tasks(config, 0, Curriculum.of(config))} == {EASY}
    with pytest.raises(BadValue, match="eval_env_kwargs requires eval_env"):
        _config(eval_env_kwargs='{"max_turns": 5}')
    with pytest.raises(BadValue, match="must be a JSON object"):
        _config(eval_env=[HARD], eval_env_kwargs="[1]")


def test_weights_and_horizon_and_keywords() -> None:
    config = _config(env=[EASY, f"{HARD}=3"], episodes=4000, horizon="2,5@10", env_kwargs='{"max_turns": 9}')
    tasks = training_tasks(config, 10, Curriculum.of(config))
    counts = Counter(task.env_id for task in tasks)
    assert 0.7 < counts[HARD] / len(tasks) < 0.8
    assert {task.options["horizon"] for task in tasks} == {5}
    assert all(task.kwargs == {"max_turns": 9} for task in tasks)
    assert not any(task.options for task in held_out_tasks(config))  # evaluation has no horizon
    assert Counter(t.env_id for t in held_out_tasks(config)) == {EASY: 128, HARD: 128}


def test_a_level_is_added_when_the_previous_one_is_mastered() -> None:
    config = _config(curriculum=0.6)
    level = Curriculum.of(config)
    assert {t.env_id for t in training_tasks(config, 0, level)} == {EASY}
    level = level.after(_played(EASY, [False] * 8))
    level = level.after(_played(EASY, [True] * 8))  # one successful step is not enough
    assert level.open == 1
    for _ in range(5):
        level = level.after(_played(EASY, [True] * 8))
    assert level.open == 2
    assert Curriculum.of(config).resumed(level.state()) == level
    played = Counter(t.env_id for t in training_tasks(_config(curriculum=0.6, episodes=4000), 7, level))
    assert 0.1 < played[EASY] / 4000 < 0.3  # earlier levels are still sampled
    assert level.after(_played(HARD, [True] * 8)).open == 2  # there is no third level


def test_a_curriculum_needs_levels() -> None:
    with pytest.raises(BadValue, match="pass --env several times"):
        Curriculum.of(from_mapping({"env": EASY, "curriculum": 0.5}))
