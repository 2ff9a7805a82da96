"""Test lock-step on every local backend: autoreset, partial steps, seeds, mixed envs, wrappers, and GEM's interface."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.core import Env
from palestra.errors import BadValue, EnvFailed, EpisodeOver, ResetNeeded, UnknownEnv, UnknownKeyword
from palestra.seeding import child_seed, nth_seed
from palestra.types import Step
from palestra.vector import BoolList, VectorEnv, make_vec
from palestra.workers.types import AUTORESETS, Autoreset
from palestra.wrappers import Horizon
from tests.vector.envs import Trouble, make_trouble
from tests.vector.oracle import OneEnv, seen

GUESS = "game:GuessTheNumber-v0-easy"
LOCAL: list[dict[str, Any]] = [
    {"backend": "sync"},
    {"backend": "thread"},
    {"backend": "process", "workers": 2},
]
ONE_THREAD: dict[str, Any] = {"backend": "process", "workers": 1, "threads": 1}


def name_of(how: dict[str, Any]) -> str:
    return "-".join(map(str, how.values()))


each_backend = pytest.mark.parametrize("how", LOCAL, ids=name_of)
each_autoreset = pytest.mark.parametrize("autoreset", AUTORESETS)


def actions_for(seed: int, rounds: int, envs: int, accidents: bool) -> list[list[str]]:
    rng = random.Random(seed)
    words = ["play 1", "play 22", "go", "end"] + (["raise", "quit", "four"] if accidents else [])
    return [[rng.choice(words) for _ in range(envs)] for _ in range(rounds)]


def check_against_oracle(vec: VectorEnv, seed: int, rounds: list[list[str]], **kwargs: Any) -> None:
    envs = [OneEnv(Trouble(**kwargs), seed, i, vec.autoreset) for i in range(vec.num_envs)]
    observations, infos = vec.reset()
    assert observations == [env.reset() for env in envs]
    assert [info["seed"] for info in infos] == [child_seed(seed, i) for i in range(vec.num_envs)]
    over: set[int] = set()
    for actions in rounds:
        chosen = {i: action for i, action in enumerate(actions) if i not in over}
        outcome = vec.step(actions if len(chosen) == len(actions) else chosen)
        expected = [envs[i].step(action) for i, action in chosen.items()]
        assert [seen(*five) for five in zip(*outcome, strict=True)] == expected
        if vec.autoreset == "disabled":
            over = {i for i, done in zip(chosen, outcome.terminated | outcome.truncated, strict=True) if done}
            again = sorted(over)[::2]  # reset some of these envs now; the others are skipped in the next step
            observations, _ = vec.reset(indices=again)
            assert observations == [envs[i].reset() for i in again]
            over -= set(again)
            left = sorted(over)
            vec.reset(indices=left)
            for i in left:
                envs[i].reset()
            over.clear()


@pytest.mark.parametrize("how", [*LOCAL, ONE_THREAD], ids=name_of)
@each_autoreset
def test_every_backend_equals_the_reference(how: dict[str, Any], autoreset: Autoreset) -> None:
    with make_vec(Trouble, num_envs=5, seed=3, autoreset=autoreset, turns=3, **how) as vec:
        check_against_oracle(vec, 3, actions_for(1, 25, 5, accidents=True), turns=3)
        assert vec.failed == len(vec.failures) > 0
        assert {failure.cause for failure in vec.failures} == {"raised"}


@settings(max_examples=30)
@given(
    seed=st.integers(0, 2**40),
    envs=st.integers(1, 6),
    turns=st.integers(1, 4),
    autoreset=st.sampled_from(AUTORESETS),
    backend=st.sampled_from(["sync", "thread"]),
    accidents=st.booleans(),
)
def test_random_vectors_equal_the_reference(
    seed: int, envs: int, turns: int, autoreset: Autoreset, backend: Any, accidents: bool
) -> None:
    with make_vec(Trouble, num_envs=envs, seed=seed, autoreset=autoreset, turns=turns, backend=backend) as vec:
        check_against_oracle(vec, seed, actions_for(seed, 12, envs, accidents), turns=turns)


def test_same_step_returns_the_last_observation_and_info() -> None:
    with make_vec(Trouble, num_envs=1) as vec:
        vec.reset()
        (observation,), rewards, terminated, truncated, (info,) = vec.step(["end"])
    assert (rewards, terminated, truncated) == ([1.0], [True], [False])
    assert str(observation).startswith("start")
    assert info["final_observation"].startswith("1 ")
    assert info["final_info"]["success"] is True
    assert "success" not in info


def test_next_step_ignores_the_action_that_starts_an_episode() -> None:
    with make_vec(Trouble, num_envs=1, autoreset="next_step") as vec:
        vec.reset()
        first = vec.step(["end"])
        assert (first.observations[0][:2], first.terminated) == ("1 ", [True])
        second = vec.step(["raise this is not run"])
        assert (second.observations[0][:5], second.rewards, second.terminated) == ("start", [0.0], [False])


@each_backend
def test_disabled_rejects_a_step_after_the_end(how: dict[str, Any]) -> None:
    with make_vec(Trouble, num_envs=2, autoreset="disabled", **how) as vec:
        with pytest.raises(ResetNeeded, match="env 0 has no episode"):
            vec.step(["a", "a"])
        vec.reset()
        vec.step({1: "end"})
        with pytest.raises(EpisodeOver, match="env 1 is over"):
            vec.step(["a", "a"])
        vec.step({0: "a"})
        vec.reset(indices=[1])
        assert str(vec.step(["a", "a"]).observations[1]).startswith("1 ")


@each_backend
def test_partial_steps_do_not_change_other_envs(how: dict[str, Any]) -> None:
    with make_vec(Trouble, num_envs=4, **how) as vec, make_vec(Trouble, num_envs=4) as whole:
        vec.reset()
        whole.reset()
        outcome = vec.step({3: "x", 1: "y"})
        every = whole.step(["a", "y", "c", "x"]).observations
        assert outcome.observations == [every[3], every[1]]
        assert [o[:2] for o in vec.step(["z"] * 4).observations] == ["1 ", "2 ", "1 ", "2 "]
        assert vec.step({}).observations == []


@each_backend
def test_seeds(how: dict[str, Any]) -> None:
    with make_vec(Trouble, num_envs=3, seed=7, **how) as vec:
        first, _ = vec.reset()
        second, infos = vec.reset()  # a reset without a seed starts the next episodes
        assert len({*first, *second}) == 6
        assert [info["seed"] for info in infos] == [nth_seed(child_seed(7, i), 1) for i in range(3)]
        assert vec.reset(seed=7)[0] == first
        assert vec.reset()[0] == second
        assert [info["seed"] for info in vec.reset(seed=[5, 5, 6])[1]] == [5, 5, 6]
        assert [info["seed"] for info in vec.reset(seed=[9], indices=[2])[1]] == [9]
        assert vec.reset(options={"level": 2})[1][0]["options"] == {"level": 2}
        assert vec.reset()[1][0]["options"] is None
        with pytest.raises(BadValue, match="reset of 3 envs requires 3 seeds, got 2"):
            vec.reset(seed=[1, 2])


def test_without_a_seed_one_is_drawn_and_returned() -> None:
    with make_vec(Trouble, num_envs=2, seed=None) as vec, make_vec(Trouble, num_envs=2, seed=None) as other:
        assert vec.seed != other.seed
        with make_vec(Trouble, num_envs=2, seed=vec.seed) as again:
            assert vec.reset()[0] == again.reset()[0]


@each_backend
def test_ids_callables_and_keywords_mix(how: dict[str, Any]) -> None:
    ids: list[Any] = [GUESS, Trouble, "game:Sokoban-v0-easy", make_trouble]
    with make_vec(ids, vec_kwargs=[{"max_turns": 1}, {"turns": 2}, {}, {"turns": 1}], **how) as vec:
        assert vec.env_ids == [GUESS, "Trouble", "game:Sokoban-v0-easy", "make_trouble"]
        observations, _ = vec.reset()
        assert str(observations[0]).startswith("You are playing Guess the Number")
        assert vec.step(["\\boxed{11}", "a", "\\boxed{up}", "b"]).terminated == [True, False, False, True]


@each_backend
def test_wrappers_by_name_and_callable(how: dict[str, Any]) -> None:
    wrappers: list[Any] = ["concat", ("Horizon", {"turns": 2}), "Statistics", partial(Horizon, turns=5)]
    with make_vec(GUESS, wrappers, num_envs=2, **how) as vec:
        vec.reset()
        vec.step(["\\boxed{11}"] * 2)
        outcome = vec.step(["\\boxed{12}"] * 2)
        assert outcome.truncated == [True, True]
        final = outcome.infos[0]["final_info"]
        assert final["episode"]["turns"] == 2
        assert outcome.infos[0]["final_observation"].startswith("You are playing")
    with make_vec(GUESS, "concat, episode_tracking", **how) as vec:
        vec.reset()
        assert vec.step(["\\boxed{11}"]).infos[0]["step_counter"] == 1
    with pytest.raises(BadValue, match="no wrapper 'Horizn'.*Horizon"):
        make_vec(GUESS, "Horizn", **how)
    with pytest.raises(BadValue, match="a wrapper is"):
        make_vec(GUESS, [3], **how)  # type: ignore[list-item]


def test_gems_call_works_unchanged() -> None:
    """Run the `make_vec` call from GEM's example code."""
    ids = [GUESS, "game:Mastermind-v0-easy"]
    for async_mode in (False, True):
        envs = palestra.make_vec(
            ids,
            wrappers=palestra.wrappers.get_wrapper_fns("concat_with_action,episode_tracking"),
            vec_kwargs=[{"seed": 11}, {"max_turns": 3}],
            async_mode=async_mode,
            seed=42,
        )
        obs, infos = envs.reset()
        assert infos[0]["seed"] == 11
        obs, rewards, terminated, truncated, infos = envs.step([env.sample_random_action() for env in envs.envs])
        done = terminated | truncated
        assert len(obs) == len(rewards) == len(done) == len(infos) == envs.num_envs == 2
        assert not (~done).all() or not done.any()
        next_obs, *_ = envs.step({1: "\\boxed{12}"})
        assert len(next_obs) == 1
        envs.close()
    assert palestra.make_vec(GUESS).num_envs == 1


def test_bool_lists_act_like_arrays() -> None:
    left, right = BoolList([True, True, False, False]), BoolList([True, False, True, False])
    assert left | right == [True, True, True, False]
    assert left & right == [True, False, False, False]
    assert ~left == [False, False, True, True]
    assert (left.any(), left.all(), BoolList([True]).all(), BoolList([False]).any()) == (True, False, True, False)


@each_backend
def test_calls_reach_every_env(how: dict[str, Any]) -> None:
    with make_vec(GUESS, num_envs=3, **how) as vec:
        assert vec.call("max_turns", indices=[1]) == [4]
        with pytest.raises(ResetNeeded):  # `call` does not reset the envs
            vec.step(["a"] * 3)
        vec.reset()
        for _ in range(3):
            vec.step(vec.call("expert_action"))
        assert vec.failed == 0
        with pytest.raises(EnvFailed, match="env 0 .*AttributeError.*nothing"):
            vec.call("nothing")
        assert len(vec.call("sample_random_action", indices=[2, 0])) == 2


def test_envs_of_local_backends_are_accessible() -> None:
    with make_vec(GUESS, num_envs=2, backend="thread") as vec:
        assert [env.spec.id for env in vec.envs if env.spec] == [GUESS, GUESS]
    with make_vec(GUESS, backend="process") as vec, pytest.raises(BadValue, match="vec.call"):
        _ = vec.envs


@each_backend
def test_usage_errors(how: dict[str, Any]) -> None:
    with make_vec(Trouble, num_envs=2, **how) as vec:
        vec.reset()
        with pytest.raises(BadValue, match="expected 2 actions or"):
            vec.step(["a"])
        with pytest.raises(BadValue, match="expected 2 actions or"):
            vec.step("ab")
        with pytest.raises(BadValue, match="an action must be a string, got int for env 1"):
            vec.step(["a", 3])  # type: ignore[list-item]
        with pytest.raises(BadValue, match="0 to 1, got 2"):
            vec.step({2: "a"})
        with pytest.raises(BadValue, match="more than once"):
            vec.reset(indices=[1, 1])
        assert [o[:2] for o in vec.step(["a", "a"]).observations] == ["1 ", "1 "]  # the failed calls had no effect
    with pytest.raises(EnvFailed, match="closed"):
        vec.step(["a", "a"])
    vec.close()
    with pytest.raises(UnknownKeyword, match="Did you mean turns"):
        make_vec(Trouble, trns=3, **how)
    with pytest.raises(UnknownEnv, match="GuessTheNumber"):
        make_vec("game:GuessTheNumbr-v0-easy", **how)


def test_wrong_arguments_are_rejected_before_any_worker_starts() -> None:
    for wrong, words in [
        ({"backend": "proces"}, "Did you mean process"),
        ({"autoreset": "always"}, "autoreset must be one of"),
        ({"num_envs": 0}, "num_envs must be at least 1"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"step_timeout": 0}, "step_timeout must be above 0"),
        ({"step_timeout": 1.0}, "'sync' backend supports neither"),
        ({"memory_limit": 1 << 30, "backend": "thread"}, "use backend='process'"),
        ({"vec_kwargs": [{}, {}]}, "one mapping per env: expected 1, got 2"),
    ]:
        with pytest.raises(BadValue, match=words):
            make_vec(Trouble, **wrong)  # type: ignore[arg-type]
    with pytest.raises(BadValue, match="at least one env"):
        make_vec([])
    with pytest.raises(BadValue, match="2 names but num_envs=3"):
        make_vec([GUESS, GUESS], num_envs=3)


class LocalEnv(Env):
    """Env that is registered only in the test process."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        return "here", {"seed": self.start_episode(seed)}

    def step(self, action: str) -> Step:
        return Step(action, 0.0, False, False, {})


@each_backend
def test_ids_registered_in_this_process_work_in_workers(how: dict[str, Any]) -> None:
    palestra.register("mine:Local-v0", LocalEnv)
    palestra.register("mine:Closure-v0", lambda: LocalEnv())
    try:
        with make_vec(["mine:Local-v0", "mine:Closure-v0"], **how) as vec:
            assert vec.reset()[0] == ["here", "here"]
            assert vec.call("spec")[1].id == "mine:Closure-v0"
    finally:
        palestra.unregister("mine:Local-v0")
        palestra.unregister("mine:Closure-v0")
