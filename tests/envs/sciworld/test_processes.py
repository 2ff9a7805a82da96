"""Java processes: started once, prepared ahead, replaced when they die, never left behind."""

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

from palestra.agents import RandomAgent
from palestra.core import Reset, Wrapper
from palestra.envs.sciworld.engine import Key
from palestra.envs.sciworld.env import SciWorld
from palestra.envs.sciworld.foresight import Foresight
from palestra.envs.sciworld.pool import pool
from palestra.errors import BadValue, EnvFailed
from palestra.rollout import collect
from palestra.seeding import nth_seed

ACTIONS = ["open door to kitchen", "wait", "go to kitchen", "look around"]


def made(**kwargs: bool) -> SciWorld:
    return SciWorld(tasks="Find", **{"prepare_next": False, **kwargs})  # type: ignore[arg-type]


def until(ready: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.02)


def exists(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_one_process_serves_all_and_the_next_episode_is_prepared() -> None:
    pool.close()
    started = pool.started
    with made(prepare_next=True) as env, made() as other:
        env.reset(seed=3)
        for _ in range(3):
            foreseen = env._foresight.next_seed()
            env.step("wait1")
            key = env.episode_of(foreseen)
            until(partial(pool.is_ready, key))
            _, info = env.reset(seed=foreseen)
            assert (info["task"], info["variation"]) == key[:2]
            assert env._world is not None
            assert env._world.built  # nothing was left to do
        other.prepare(8)
        until(partial(pool.is_ready, other.episode_of(8)))
        other.reset(seed=8)
        assert other._world is not None
        assert other._world.built
    assert pool.started == started + 1


def test_nothing_is_written_where_the_user_is(tmp_path: Path) -> None:
    code = "import palestra; palestra.make('sciworld:Find-v0', prepare_next=False).reset(seed=3)"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert list(tmp_path.iterdir()) == []


def test_rollouts_say_which_episodes_come_next() -> None:
    """Their seeds cannot be foreseen, so whoever plays tells them: nobody waits, and nothing is built in vain."""
    waits: list[bool] = []
    wanted: list[Key] = []

    class Watched(Wrapper):
        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
            assert isinstance(self.env, SciWorld)
            assert seed is not None
            key = self.env.episode_of(seed)
            if wanted:
                until(partial(pool.is_ready, key))  # an agent would have thought for as long
            waits.append(not pool.is_ready(key))
            wanted.append(key)
            return self.env.reset(seed, options)

    pool.close()
    prepared: list[Key] = []
    with pytest.MonkeyPatch.context() as patch:
        original = pool.prepare

        def noted(key: Key) -> None:
            prepared.append(key)
            original(key)

        patch.setattr(pool, "prepare", noted)
        result = asyncio.run(
            collect(
                RandomAgent(),
                "sciworld:Find-v0",
                episodes=5,
                concurrency=1,
                seed=3,
                kwargs={"max_turns": 2},
                wrappers=[Watched],
            )
        )
    assert len(result.trajectories) == 5
    assert waits == [True, False, False, False, False]
    assert prepared == wanted[1:]


def test_a_known_first_observation_is_told_before_the_world_is_built() -> None:
    with made() as env:
        first, _ = env.reset(seed=3)
        seen = env.step("look around")
        with pool.engine().lock:  # whoever builds waits
            again, _ = env.reset(seed=3)
            assert env._world is not None
            assert not env._world.built
        assert again == first
        assert env.step("look around") == seen


@pytest.mark.parametrize("how", ["killed", "hanging"])
def test_a_process_that_dies_is_told_and_replaced_and_the_episode_goes_on(how: str) -> None:
    with made() as env:
        env.reset(seed=3)
        alone = [env.step(action) for action in ACTIONS]
        env.reset(seed=3)
        assert env.step(ACTIONS[0]) == alone[0]
        engine, started = pool.engines[0], pool.started
        if how == "killed":
            os.kill(engine.pid, signal.SIGKILL)
        else:
            os.kill(engine.pid, signal.SIGSTOP)
            engine.wire.patience(0.5)
        try:
            went_on = [env.step(ACTIONS[1])]  # in the background others may have found and replaced it already
        except EnvFailed as err:
            assert "may be repeated" in str(err)
            went_on = [env.step(ACTIONS[1])]
        until(lambda: not exists(engine.pid))
        assert went_on + [env.step(action) for action in ACTIONS[2:]] == alone[1:]
        assert pool.started == started + 1
        assert len(pool.engines) == 1


def test_a_forked_child_leaves_the_parents_process_alone() -> None:
    with made() as env:
        env.reset(seed=3)
        pid = pool.engines[0].pid
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forking a process with threads
            child = os.fork()
        if child == 0:
            os._exit(0 if not pool.engines else 1)
        assert os.waitpid(child, 0)[1] == 0
        env.step("wait1")
        assert pool.engines[0].pid == pid


def test_nothing_is_left_of_a_killed_parent() -> None:
    code = (
        "import sys, time; from palestra.envs.sciworld.pool import pool; "
        "print(pool.engine().pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        java = int(parent.stdout.readline())
        assert exists(java)
        parent.kill()
    until(lambda: not exists(java))


def test_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_SCIWORLD_JVMS", "many")
    with pytest.raises(BadValue, match="PALESTRA_SCIWORLD_JVMS"):
        pool.engine()


def seeds_foreseen(seeds: list[int], *, given: bool) -> list[int]:
    foresight, guesses = Foresight(), []
    for seed in seeds:
        foresight.note(seed, given=given)
        guesses.append(foresight.next_seed())
    return guesses


def test_the_three_lines_of_seeds_are_foreseen() -> None:
    assert seeds_foreseen([7, 8, 9, 10], given=True)[1:] == [9, 10, 11]
    vector = [7, *(nth_seed(7, episode) for episode in range(1, 6))]
    assert seeds_foreseen(vector[:-1], given=True) == vector[1:]
    chain = [7]
    for _ in range(4):
        chain.append(nth_seed(chain[-1], 0))
    assert seeds_foreseen(chain[:-1], given=False) == chain[1:]
