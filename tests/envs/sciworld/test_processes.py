"""Test that Java processes start once, prepare upcoming episodes, are replaced after a failure, and are cleaned up."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import palestra.machine
from palestra.agents import RandomAgent
from palestra.core import Reset, Wrapper
from palestra.envs.sciworld.env import SciWorld, SeedPredictor
from palestra.envs.sciworld.pool import max_processes, pool
from palestra.envs.sciworld.simulator import TaskKey
from palestra.errors import BadValue, EnvFailed
from palestra.rollout import collect
from palestra.seeding import nth_seed
from tests.suspending import suspend

ACTIONS = ["open door to kitchen", "wait", "go to kitchen", "look around"]


def make_env(**kwargs: bool) -> SciWorld:
    return SciWorld(tasks="Find", **{"prepare_next": False, **kwargs})  # type: ignore[arg-type]


def wait_until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600  # generous, because a loaded machine may need minutes
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_one_process_serves_all_and_the_next_episode_is_prepared() -> None:
    pool.close()
    started = pool.started
    with make_env(prepare_next=True) as env, make_env() as other:
        env.reset(seed=3)
        for _ in range(3):
            predicted = env._seeds.next_seed()
            env.step("wait1")
            key = env.episode_of(predicted)
            wait_until(partial(pool.is_ready, key))
            _, info = env.reset(seed=predicted)
            assert (info["task"], info["variation"]) == key[:2]
            assert env._simulation is not None
            assert env._simulation.built  # the simulation is already built
        other.prepare(8)
        wait_until(partial(pool.is_ready, other.episode_of(8)))
        other.reset(seed=8)
        assert other._simulation is not None
        assert other._simulation.built
    assert pool.started == started + 1


def test_rollouts_announce_the_next_episodes() -> None:
    """A rollout prepares its next episodes in advance, so that no reset waits and no unused episode is built."""
    waits: list[bool] = []
    wanted: list[TaskKey] = []

    class Watched(Wrapper):
        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
            assert isinstance(self.env, SciWorld)
            assert seed is not None
            key = self.env.episode_of(seed)
            if wanted:
                wait_until(partial(pool.is_ready, key))  # represents the time that an agent needs for a reply
            waits.append(not pool.is_ready(key))
            wanted.append(key)
            return self.env.reset(seed, options)

    prepared: list[TaskKey] = []
    with pytest.MonkeyPatch.context() as patch:
        original = pool.prepare

        def recording(key: TaskKey) -> None:
            prepared.append(key)
            original(key)

        patch.setattr(pool, "prepare", recording)
        result = asyncio.run(
            collect(
                RandomAgent(),
                "sciworld:Find-v0",
                episodes=5,
                concurrency=1,
                seed=33,  # no other test has prepared its first episode
                kwargs={"max_turns": 2},
                wrappers=[Watched],
            )
        )
    assert len(result.trajectories) == 5
    assert waits == [True, False, False, False, False]
    assert prepared == wanted[1:]


def test_a_cached_first_observation_does_not_wait_for_the_simulation() -> None:
    with make_env() as env:
        first, _ = env.reset(seed=3)
        seen = env.step("look around")
        with pool.simulator().lock:  # the background thread has to wait
            again, _ = env.reset(seed=3)
            assert env._simulation is not None
            assert not env._simulation.built
        assert again == first
        assert env.step("look around") == seen


@pytest.mark.parametrize("how", ["killed", "hanging"])
def test_a_dead_process_is_replaced_and_the_episode_continues(how: str) -> None:
    with make_env() as env:
        env.reset(seed=3)
        alone = [env.step(action) for action in ACTIONS]
        env.reset(seed=3)
        assert env.step(ACTIONS[0]) == alone[0]
        simulator, started = pool.simulators[0], pool.started
        if how == "killed":
            os.kill(simulator.pid, signal.SIGKILL)
        else:
            with simulator.lock:  # a background thread's call would keep the old timeout of minutes
                suspend(simulator.pid)
                simulator.connection.set_timeout(0.5)
        try:
            continued = [env.step(ACTIONS[1])]  # a background thread may already have replaced the process
        except EnvFailed as err:
            assert "may be repeated" in str(err)
            continued = [env.step(ACTIONS[1])]
        wait_until(lambda: not exists(simulator.pid))
        assert continued + [env.step(action) for action in ACTIONS[2:]] == alone[1:]
        assert pool.started == started + 1
        assert len(pool.simulators) == 1


def test_a_forked_child_does_not_touch_the_parents_process() -> None:
    with make_env() as env:
        env.reset(seed=3)
        pid = pool.simulators[0].pid
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the test forks a process with threads
            child = os.fork()
        if child == 0:
            os._exit(0 if not pool.simulators else 1)
        assert os.waitpid(child, 0)[1] == 0
        env.step("wait1")
        assert pool.simulators[0].pid == pid


def test_the_java_process_ends_with_a_killed_parent_and_writes_nothing_to_the_working_directory(tmp_path: Path) -> None:
    code = (
        "import sys, time, palestra; from palestra.envs.sciworld.pool import pool; "
        "palestra.make('sciworld:Find-v0', prepare_next=False).reset(seed=3); "
        "print(pool.simulator().pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path) as parent:
        assert parent.stdout is not None
        java = int(parent.stdout.readline())
        assert exists(java)
        parent.kill()
    wait_until(lambda: not exists(java))
    assert list(tmp_path.iterdir()) == []


def test_tasks_that_are_loaded_at_the_same_time_use_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_SCIWORLD_JVMS", "2")
    pool.close()
    try:
        with pool.loading() as first, pool.loading() as second, pool.loading() as third, pool.loading() as fourth:
            assert first is not second  # a second process is started while the first one loads a task
            assert {third, fourth} == {first, second}  # loads are counted before their instances exist
            assert len(pool.simulators) == 2
        assert first.loading == second.loading == 0
        with make_env() as env, make_env() as other:
            env.reset(seed=3)
            other.reset(seed=3)
            assert env.step("look around") == other.step("look around")
            assert [len(simulator.instances) for simulator in pool.simulators] == [1, 1]
    finally:
        pool.close()


def test_a_second_process_is_not_started_while_the_first_one_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_SCIWORLD_JVMS", "2")
    pool.close()
    with make_env() as env, make_env() as other:
        env.reset(seed=3)
        env.step("wait1")  # the task is loaded now
        other.reset(seed=4)
        other.step("wait1")
        assert len(pool.simulators) == 1


def test_an_episode_does_not_wait_for_the_solution_of_another_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_SCIWORLD_JVMS", "2")
    pool.close()
    try:
        with make_env() as env, make_env() as other:
            env.reset(seed=3)
            solution = other.reset(seed=4) and other.expert_action()
            assert len(pool.solvers) == 1
            with pool.solvers[0].lock:  # as if a solution were being computed
                env.step("look around")
                other.step(solution)
            assert not pool.solvers[0].instances
    finally:
        pool.close()
    assert not pool.solvers


@pytest.mark.parametrize(("cores", "processes"), [(2, 1), (8, 2), (64, 4)])
def test_the_default_number_of_processes_depends_on_the_cores(
    cores: int, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PALESTRA_SCIWORLD_JVMS")
    monkeypatch.setattr(palestra.machine, "usable_cores", lambda: cores)
    assert max_processes() == processes
    monkeypatch.setenv(palestra.machine.WORKER, "1")  # in a worker process, of which there may be one per core
    assert max_processes() == 1


def test_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_SCIWORLD_JVMS", "many")
    with pytest.raises(BadValue, match="PALESTRA_SCIWORLD_JVMS"):
        pool.simulator()


def predicted_seeds(seeds: list[int], *, explicit: bool) -> list[int]:
    predictor, predictions = SeedPredictor(), []
    for seed in seeds:
        predictor.record(seed, explicit=explicit)
        predictions.append(predictor.next_seed())
    return predictions


def test_the_three_seed_sequences_are_predicted() -> None:
    assert predicted_seeds([7, 8, 9, 10], explicit=True)[1:] == [9, 10, 11]
    vector = [7, *(nth_seed(7, episode) for episode in range(1, 6))]
    assert predicted_seeds(vector[:-1], explicit=True) == vector[1:]
    chain = [7]
    for _ in range(4):
        chain.append(nth_seed(chain[-1], 0))
    assert predicted_seeds(chain[:-1], explicit=False) == chain[1:]
