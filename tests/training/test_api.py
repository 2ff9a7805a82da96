"""Test `palestra.train` in Python: names, classes and callables as arguments, notebooks, and the example script."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra.algorithms import Advantages, Episode, PolicyGradient, PolicyGradientConfig, register, turn_returns
from palestra.core import Env, Wrapper
from palestra.errors import BadValue
from palestra.rollout import read
from palestra.training.api import _env_settings
from palestra.types import Step
from tests import warm_process

EXAMPLES = Path(__file__).parents[2] / "examples"
GAME = "game:GuessTheNumber-v0-easy"
TINY: dict[str, Any] = {"episodes": 8, "eval_episodes": 4, "warm_start": 32, "threads": 1, "save_every": 1}


class Bonus(Wrapper):
    """Wrapper that adds 1 to every reward."""

    def step(self, action: str) -> Step:
        step = self.env.step(action)
        return step._replace(reward=step.reward + 1)


@register
class Plain(PolicyGradient[PolicyGradientConfig]):
    """Policy gradient that uses plain returns as advantages, without a baseline."""

    name = "plain-test"

    def advantages(self, episodes: list[Episode]) -> Advantages:  # type: ignore[override]
        return Advantages(advantages=turn_returns(episodes, gamma=self.config.gamma))


def test_a_run_inside_an_event_loop_with_a_custom_reward_and_algorithm(tmp_path: Path) -> None:
    async def cell() -> palestra.training.TrainingRun:
        return palestra.train(
            env=GAME, wrappers=[Bonus], algorithm=Plain, steps=1, out=str(tmp_path / "run"), progress=False, **TINY
        )

    run = asyncio.run(cell())
    assert [row["step"] for row in run.rows] == [-1, 0]
    assert run.model_dir.name in ("best", "last")
    stored = list(read(run.folder / "trajectories" / "step-000000.jsonl.gz"))
    assert all(turn.reward >= 0.5 for t in stored for turn in t.turns), "the wrapper must change the reward"
    assert "plain-test" in run._repr_html_()
    assert "<svg" in run._repr_html_()
    assert run.evaluate(episodes=2).metrics["episodes"] == 2
    again = palestra.train(run.config, progress=False)
    assert again.rows == run.rows, "a finished run must not be repeated"


def test_environments_run_in_workers(tmp_path: Path) -> None:
    def rows(name: str, **settings: Any) -> list[dict[str, Any]]:
        run = palestra.train(env=GAME, steps=1, horizon=3, out=str(tmp_path / name), progress=False, **TINY, **settings)
        return [{k: v for k, v in row.items() if "second" not in k} for row in run.rows]

    inline = rows("inline")[0]
    for backend in ("thread", "process"):
        assert rows(backend, env_backend=backend, env_workers=2, step_timeout=60.0)[0] == inline


def test_tools_are_part_of_the_environment(tmp_path: Path) -> None:
    run = palestra.train(env=GAME, tools="python", steps=1, out=str(tmp_path), progress=False, **TINY)
    first = next(iter(read(run.folder / "trajectories" / "step-000000.jsonl.gz"))).turns[0].observation
    assert "python" in str(first)


def test_environments_by_class_function_and_factory(tmp_path: Path) -> None:
    from tests.training.slow_env import SlowGuess

    assert _env_settings(SlowGuess, {}) == {"env": ("tests.training.slow_env:SlowGuess",)}
    factory = palestra.EnvFactory(GAME, kwargs={"max_turns": 3}, tools=("python",))
    assert _env_settings(factory, {}) == {"env": (GAME,), "env_kwargs": {"max_turns": 3}, "tools": ("python",)}

    def build(**kwargs: Any) -> Env:
        return palestra.make(GAME, **kwargs)

    assert _env_settings([build, GAME], {}) == {"env": ("custom:build-v0", GAME)}
    assert palestra.make("custom:build-v0").reset(seed=1)
    palestra.unregister("custom:build-v0")
    with pytest.raises(BadValue, match="either a config or individual settings"):
        palestra.train(palestra.training.from_mapping({"env": GAME}), steps=3)
    with pytest.raises(BadValue, match="must be a PolicyEngine"):
        palestra.train(env=GAME, engine="openai", out=str(tmp_path), warm_start=0, progress=False)


def test_the_example_script(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "custom_training.py"), "1"]
    done = warm_process.run(command, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("success ")
    assert (tmp_path / "runs" / "parity" / "metrics.jsonl").exists()
