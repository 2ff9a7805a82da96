"""Test Env and Wrapper with real games and with wrappers defined in this module."""

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
    """Wrapper that converts observations to upper case through the hooks."""

    def after_reset(self, observation: Observation, info: dict[str, Any]) -> Reset:
        return text_of(observation).upper(), info

    def after_step(self, action: str, step: Step) -> Step:
        return step._replace(observation=text_of(step.observation).upper())


class Overriding(palestra.Wrapper):
    """Wrapper that overrides `step` itself instead of the hooks."""

    def step(self, action: str) -> Step:
        return self.env.step(action)._replace(observation="old")


def test_the_example_of_the_readme() -> None:
    env = palestra.make("game:Sudoku-v0-easy")
    obs, info = env.reset(seed=7)
    assert info["seed"] == 7
    obs, reward, terminated, truncated, _ = env.step(env.expert_action() or "")
    assert isinstance(obs, str)
    assert (reward, terminated, truncated) == (0.0, False, False)
    fork = env.fork()
    assert fork.step("x").terminated
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
def test_an_action_must_be_a_string(action: Any) -> None:
    env = palestra.make("game:GuessTheNumber-v0-easy")
    env.reset(seed=1)
    with pytest.raises(BadValue, match="an action must be a string"):
        env.step(action)
    assert env.step(r"\boxed{99}").info["turn"] == 1, "a rejected action must not use a turn"


@pytest.mark.parametrize("seed", [-1, 1.5, "7", True])
def test_bad_seeds_are_rejected(seed: Any) -> None:
    with pytest.raises(BadValue, match="a seed must be an integer"):
        palestra.make("game:GuessTheNumber-v0-easy").reset(seed=seed)


@given(st.integers(0, 2**200))
def test_any_non_negative_integer_is_a_seed(seed: int) -> None:
    assert check_seed(seed) == seed
    _, info = palestra.make("game:GuessTheNumber-v0-hard").reset(seed=seed)
    assert info["seed"] == seed


@given(st.integers(0, 2**64), st.lists(st.integers() | st.text(max_size=5), min_size=1, max_size=3))
def test_child_seeds_differ_from_their_parent_and_by_path(seed: int, path: list[int | str]) -> None:
    child = child_seed(seed, *path)
    assert child == child_seed(seed, *path)
    assert child != child_seed(seed + 1, *path)
    assert child != child_seed(seed, *path, 0)


def test_episodes_without_a_seed_have_distinct_seeds() -> None:
    env = palestra.make("game:GuessTheNumber-v0-hard")
    seeds = [env.reset()[1]["seed"] for _ in range(200)]
    assert len(set(seeds)) == 200


@pytest.mark.parametrize("copied", [lambda e: e.fork(), copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_copies_are_independent(copied: Any) -> None:
    env = Shout(palestra.make("game:Game2048-v0-easy"))
    env.reset(seed=5)
    env.step(env.sample_random_action())
    fork = copied(env)
    path = []
    for _ in range(10):
        action = env.expert_action() or ""
        assert fork.expert_action() == action
        path.append((env.step(action), fork.step(action)))
    assert all(one == other for one, other in path)
    fork.step("x")
    assert not env.step(env.expert_action() or "").terminated


def test_a_snapshot_continues_in_another_process() -> None:
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


def test_restore_rejects_other_pickles() -> None:
    with pytest.raises(BadValue, match="a snapshot of a dict, not of an Env"):
        palestra.Env.restore(pickle.dumps({}))


def test_forks_keep_shared_references_within_a_copy() -> None:
    class Linked(Sound):
        def __init__(self) -> None:
            super().__init__()
            self.a: list[Any] = [[1], {"x": [2]}, {3}]
            self.b = self.a[0]
            self.me = self

    env = Linked()
    fork = env.fork()
    assert fork.b is fork.a[0]
    assert fork.me is fork
    fork.a[1]["x"].append(9)
    fork.a[2].add(4)
    assert env.a == [[1], {"x": [2]}, {3}]


def test_spawn_follows_gem() -> None:
    env = palestra.make("game:GuessTheNumber-v0-hard", max_turns=9)
    env.reset(seed=1)
    assert env.spawn(same_state=True).step("x").terminated
    fresh = env.spawn()
    assert fresh.max_turns == 9
    with pytest.raises(ResetNeeded):
        fresh.step("x")
    assert env.spawn(max_turns=3).max_turns == 3
    with pytest.raises(BadValue, match="takes no other keyword arguments"):
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


def test_async_calls_use_an_overridden_step() -> None:
    async def run() -> Any:
        env = Overriding(palestra.make("game:GuessTheNumber-v0-easy"))
        await env.areset(seed=1)
        return (await env.astep("x")).observation

    assert asyncio.run(run()) == "old"


def test_a_slow_step_does_not_block_the_event_loop() -> None:
    class Slow(Sound):
        def step(self, action: str) -> Step:
            assert entered.wait(120), "the event loop was blocked, so the event was never set"
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


def test_interleaved_envs_play_like_separate_ones() -> None:
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


def test_repr_shows_the_constructor_call() -> None:
    assert repr(palestra.make("game:Sudoku-v0-easy")) == "<Sudoku game:Sudoku-v0-easy>"
    assert repr(Shout(Sound())) == "<Shout around Sound()>"


def test_images_in_observations_become_text() -> None:
    assert text_of([{"type": "text", "text": "a "}, {"type": "image", "image": b""}]) == "a [image]"


def test_a_fork_is_unaffected_by_a_reset_of_the_original() -> None:
    env = palestra.make("game:Game2048-v0-easy")
    env.reset(seed=1)
    fork, reference = env.fork(), env.fork()
    env.reset(seed=2)
    for _ in range(5):
        action = reference.sample_random_action()
        assert fork.sample_random_action() == action
        assert fork.step(action) == reference.step(action)
    assert env.reset(seed=1) == palestra.make("game:Game2048-v0-easy").reset(seed=1)


class Plain(palestra.Env):
    """Env without a constructor whose `step` returns a plain tuple."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        return "Say yes.", {"seed": self.start_episode(seed)}

    def step(self, action: str) -> Step:
        return ("Over.", 1.0, True, False, {"success": True})  # type: ignore[return-value]


class AsyncPlain(Plain):
    async def astep(self, action: str) -> Step:
        return ("Over, async.", 0.5, True, False, {"success": True})  # type: ignore[return-value]


def test_a_plain_five_tuple_becomes_a_step() -> None:
    env = Shout(Plain())
    env.reset(seed=1)
    assert env.step("yes") == Step("OVER.", 1.0, True, False, {"success": True})
    env.reset(seed=1)
    assert isinstance(asyncio.run(env.astep("yes")), Step)
    assert asyncio.run(AsyncPlain().astep("yes")).done
    assert Plain.step.__name__ == "step"


def test_notebooks_show_a_table() -> None:
    env = palestra.make("game:Sudoku-v0-easy", wrappers=[Shout])
    before = env._repr_html_()
    assert "game:Sudoku-v0-easy" in before
    assert "<pre>" not in before
    env.reset(seed=7)
    html = env._repr_html_()
    assert "<th>seed</th><td>7</td>" in html
    assert "&lt;Sudoku" in html
