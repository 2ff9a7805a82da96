"""Gymnasium environments played as text."""

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
    world = gymnasium.make("FrozenLake-v1", is_slippery=False, render_mode="ansi")
    return from_gymnasium(world, **{"parse": ARROWS, **options})


def walk(env: Env, *words: str) -> Step:
    for word in words:
        step = env.step(f"\\boxed{{{word}}}")
    return step


def test_a_lake_is_crossed_in_words() -> None:
    env = lake()
    prompt, info = env.reset(seed=0)
    assert info["seed"] == 0
    assert info["max_turns"] == env.max_turns == 100
    for said in ("FrozenLake", "one of: left, down, right, up", "\\boxed{left}", "100 turns", "[S]FFF"):
        assert said in str(prompt)
    assert "import gymnasium" not in str(prompt)  # the part of the docstring for programmers
    step = walk(env, "down", "DOWN ", "right", "right", "down")
    assert "HF[F]G" in str(step.observation)
    assert "success" not in step.info
    step = walk(env, "right")
    assert step[1:4] == (1.0, True, False)
    assert step.info["success"] is True
    with pytest.raises(EpisodeOver, match="terminated"):
        env.step("\\boxed{left}")


def test_falling_into_a_hole_is_no_success() -> None:
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


def test_no_step_before_reset_and_only_strings() -> None:
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
    assert step.info["success"] is False  # each step earns 1, also the one that drops the pole
    env.reset(seed=0)
    step = env.step("\\boxed{0}")
    while not step.done:  # push to where the pole leans
        place, drift, angle, speed = env._observation
        step = walk(env, "1" if angle + speed + 0.1 * (place + drift) > 0 else "0")
    assert step.truncated
    assert step.info["success"] is True


def test_success_can_be_said_by_the_env_or_the_caller() -> None:
    env = from_gymnasium(lambda: Corridor(says={"is_success": True}), max_turns=1)
    env.reset(seed=0)
    assert walk(env, "0").info["success"] is True
    env = from_gymnasium("CartPole-v1", max_turns=2, success=lambda last, total: last.truncated and total == 2.0)
    env.reset(seed=0)
    assert walk(env, "0", "1").info["success"] is True


def test_observations_are_rounded_and_can_be_told_otherwise() -> None:
    env = from_gymnasium("CartPole-v1")
    observation, _ = env.reset(seed=1)
    assert str(observation).endswith("Observation: [ 0.0012,  0.045 , -0.0356,  0.0449]")
    env = from_gymnasium("CartPole-v1", render=lambda state, _: f"angle {state[2]:.1f}", prompt="Balance!")
    assert env.reset(seed=1)[0] == "Balance!\n\nangle -0.0"
    env = from_gymnasium("Blackjack-v1", describe="Twenty-one.")
    assert "Twenty-one." in str(env.reset(seed=1)[0])
    assert "Observation: (" in str(env.reset(seed=1)[0])


class Spaced(gymnasium.Env[Any, Any]):
    """Shows which action arrived."""

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
def test_actions_of_every_small_space_can_be_written(
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


def test_spaces_nobody_can_write_by_hand_need_a_parser() -> None:
    with pytest.raises(BadValue, match="no text of"):
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
        ({"parse": {"left": 4}}, "not an action of"),
        ({"parse": {"left": 0, "Left ": 1}}, "differ"),
        ({"parse": {}}, "names"),
        ({"max_turns": 0}, "at least 1"),
    ],
)
def test_keywords_that_cannot_work_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(BadValue, match=match):
        lake(**options)
    with pytest.raises(BadValue, match="function that builds it"):
        from_gymnasium(5)  # type: ignore[arg-type]


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**48), actions=st.lists(st.sampled_from([*ARROWS, "?"]), max_size=12), at=st.integers(0, 12)
)
def test_a_slippery_lake_replays_and_forks(seed: int, actions: list[str], at: int) -> None:
    env = from_gymnasium("FrozenLake-v1", parse=ARROWS, describe="")
    twin = env.spawn()
    assert env.reset(seed=seed) == twin.reset(seed=seed)
    fork = env.fork()
    for turn, word in enumerate(actions):
        if turn == at:
            fork = env.fork()
            walk(fork.fork(), "left")  # touches neither
        if fork.turn < env.turn:
            assert fork.sample_random_action()
        step = walk(env, word)
        assert step == walk(twin, word)
        if turn >= at:
            assert step == walk(fork, word)
        if step.done:
            break


def test_sampling_does_not_touch_the_world() -> None:
    env, twin = (from_gymnasium("FrozenLake-v1") for _ in range(2))
    env.reset(seed=3)
    twin.reset(seed=3)
    drawn = [env.sample_random_action() for _ in range(30)]
    assert drawn == [twin.sample_random_action() for _ in range(30)]
    spare = from_gymnasium("FrozenLake-v1")
    spare.reset(seed=3)
    for action in drawn:
        step = env.step(action)
        assert step == spare.step(action)
        if step.done:
            break


class Corridor(gymnasium.Env[Any, Any]):
    """A random walk that no deep copy can follow."""

    def __init__(self, says: dict[str, Any] | None = None) -> None:
        self.action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.spaces.Discrete(1000)
        self.says = says or {}
        self.handle = (i for i in range(3))  # neither copied nor pickled

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = int((options or {}).get("start", 500))
        return self.at, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.at += int(self.np_random.integers(1, 9)) * (1 if action else -1)
        return self.at, 0.0, False, False, dict(self.says)


class Forgetful(Corridor, EzPickle):
    """Copies, but only what the constructor was given, as LunarLander and the MuJoCo envs do."""

    def __init__(self) -> None:
        EzPickle.__init__(self)
        super().__init__()


@pytest.mark.parametrize("world", [Corridor, Forgetful])
def test_worlds_that_cannot_be_copied_are_replayed(world: type[Corridor]) -> None:
    env = from_gymnasium(world)
    env.reset(seed=8, options={"start": 300})
    walk(env, "1", "x", "0", "1")
    twins = [env.fork(), copy.deepcopy(env), Env.restore(env.snapshot())]
    after = [walk(env, "0"), walk(env, "1")]
    for twin in twins:
        assert [walk(twin, "0"), walk(twin, "1")] == after
    assert env.fork().reset(seed=1) == from_gymnasium(world).reset(seed=1)


def test_a_world_with_neither_copy_nor_spec_says_so() -> None:
    env = from_gymnasium(Corridor())
    env.reset(seed=0)
    with pytest.raises(BadValue, match="a function that builds it"):
        env.fork()
    with pytest.raises(BadValue, match="a function that builds it"):
        env.spawn()


class Moody(Corridor):
    moods = iter(range(100))

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if action:
            raise OSError("the simulator died")
        self.at = next(self.moods)
        return self.at, 0.0, False, False, {}


def test_what_breaks_is_a_failure_not_a_reward() -> None:
    env = from_gymnasium(Moody)
    env.reset(seed=0)
    walk(env, "0")
    with pytest.raises(EnvFailed, match="neither be copied nor replayed"):
        env.fork()
    with pytest.raises(EnvFailed, match="the simulator died"):
        walk(env, "1")
    with pytest.raises(EpisodeOver, match="failed"):
        walk(env, "0")


def test_snapshots_go_on_where_the_world_can_be_pickled() -> None:
    env = lake()
    env.reset(seed=0)
    walk(env, "down")
    twin = Env.restore(env.snapshot())
    assert walk(twin, "down", "left") == walk(env, "down", "left")


@pytest.mark.parametrize("world", ["Blackjack-v1", "FrozenLake-v1"])
def test_adapted_worlds_keep_palestras_laws(world: str) -> None:
    report = palestra.check_env(from_gymnasium(world), episodes=5, processes=world == "Blackjack-v1")
    assert report.random is not None


def test_there_and_back_is_the_same_game() -> None:
    ours = palestra.make(GUESS)
    back = from_gymnasium(to_gymnasium(GUESS), parse=str, prompt="")
    assert str(back.reset(seed=2)[0]).endswith(str(ours.reset(seed=2)[0]))
    for guess in ("3", "4", "5", "6"):
        mine, theirs = walk(ours, guess), walk(back, guess)
        assert str(theirs.observation).endswith(str(mine.observation))
        assert theirs[1:4] == mine[1:4]
        if mine.done:
            break
    assert theirs.info["success"] == mine.info["success"]


def test_a_gymnasium_env_can_be_registered_as_ours() -> None:
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
