"""`palestra new-env NAME`: create a package with a working environment to start from."""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path
from string import Template

from palestra import __version__
from palestra.cli import EXIT_OK
from palestra.errors import BadValue, StoreFailed

ENV = Template('''\
"""$env_id: reach a target sum by adding one of three numbers per turn."""

from __future__ import annotations

from typing import Any

import palestra
from palestra import Env, Step
from palestra.errors import EpisodeOver, ResetNeeded
from palestra.parsing import boxed, last_boxed, read_int
from palestra.spec import check_split


class $class_name(Env):
    """Reach a target sum by adding one of three numbers per turn."""

    max_turns = 8  # stated in the prompt; the episode ends after this many turns
    reward_range = (0.0, 1.0)  # range of the reward per step

    def __init__(self, *, split: str | None = None) -> None:
        """Create the environment; `split` selects training tasks ("train"), test tasks ("test") or all (None)."""
        self.split = check_split(split)
        self.over: bool | None = None

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        seed = self.start_episode(seed)  # seeds self.rng, the only source of randomness
        self.numbers, self.target = self.sample_task(self._sample, key=repr)
        self.total = self.turn = 0
        self.over = False
        prompt = (
            f"Start at 0 and reach exactly {self.target}. In each turn, add one of the numbers {self._options()}. "
            f"Write it inside \\\\boxed{{}}, for example {self.example_action()}. You have {self.max_turns} turns."
        )
        return prompt, {"seed": seed, "task_id": self.task_id}

    def step(self, action: str) -> Step:  # must accept any string without raising
        if self.over is None:
            raise ResetNeeded("call reset() first")
        if self.over:
            raise EpisodeOver("call reset() to start the next episode")
        self.turn += 1
        text = last_boxed(action)
        number = None if text is None else read_int(text)
        if number not in self.numbers:
            return self._end(f"No valid number was found; choose one of {self._options()}.", success=False)
        self.total += number
        if self.total == self.target:
            return self._end(f"The sum is {self.total}, as requested.", success=True)
        if self.total > self.target:
            return self._end(f"The sum {self.total} exceeds {self.target}.", success=False)
        if self.turn == self.max_turns:
            return self._end("No turns are left.", success=False)
        return Step(f"The sum is {self.total}. Reach {self.target}.", 0.0, False, False, {})

    def sample_random_action(self) -> str:
        return boxed(self.player_rng.choice(self.numbers))  # not self.rng: an action must not change the episode

    def expert_action(self) -> str:
        """Return the first number of a shortest sequence, computed from visible information."""
        shortest: dict[int, tuple[int, ...]] = {0: ()}
        for rest in range(1, self.target - self.total + 1):
            options = [(number, *shortest[rest - number]) for number in self.numbers if rest - number in shortest]
            if options:
                shortest[rest] = min(options, key=len)
        plan = shortest.get(self.target - self.total) or self.numbers
        return boxed(plan[0])

    def example_action(self) -> str:
        return boxed(self.numbers[0])

    def _sample(self) -> tuple[tuple[int, ...], int]:
        numbers = tuple(sorted(self.rng.sample(range(3, 20), 3)))
        return numbers, sum(self.rng.choices(numbers, k=5))

    def _options(self) -> str:
        return ", ".join(map(str, self.numbers))

    def _end(self, text: str, *, success: bool) -> Step:
        self.over = True
        return Step(text, float(success), True, False, {"success": success})  # the last step always has `success`


# `palestra envs` shows the expert's stated success rate, and `palestra check` compares it with the measured rate.
palestra.register("$env_id", $class_name, splits=("train", "test"), expert_success=1.0)
''')

TEST = Template('''\
"""Test the environment through its public interface."""

from __future__ import annotations

import palestra

from $module import $class_name


def test_conformance() -> None:
    palestra.check_env("$env_id")


def test_expert_solves_every_task() -> None:
    env = $class_name()
    for seed in range(50):
        env.reset(seed=seed)
        terminated = False
        while not terminated:
            step = env.step(env.expert_action())
            terminated = step.terminated
        assert step.info["success"], seed


def test_wrong_actions_earn_nothing() -> None:
    env = $class_name()
    env.reset(seed=0)
    assert env.step("no number").reward == 0.0
''')

PYPROJECT = Template("""\
[build-system]
requires = ["hatchling>=1.24"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "0.1.0"
description = "An environment for LLM agents."
requires-python = ">=3.11"
dependencies = ["palestra>=$version"]

[project.optional-dependencies]
dev = ["pytest>=8.2"]

[project.entry-points."palestra.envs"]
$family = "$module"  # importing the module registers $env_id

[tool.hatch.build.targets.wheel]
packages = ["$module"]
""")

README = Template("""\
# $name

`$env_id`, an environment for [Palestra](https://pypi.org/project/palestra).

```sh
pip install -e '.[dev]'
palestra check $env_id
palestra play $env_id
palestra eval $env_id --agent expert
palestra train --env $env_id
pytest
```
""")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="Name of the package, for example my-puzzles; the folder has the same name."
    )
    parser.add_argument(
        "--id",
        metavar="ENV",
        help="Environment id in the form family:Name-v0 (default: derived from the name).",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", default=".", help="Folder in which the package folder is created (default: .)."
    )


def run(args: argparse.Namespace) -> int:
    folder = Path(args.out) / args.name
    files = package_files(args.name, args.id)
    if folder.exists():
        raise BadValue(f"{folder} already exists; choose another NAME or --out FOLDER")
    try:
        for path, text in files.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except OSError as err:
        raise StoreFailed(f"cannot write to the folder {folder}: {err.strerror}. Choose another --out") from err
    module = _module(args.name)
    print(f"{folder} contains a working environment, an expert and a test. Try it:")
    print(f"  cd {folder}")
    print(f"  palestra check {module}:{_class_name(args.name)}")
    print("  pip install -e '.[dev]' && pytest")
    print(f"Then change the task in {module}/__init__.py.")
    return EXIT_OK


def package_files(name: str, env_id: str | None = None) -> dict[str, str]:
    """Return the contents of the new package by path; raise BadValue for an invalid package name."""
    from palestra.spec import EnvId

    module = _module(name)
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name) or keyword.iskeyword(module):
        raise BadValue(f"{name!r} cannot be the name of a package; use lower-case letters, digits and dashes")
    class_name = _class_name(name)
    env_id = env_id or f"{module.replace('_', '')}:{class_name}-v0"
    values = {
        "name": name,
        "module": module,
        "class_name": class_name,
        "env_id": env_id,
        "family": EnvId.parse(env_id).family,
        "version": __version__,
    }
    return {
        "pyproject.toml": PYPROJECT.substitute(values),
        "README.md": README.substitute(values),
        f"{module}/__init__.py": ENV.substitute(values),
        f"{module}/py.typed": "",
        f"tests/test_{module}.py": TEST.substitute(values),
    }


def _module(name: str) -> str:
    return name.replace("-", "_")


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in re.split("[-_]", name))
