"""Env and Wrapper through a real game and a wrapper of the test's own."""

from __future__ import annotations

import asyncio
import copy
import pickle
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.core import Reset
from palestra.errors import BadValue, EpisodeOver, ResetNeeded
from palestra.seeding import check_seed, child_seed
from palestra.types import Observation, Step, text_of
from tests.conformance.defective_envs import Sound


class Shout(palestra.Wrapper):
    """Upper-cases observations through the hooks."""

    def after_reset(self, observation: Observation, info: dict[str, Any]) -> Reset:
        return text_of(observation).upper(), info

    def after_step(self, action: str, step: Step) -> Step:
        return step._replace(observation=text_of(step.observation).upper())


class Old(palestra.Wrapper):
    """Overrides `step` itself, as wrappers from elsewhere do."""

    def step(self, action: str) -> Step:
        return self.env.step(action)._replace(observation="old")


def test_the_example_of_the_readme() -> None:
    env = palestra.make("game:Sudoku-v0-easy")
    obs, info = env.reset(seed=7)
    assert info["seed"] == 7
    obs, reward, terminated, truncated, _ = env.step(env.expert_action() or "")
    assert isinstance(obs, str)
    assert (reward, terminated, truncated) == (0.0, False, False)
    twin = env.fork()
    assert twin.step("x").terminated
    assert not env.step(env.expert_action() or "").terminated


def test_step_before_reset_and_after_the_end() -> None:
    env = palestra.make("game:GuessTheNumber-v0-easy")
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step("x")
    env.reset(seed=1)
    env.step("x")
    with pytest.raises(EpisodeOver, match="call reset"):
        env.step("x")


@pytest.mark.parametrize("action", [None, 3, b"x", ["a"]])
def test_an_action_that_is_no_string_is_refused(action: Any) -> None:
    env = palestra.make("game:GuessTheNumber-v0-easy")
    env.reset(seed=1)
    with pytest.raises(BadValue, match="an action is a string"):
        env.step(action)
    assert env.step(r"\boxed{99}").info["turn"] == 1, "and costs no turn"


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True])
def test_bad_seeds_are_refused(seed: Any) -> None:
    with pytest.raises(BadValue, match="a seed is a whole number"):
        palestra.make("game:GuessTheNumber-v0-easy").reset(seed=seed)


@given(st.integers(0, 2**200))
def test_any_whole_number_is_a_seed(seed: int) -> None:
    assert check_seed(seed) == seed
    _, info = palestra.make("game:GuessTheNumber-v0-hard").reset(seed=seed)
    assert info["seed"] == seed


@given(st.integers(0, 2**64), st.lists(st.integers() | st.text(max_size=5), min_size=1, max_size=3))
def test_child_seeds_differ_from_their_parent_and_by_path(seed: int, path: list[int | str]) -> None:
    child = child_seed(seed, *path)
    assert child == child_seed(seed, *path)
    assert child != child_seed(seed + 1, *path)
    assert child != child_seed(seed, *path, 0)


def test_info_tells_no_two_episodes_apart_by_accident() -> None:
    env = palestra.make("game:GuessTheNumber-v0-hard")
    seeds = [env.reset()[1]["seed"] for _ in range(200)]
    assert len(set(seeds)) == 200


@pytest.mark.parametrize("copied", [lambda e: e.fork(), copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_copies_go_on_alone(copied: Any) -> None:
    env = Shout(palestra.make("game:Game2048-v0-easy"))
    env.reset(seed=5)
    env.step(env.sample_random_action())
    twin = copied(env)
    path = []
    for _ in range(10):
        action = env.expert_action() or ""
        assert twin.expert_action() == action
        path.append((env.step(action), twin.step(action)))
    assert all(one == other for one, other in path)
    twin.step("x")
    assert not env.step(env.expert_action() or "").terminated


def test_a_snapshot_goes_on_in_another_process() -> None:
    env = palestra.make("game:Game2048-v0-easy")
    env.reset(seed=5)
    env.step(env.expert_action() or "")
    code = (
        "import sys, palestra\n"
        "env = palestra.Env.restore(sys.stdin.buffer.read())\n"
        "for _ in range(5): print(repr(env.step(env.expert_action()).observation))\n"
    )
    there = subprocess.run([sys.executable, "-c", code], input=env.snapshot(), capture_output=True, check=True)
    here = [repr(env.step(env.expert_action() or "").observation) for _ in range(5)]
    assert there.stdout.decode().splitlines() == here


def test_restore_refuses_other_pickles() -> None:
    with pytest.raises(BadValue, match="no snapshot of an Env but of a dict"):
        palestra.Env.restore(pickle.dumps({}))


def test_forks_keep_shared_references_within_a_copy() -> None:
    class Linked(Sound):
        def __init__(self) -> None:
            super().__init__()
            self.a: list[Any] = [[1], {"x": [2]}, {3}]
            self.b = self.a[0]
            self.me = self

    env = Linked()
    twin = env.fork()
    assert twin.b is twin.a[0]
    assert twin.me is twin
    twin.a[1]["x"].append(9)
    twin.a[2].add(4)
    assert env.a == [[1], {"x": [2]}, {3}]


def test_spawn_is_gems() -> None:
    env = palestra.make("game:GuessTheNumber-v0-hard", max_turns=9)
    env.reset(seed=1)
    assert env.spawn(same_state=True).step("x").terminated
    fresh = env.spawn()
    assert fresh.max_turns == 9
    with pytest.raises(ResetNeeded):
        fresh.step("x")
    assert env.spawn(max_turns=3).max_turns == 3
    with pytest.raises(BadValue, match="a fork keeps its keywords"):
        env.spawn(same_state=True, max_turns=3)
    wrapped = Shout(env).spawn(max_turns=5)
    assert isinstance(wrapped, Shout)
    assert wrapped.max_turns == 5


def test_wrappers_delegate_and_never_copy() -> None:
    env = palestra.make("game:GuessTheNumber-v0-random")
    outer = Shout(Shout(env))
    outer.reset(seed=1)
    first = env.max_turns
    assert outer.max_turns == first
    for seed in range(20):
        outer.reset(seed=seed)
        assert outer.max_turns == env.max_turns
        assert outer.hidden == env.hidden  # type: ignore[attr-defined]
    assert outer.spec is env.spec
    assert outer.reward_range == (-0.1, 1.0)
    assert outer.inline
    assert outer.unwrapped is env
    assert outer.rng is env.rng
    assert outer.player_rng is env.player_rng
    with pytest.raises(AttributeError):
        outer.no_such_thing  # noqa: B018
    with pytest.raises(BadValue, match="wraps an Env"):
        Shout("game:Sudoku-v0-easy")  # type: ignore[arg-type]


def test_hooks_serve_sync_and_async() -> None:
    async def run() -> tuple[Any, Any]:
        env = Shout(palestra.make("game:GuessTheNumber-v0-easy"))
        prompt, _ = await env.areset(seed=1)
        step = await env.astep("x")
        await env.aclose()
        return prompt, step.observation

    env = Shout(palestra.make("game:GuessTheNumber-v0-easy"))
    assert asyncio.run(run()) == (env.reset(seed=1)[0], env.step("x").observation)


def test_an_overridden_step_is_the_truth_for_async_too() -> None:
    async def run() -> Any:
        env = Old(palestra.make("game:GuessTheNumber-v0-easy"))
        await env.areset(seed=1)
        return (await env.astep("x")).observation

    assert asyncio.run(run()) == "old"


def test_async_does_not_block_the_loop_where_a_step_takes_long() -> None:
    class Slow(Sound):
        def step(self, action: str) -> Step:
            assert entered.wait(10), "the loop was blocked: nobody could set the event"
            return super().step(action)

    entered = threading.Event()

    async def run() -> Step:
        env = Slow()
        await env.areset(seed=1)
        pending = asyncio.create_task(env.astep("x"))
        await asyncio.sleep(0.01)
        entered.set()
        step = await pending
        await env.aclose()
        return step

    assert asyncio.run(run()).terminated


def test_context_manager_closes() -> None:
    closed = []

    class Held(Sound):
        def close(self) -> None:
            closed.append(1)

    with Shout(Held()):
        pass
    assert closed == [1]


def test_a_hundred_envs_interleaved_play_as_one_alone() -> None:
    ids = palestra.list_envs("game")
    picks = [(ids[i % len(ids)], i) for i in range(100)]
    picks = [(env_id, seed) for env_id, seed in picks if "extreme" not in env_id]
    alone = []
    for env_id, seed in picks:
        env = palestra.make(env_id)
        record = [env.reset(seed=seed)[0]]
        for _ in range(5):
            step = env.step(env.sample_random_action())
            record.append(step.observation)
            if step.done:
                break
        alone.append(record)
    envs = [palestra.make(env_id) for env_id, _ in picks]
    together: list[list[Any]] = [[env.reset(seed=seed)[0]] for env, (_, seed) in zip(envs, picks, strict=True)]
    running = set(range(len(envs)))
    for _ in range(5):
        for i in sorted(running):
            step = envs[i].step(envs[i].sample_random_action())
            together[i].append(step.observation)
            if step.done:
                running.discard(i)
    assert together == alone
    return


def test_repr_says_how_it_was_made() -> None:
    assert repr(palestra.make("game:Sudoku-v0-easy")) == "<Sudoku game:Sudoku-v0-easy>"
    assert repr(Shout(Sound())) == "<Shout around Sound()>"


def test_pictures_in_observations_have_words() -> None:
    assert text_of([{"type": "text", "text": "a "}, {"type": "image", "image": b""}]) == "a [image]"


def test_a_fork_does_not_mind_what_becomes_of_its_original() -> None:
    """A reset begins the original's generator again; the twin's goes on."""
    env = palestra.make("game:Game2048-v0-easy")
    env.reset(seed=1)
    twin, straight = env.fork(), env.fork()
    env.reset(seed=2)
    for _ in range(5):
        action = straight.sample_random_action()
        assert twin.sample_random_action() == action
        assert twin.step(action) == straight.step(action)
    assert env.reset(seed=1) == palestra.make("game:Game2048-v0-easy").reset(seed=1)
