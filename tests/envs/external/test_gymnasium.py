"""Test the text interface to Gymnasium environments."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import EzPickle
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.core import Env
from palestra.envs.external.gymnasium import FromGymnasium, from_gymnasium
from palestra.errors import BadValue, EnvFailed, EpisodeOver, ResetNeeded, UnknownEnv
from palestra.integrations.gymnasium import AnyText, to_gymnasium
from palestra.types import Step

GUESS = "game:GuessTheNumber-v0-easy"
ARROWS = {"left": 0, "down": 1, "right": 2, "up": 3}


def lake(**options: Any) -> FromGymnasium:
    env = gymnasium.make("FrozenLake-v1", is_slippery=False, render_mode="ansi")
    return from_gymnasium(env, **{"parse": ARROWS, **options})


def walk(env: Env, *words: str) -> Step:
    for word in words:
        step = env.step(f"\\boxed{{{word}}}")
    return step


def test_frozen_lake_is_solved_with_words() -> None:
    env = lake()
    prompt, info = env.reset(seed=0)
    assert info["seed"] == 0
    assert info["max_turns"] == env.max_turns == 100
    for text in ("FrozenLake", "one of: left, down, right, up", "\\boxed{left}", "100 turns", "[S]FFF"):
        assert text in str(prompt)
    assert "import gymnasium" not in str(prompt)  # the programming example in the docstring is not part of the prompt
    step = walk(env, "down", "DOWN ", "right", "right", "down")
    assert "HF[F]G" in str(step.observation)
    assert "success" not in step.info
    step = walk(env, "right")
    assert step[1:4] == (1.0, True, False)
    assert step.info["success"] is True
    with pytest.raises(EpisodeOver, match="terminated"):
        env.step("\\boxed{left}")


def test_falling_into_a_hole_is_a_failure() -> None:
    env = lake()
    env.reset(seed=0)
    step = walk(env, "down", "right")
    assert step.terminated
    assert step.info["success"] is False


def test_a_bad_action_costs_a_turn_and_changes_nothing() -> None:
    env = lake(max_turns=4)
    env.reset(seed=0)
    walk(env, "down")
    step = env.step("I go north")
    assert step[1:4] == (0.0, False, False)
    assert step.info["invalid"] == "format"
    assert "\\boxed{left}" in str(step.observation)
    assert "[F]HFH" in str(step.observation)
    step = walk(env, "north\x00" * 100)
    assert "one of: left, down, right, up" in str(step.observation)
    assert len(str(step.observation)) < 300
    step = walk(env, "north")
    assert step[1:4] == (0.0, False, True)
    assert step.info["success"] is False
    with pytest.raises(EpisodeOver, match="truncated"):
        env.step("\\boxed{left}")


def test_step_needs_a_reset_and_a_string() -> None:
    env = lake()
    with pytest.raises(ResetNeeded):
        env.step("\\boxed{left}")
    env.reset(seed=0)
    with pytest.raises(BadValue, match="string"):
        env.step(1)  # type: ignore[arg-type]


def test_gymnasiums_own_time_limit_truncates() -> None:
    env = from_gymnasium(gymnasium.make("CartPole-v1", max_episode_steps=3), max_turns=9)
    env.reset(seed=0)
    step = walk(env, "0", "1", "0")
    assert step[2:4] == (False, True)


def test_balancing_is_success_and_falling_is_not() -> None:
    env = from_gymnasium("CartPole-v1")
    env.reset(seed=0)
    step = walk(env, "1")
    while not step.done:
        step = walk(env, "1")
    assert step.terminated
    assert step.reward == 1.0
    assert step.info["success"] is False  # each step earns reward 1, including the last step, in which the pole falls
    env.reset(seed=0)
    step = env.step("\\boxed{0}")
    while not step.done:  # push the cart in the direction in which the pole leans
        place, drift, angle, speed = env._observation
        step = walk(env, "1" if angle + speed + 0.1 * (place + drift) > 0 else "0")
    assert step.truncated
    assert step.info["success"] is True


def test_success_is_defined_by_the_env_or_by_a_function() -> None:
    env = from_gymnasium(lambda: Corridor(info={"is_success": True}), max_turns=1)
    env.reset(seed=0)
    assert walk(env, "0").info["success"] is True
    env = from_gymnasium("CartPole-v1", max_turns=2, success=lambda last, total: last.truncated and total == 2.0)
    env.reset(seed=0)
    assert walk(env, "0", "1").info["success"] is True


def test_observations_are_rounded_unless_a_render_function_is_given() -> None:
    env = from_gymnasium("CartPole-v1")
    observation, _ = env.reset(seed=1)
    assert str(observation).endswith("Observation: [ 0.0012,  0.045 , -0.0356,  0.0449]")
    env = from_gymnasium("CartPole-v1", render=lambda state, _: f"angle {state[2]:.1f}", prompt="Balance!")
    assert env.reset(seed=1)[0] == "Balance!\n\nangle -0.0"
    env = from_gymnasium("Blackjack-v1", describe="Twenty-one.")
    assert "Twenty-one." in str(env.reset(seed=1)[0])
    assert "Observation: (" in str(env.reset(seed=1)[0])


class Spaced(gymnasium.Env[Any, Any]):
    """Env that returns the received action as the observation."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.action_space = space
        self.observation_space = AnyText()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return "ready", {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action in self.action_space
        return {"got": np.asarray(action), "and": (1, 0.123456)}, 0.0, False, False, {}


SPACES: list[tuple[gymnasium.Space[Any], list[str], list[str]]] = [
    (gymnasium.spaces.Discrete(3, start=-1), ["-1", " 1 ", "+1"], ["2", "-2", "1.0", "", "9" * 5000]),
    (gymnasium.spaces.MultiDiscrete([3, 2]), ["2 1", "[0, 0]"], ["2", "2 2", "2 1 0", "a b"]),
    (gymnasium.spaces.MultiBinary(3), ["0 1 1"], ["0 1 2", "011"]),
    (gymnasium.spaces.Box(-1.0, 0.1, (2,)), ["0.1 -1", ".05,-1e-3"], ["0.2 0", "nan 0", "inf 0", "1e999 0", "0"]),
    (gymnasium.spaces.Box(-np.inf, np.inf, (1,)), ["1e30", "-4"], ["1e39", "1e999"]),
    (gymnasium.spaces.Box(0, 255, (1,), np.uint8), ["255"], ["256", "-1", "0.5"]),
    (gymnasium.spaces.Text(4, charset="ab{}"), ["ab", "a{}b"], ["abc", "aaaaa", ""]),
]


@pytest.mark.parametrize(
    ("space", "good", "bad"), SPACES, ids=lambda value: str(value) if not isinstance(value, list) else ""
)
def test_actions_of_every_small_space_can_be_parsed(
    space: gymnasium.Space[Any], good: list[str], bad: list[str]
) -> None:
    env = from_gymnasium(Spaced(space))
    env.reset(seed=0)
    for text in good:
        assert "invalid" not in walk(env, text).info, text
    for text in bad:
        assert walk(env, text).info["invalid"] == "format", text
    for action in [env.example_action(), *(env.sample_random_action() for _ in range(50))]:
        assert "invalid" not in env.step(action).info, action
    assert len({env.sample_random_action() for _ in range(50)}) > 1


def test_complex_spaces_need_a_parser() -> None:
    with pytest.raises(BadValue, match="no text in"):
        from_gymnasium(Spaced(gymnasium.spaces.Text(3, charset="}")))
    space = gymnasium.spaces.Dict({"a": gymnasium.spaces.Discrete(2)})
    with pytest.raises(BadValue, match="parse= and prompt="):
        from_gymnasium(Spaced(space))
    with pytest.raises(BadValue, match="100 numbers"):
        from_gymnasium(Spaced(gymnasium.spaces.Box(0, 1, (10, 10))))
    with pytest.raises(BadValue, match="a parse function needs prompt="):
        from_gymnasium(Spaced(space), parse=lambda reply: {"a": len(reply)})
    env = from_gymnasium(
        Spaced(space), parse=lambda reply: {"a": len(reply)} if len(reply) < 2 else None, prompt="Say x or nothing."
    )
    assert env.reset(seed=0)[0] == "Say x or nothing.\n\nObservation: ready"
    assert "invalid" not in env.step("x").info
    assert env.step("xx").info["invalid"] == "format"
    with pytest.raises(BadValue, match="no random player"):
        env.sample_random_action()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"parse": {"left": 4}}, "not an action in"),
        ({"parse": {"left": 0, "Left ": 1}}, "differ"),
        ({"parse": {}}, "names"),
        ({"max_turns": 0}, "at least 1"),
    ],
)
def test_invalid_keywords_are_rejected(options: dict[str, Any], match: str) -> None:
    with pytest.raises(BadValue, match=match):
        lake(**options)
    with pytest.raises(BadValue, match="function that builds it"):
        from_gymnasium(5)  # type: ignore[arg-type]


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**48), actions=st.lists(st.sampled_from([*ARROWS, "?"]), max_size=12), at=st.integers(0, 12)
)
def test_forks_and_replays_of_a_stochastic_env_are_identical(seed: int, actions: list[str], at: int) -> None:
    env = from_gymnasium("FrozenLake-v1", parse=ARROWS, describe="")
    second = env.spawn()
    assert env.reset(seed=seed) == second.reset(seed=seed)
    fork = env.fork()
    for turn, word in enumerate(actions):
        if turn == at:
            fork = env.fork()
            walk(fork.fork(), "left")  # a step in a fork must not affect the other envs
        if fork.turn < env.turn:
            assert fork.sample_random_action()
        step = walk(env, word)
        assert step == walk(second, word)
        if turn >= at:
            assert step == walk(fork, word)
        if step.done:
            break


def test_sampling_actions_does_not_affect_the_env() -> None:
    env, second = (from_gymnasium("FrozenLake-v1") for _ in range(2))
    env.reset(seed=3)
    second.reset(seed=3)
    actions = [env.sample_random_action() for _ in range(30)]
    assert actions == [second.sample_random_action() for _ in range(30)]
    reference = from_gymnasium("FrozenLake-v1")
    reference.reset(seed=3)
    for action in actions:
        step = env.step(action)
        assert step == reference.step(action)
        if step.done:
            break


class Corridor(gymnasium.Env[Any, Any]):
    """Random walk env that can be neither copied nor pickled."""

    def __init__(self, info: dict[str, Any] | None = None) -> None:
        self.action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.spaces.Discrete(1000)
        self.info = info or {}
        self.handle = (i for i in range(3))  # a generator can be neither copied nor pickled

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = int((options or {}).get("start", 500))
        return self.at, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.at += int(self.np_random.integers(1, 9)) * (1 if action else -1)
        return self.at, 0.0, False, False, dict(self.info)


class PartialCopy(Corridor, EzPickle):
    """Random walk env that copies only its constructor arguments, like LunarLander and MuJoCo envs."""

    def __init__(self) -> None:
        EzPickle.__init__(self)
        super().__init__()


@pytest.mark.parametrize("env_type", [Corridor, PartialCopy])
def test_envs_that_cannot_be_copied_are_replayed(env_type: type[Corridor]) -> None:
    env = from_gymnasium(env_type)
    env.reset(seed=8, options={"start": 300})
    walk(env, "1", "x", "0", "1")
    copies = [env.fork(), copy.deepcopy(env), Env.restore(env.snapshot())]
    after = [walk(env, "0"), walk(env, "1")]
    for one in copies:
        assert [walk(one, "0"), walk(one, "1")] == after
    assert env.fork().reset(seed=1) == from_gymnasium(env_type).reset(seed=1)


def test_an_instance_that_cannot_be_copied_raises() -> None:
    env = from_gymnasium(Corridor())
    env.reset(seed=0)
    with pytest.raises(BadValue, match="a function that builds it"):
        env.fork()
    with pytest.raises(BadValue, match="a function that builds it"):
        env.spawn()


class Irreproducible(Corridor):
    states = iter(range(100))

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if action:
            raise OSError("the simulator crashed")
        self.at = next(self.states)
        return self.at, 0.0, False, False, {}


def test_failures_of_the_env_raise_env_failed() -> None:
    env = from_gymnasium(Irreproducible)
    env.reset(seed=0)
    walk(env, "0")
    with pytest.raises(EnvFailed, match="neither be copied nor replayed"):
        env.fork()
    with pytest.raises(EnvFailed, match="the simulator crashed"):
        walk(env, "1")
    with pytest.raises(EpisodeOver, match="failed"):
        walk(env, "0")


def test_snapshots_continue_the_episode() -> None:
    env = lake()
    env.reset(seed=0)
    walk(env, "down")
    restored = Env.restore(env.snapshot())
    assert walk(restored, "down", "left") == walk(env, "down", "left")


@pytest.mark.parametrize("env_id", ["Blackjack-v1", "FrozenLake-v1"])
def test_adapted_envs_pass_check_env(env_id: str) -> None:
    report = palestra.check_env(from_gymnasium(env_id), episodes=5, processes=env_id == "Blackjack-v1")
    assert report.random is not None


def test_a_round_trip_through_gymnasium_gives_the_same_game() -> None:
    ours = palestra.make(GUESS)
    back = from_gymnasium(to_gymnasium(GUESS), parse=str, prompt="")
    assert str(back.reset(seed=2)[0]).endswith(str(ours.reset(seed=2)[0]))
    for guess in ("3", "4", "5", "6"):
        step, adapted = walk(ours, guess), walk(back, guess)
        assert str(adapted.observation).endswith(str(step.observation))
        assert adapted[1:4] == step[1:4]
        if step.done:
            break
    assert adapted.info["success"] == step.info["success"]


def test_a_gymnasium_env_can_be_registered() -> None:
    palestra.register("gym:Lake-v0", "palestra.envs.external.gymnasium:FromGymnasium", env="FrozenLake-v1", max_turns=5)
    try:
        with palestra.make("gym:Lake-v0") as env:
            assert "5 turns" in str(env.reset(seed=0)[0])
            assert env.spawn(max_turns=6).max_turns == 6
            assert env.spawn().spec is env.spec
    finally:
        palestra.unregister("gym:Lake-v0")


def test_a_gymnasium_name_builds_the_env() -> None:
    name = "gymnasium:FrozenLake-v1"
    with palestra.make(name, make_kwargs={"is_slippery": False}, parse=ARROWS, max_turns=7) as env:
        assert isinstance(env, FromGymnasium)
        assert env.spec == palestra.get_spec(name)
        assert "7 turns" in str(env.reset(seed=0)[0])
        step = walk(env, "down", "down", "right", "right", "down", "right")
        assert step.info["success"]
    with pytest.raises(UnknownEnv, match="Gymnasium cannot build 'CartPol-v1'"):
        palestra.make("gymnasium:CartPol-v1")
