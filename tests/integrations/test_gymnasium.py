"""Test Palestra environments as Gymnasium environments; Gymnasium's own checker passes on every game."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import palestra
from palestra.core import Env
from palestra.errors import BadValue, EpisodeOver, ResetNeeded
from palestra.integrations.gymnasium import AnyText, register_all, to_gymnasium
from palestra.types import Observation, Step

GUESS = "game:GuessTheNumber-v0-easy"


@pytest.mark.parametrize("env_id", palestra.list_envs("game"))
def test_every_game_passes_gymnasiums_checker(env_id: str) -> None:
    check_env(to_gymnasium(env_id))


def test_an_env_instance_passes_gymnasiums_checker() -> None:
    env = to_gymnasium(palestra.make(GUESS, max_number=12))
    check_env(env)
    assert "12" in env.reset(seed=0)[0]


def test_an_adapted_env_gives_the_same_episode() -> None:
    env, adapted = palestra.make(GUESS), to_gymnasium(GUESS)
    prompt, _ = env.reset(seed=3)
    assert adapted.reset(seed=3)[0] == prompt
    for guess in ("1", "10", "none"):
        action = f"\\boxed{{{guess}}}"
        assert adapted.step(action) == tuple(env.step(action))
    with pytest.raises(EpisodeOver):
        adapted.step("\\boxed{1}")


def test_episodes_without_a_seed_are_determined_by_the_last_seed() -> None:
    env = to_gymnasium("game:GuessTheNumber-v0-random")
    runs = []
    for _ in range(2):
        env.reset(seed=5)
        runs.append([env.reset()[0] for _ in range(5)])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 1


def test_sampled_actions_depend_on_the_spaces_seed_only() -> None:
    env = to_gymnasium(GUESS)
    second = to_gymnasium(GUESS)
    for each in (env, second):
        each.reset(seed=1)
        each.action_space.seed(7)
    actions = [env.action_space.sample() for _ in range(20)]
    assert actions == [second.action_space.sample() for _ in range(20)]
    assert len(set(actions)) > 1
    assert all(action in env.action_space for action in actions)
    fresh = palestra.make(GUESS)
    fresh.reset(seed=1)
    assert env.env.sample_random_action() == fresh.sample_random_action()


def test_actions_can_be_sampled_before_the_first_reset() -> None:
    env = to_gymnasium(GUESS)
    action = env.action_space.sample()
    env.reset(seed=0)
    assert "invalid" not in env.step(action)[4]


class Echo(Env):
    """Env with one turn, images in its observations and no random player."""

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        return "say something", {"seed": self.start_episode(seed)}

    def step(self, action: str) -> Step:
        observation: Observation = [{"type": "text", "text": action}, {"type": "image", "image": b"png"}]
        return Step(observation, 1.0, True, False, {"success": True})


def test_sampling_without_a_random_player_and_images_in_observations() -> None:
    env = to_gymnasium(Echo())
    env.action_space.seed(0)
    action = env.action_space.sample()
    assert action.isprintable()
    env.reset()
    assert env.step(action)[0] == f"{action}[image]"


def test_render_returns_the_last_observation() -> None:
    env = to_gymnasium(GUESS, render_mode="ansi")
    with pytest.raises(ResetNeeded):
        env.render()
    assert env.reset(seed=0)[0] == env.render()
    assert env.step("\\boxed{1}")[0] == env.render()
    assert to_gymnasium(GUESS).render() is None


def test_usage_errors() -> None:
    with pytest.raises(BadValue, match="render_mode"):
        to_gymnasium(GUESS, render_mode="human")
    with pytest.raises(BadValue, match="keyword arguments require an environment's name"):
        to_gymnasium(palestra.make(GUESS), max_turns=3)
    with pytest.raises(BadValue, match="mask"):
        AnyText().sample(mask=1)  # type: ignore[arg-type]


def test_gymnasium_make_by_id() -> None:
    names = register_all()
    assert names == register_all()  # a second call emits no warning
    assert "palestra/game.GuessTheNumber-v0-easy" in names
    env = gymnasium.make("palestra/game.GuessTheNumber-v0-easy", max_turns=1)
    check_env(env.unwrapped)
    env.reset(seed=0)
    assert env.step("\\boxed{1}")[2]
    spec = env.spec
    assert spec is not None
    assert gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(spec.to_json())).reset(seed=0)[0]


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_gymnasium_vector_envs(mode: str) -> None:
    register_all("game")
    more = {"shared_memory": False} if mode == "async" else {}
    envs = gymnasium.make_vec("palestra/game.GuessTheNumber-v0-hard", 3, mode, vector_kwargs=more)
    try:
        envs.reset(seed=4)
        envs.action_space.seed(0)
        observations, rewards, *_ = envs.step(envs.action_space.sample())
        assert len(observations) == 3
        assert all(text.startswith("Turn 1 of 7") for text in observations)
        assert rewards.shape == (3,)
    finally:
        envs.close()


def test_an_adapted_env_can_be_copied_and_pickled_mid_episode() -> None:
    env = to_gymnasium(GUESS)
    env.reset(seed=1)
    env.step("\\boxed{2}")
    for duplicate in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert duplicate.step("\\boxed{1}")[0].startswith("Turn 2")
    assert env.step("\\boxed{1}")[0].startswith("Turn 2")


def test_a_missing_gymnasium_prints_the_pip_command() -> None:
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "from palestra.errors import MissingExtra\n"
        "try:\n    import palestra.integrations.gymnasium\n"
        "except MissingExtra as err:\n    print(err)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[gymnasium]'" in done.stdout
