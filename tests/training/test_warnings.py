"""Test each warning on a training run that is configured to have the problem that the warning reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import palestra
from palestra.algorithms.hooks import register_reward_hook
from palestra.core import Env, Wrapper
from palestra.rollout.types import Trajectory
from palestra.spec import check_split
from palestra.training import train
from palestra.training.recipe import from_mapping
from palestra.training.reporting.warnings import Warnings
from palestra.types import Step

torch.set_num_threads(1)

ENV = "game:GuessTheNumber-v0-easy"


def long_replies(trajectories: Sequence[Trajectory]) -> list[list[float]]:
    return [[float(sum(len(call.ids) for call in turn.action.calls)) for turn in t.turns] for t in trajectories]


def format_errors(trajectories: Sequence[Trajectory]) -> list[list[float]]:
    return [[float(turn.info.get("invalid") == "format") for turn in t.turns] for t in trajectories]


def broken_rules(trajectories: Sequence[Trajectory]) -> list[list[float]]:
    return [[float(turn.info.get("invalid") == "rule") for turn in t.turns] for t in trajectories]


register_reward_hook("test-long-replies", long_replies)
register_reward_hook("test-format-errors", format_errors)
register_reward_hook("test-broken-rules", broken_rules)

FREE = {"lr": 1e-2, "lr_schedule": "linear", "lr_warmup": 0, "target_kl": 0.0, "kl_backtrack": 0.0, "max_kl": 0.0}


class Capitals(Env):
    """Env with 24 questions, whose answers can only be memorized."""

    reward_range = (0.0, 1.0)
    filters_tasks = True

    def __init__(self, *, split: str | None = None) -> None:
        self.split = check_split(split)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.start_episode(seed)
        self.number = self.sample_task(lambda: self.rng.randrange(24), key=int)
        return f"Question {self.number}", {"seed": self.seed, "task_id": self.task_id}

    def step(self, action: str) -> Any:
        right = action == self.expert_action()
        return "The end.", float(right), True, False, {"success": right}

    def example_action(self) -> str:
        return "A"

    def expert_action(self) -> str:
        return "ABCD"[self.number * 7 % 13 % 4]


class RewardedSurrender(Wrapper):
    """Wrapper for GuessTheNumber that ends the episode at a guess of 1 or 2, with a reward but without success."""

    def after_step(self, action: str, step: Step) -> Step:
        if action in {rf"\boxed{{{number}}}" for number in (1, 2)}:
            return Step("You gave up.", 1.0, True, False, {"success": False})
        return step


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"entropy": -1.0, **FREE}, "the policy has stopped exploring"),
        ({"entropy": 1.0, **FREE, "lr": 1e-3, "steps": 12}, "replies become random"),
        ({"model": "default:0.1M", "warm_start": 0, "steps": 6}, "the model does not know the action format"),
        (
            {"model": "default:0.1M", "warm_start": 0, "steps": 5, "cut_penalty": 0.0},
            "no learning signal in 5 of the last 5",
        ),
        (
            {"env": [ENV, "game:TowerofHanoi-v0-easy"], "steps": 10, "episodes": 6},
            "no episode in game:TowerofHanoi-v0-easy succeeded in the last 10 steps",
        ),
        ({"reward_hook": "test-format-errors", **FREE}, "the model loses the action format"),
        ({"reward_hook": "test-broken-rules", **FREE}, "such actions may cost too little"),
        (
            {
                **FREE,
                "reward_hook": "test-long-replies",
                "max_tokens": 16,
                "lr": 3e-2,
                "cut_penalty": 0.0,
                "horizon": "none",
                "episodes": 8,
            },
            "may favor longer text. Lower --max-tokens",
        ),
        (
            {**FREE, "wrappers": [f"{__name__}:RewardedSurrender"], "horizon": "none", "lr": 2e-3},
            "the agent gives up or fails early",
        ),
        ({**FREE, "kl_backtrack": 1e-9, "steps": 5}, "the KL limit --kl-backtrack was exceeded in 5 of the last 5"),
        ({**FREE, "lr": 1.0, "steps": 2}, "a step changed the policy by a KL of"),
        (
            {
                "env": "game:GuessTheNumber-v0-hard",
                "env_kwargs": {"partial_credit": True},
                "lr": 1e-7,
                "lr_start": 1.0,
                "steps": 10,
                "horizon": "1",
            },
            "too small for this model. Raise --lr, for example to 1e-06",
        ),
    ],
    ids=[
        "entropy",
        "noise",
        "unknown format",
        "signal",
        "environment",
        "format",
        "rules",
        "length",
        "early end",
        "backtracking",
        "kl",
        "rate",
    ],
)
def test_a_run_that_goes_wrong_is_reported(settings: dict[str, Any], words: str, taught: str, tmp_path: Path) -> None:
    small = {"steps": 8, "episodes": 16, "concurrency": 16, "group_size": 1, "eval_every": 0, "eval_episodes": 1}
    common = {"env": ENV, "model": taught, "optimizer": "muon", "minibatches": 4, "store": False, "max_tokens": 8}
    short = {"horizon": "2", "out": str(tmp_path), "threads": 1}
    lines: list[str] = []
    train(from_mapping({**common, **small, **short, **settings}), log=lines.append)
    assert sum(words in line for line in lines) == 1, lines


@pytest.mark.parametrize(("settings", "reported"), [({"kl_unsolved": 0.0}, 1), ({}, 0)])
def test_a_recorded_run_that_stopped_learning_is_reported(settings: dict[str, Any], reported: int) -> None:
    run = json.loads((Path(__file__).parent / "data" / "plateau.json").read_text())
    warnings = Warnings(from_mapping({"env": ENV, **settings}))
    rows: list[dict[str, Any]] = []
    found = []
    for step, (success, entropy) in enumerate(zip(run["success"], run["entropy"], strict=True)):
        rows.append({"step": step, "success": success, "entropy": entropy})
        found += [(step, message) for message in warnings.check(rows)]
    assert len(found) == reported
    for step, message in found:
        assert 150 <= step <= 200, "it rose until step 115"
        assert message.startswith("warning: the success rate has stayed at 82% for 50 steps")
        assert "try --kl-unsolved 0.1" in message


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_healthy_runs_have_no_warnings(share: float) -> None:
    """Check the metrics of recorded runs that reached their target success rate or were still improving.

    They do not contain how many of the invalid actions could not be parsed, so several shares are tried.
    """
    runs = json.loads((Path(__file__).parent / "data" / "healthy_runs.json").read_text())
    assert len(runs) >= 20
    for run in runs:
        name, model = run.pop("run"), run.pop("model")
        warnings = Warnings(from_mapping({"env": ENV, "model": model}).with_model_size(135 * 10**6))
        rows: list[dict[str, Any]] = []
        for step, values in enumerate(zip(*run.values(), strict=True)):
            row = dict(zip(run, values, strict=True))
            if row.get("invalid_actions") is not None:
                row["format_errors"] = share * row["invalid_actions"]
            rows.append({"step": step, **{key: value for key, value in row.items() if value is not None}})
            assert warnings.check(rows) == [], (name, step)


def test_recorded_runs_are_reported_as_giving_up_only_if_they_hardly_succeed() -> None:
    reported = []
    for path in sorted((Path(__file__).parents[2] / "recipes" / "papers" / "results").glob("*.jsonl")):
        for run in map(json.loads, path.read_text().splitlines()):
            curve = run.get("curve", {})  # evaluations; the first and the last one stand for three steps each
            evaluations = list(zip(curve.get("success", ()), curve.get("turns", ()), strict=True))
            steps = enumerate([*3 * evaluations[:1], *3 * evaluations[-1:]])
            rows = [{"step": i, "success": rate, "turns_per_episode": turns} for i, (rate, turns) in steps]
            warnings = Warnings(from_mapping({"env": ENV, "model": run["model"]})).check(rows) if rows else []
            if any("gives up or fails early" in line for line in warnings):
                reported.append(rows[-1]["success"])
    assert len(reported) >= 5  # on web sites and in search
    assert max(reported) < 0.1


def test_a_run_that_has_learned_the_action_format_is_not_reported_again() -> None:
    def check(*success: float, **errors: float) -> list[str]:
        rows = [{"step": i, "success": rate, "invalid_actions": 0.95, **errors} for i, rate in enumerate(success)]
        return Warnings(from_mapping({"env": ENV, "model": "default:0.1M"})).check(rows)

    for errors, unknown in (({}, "the action format"), ({"format_errors": 0.1}, "which actions are allowed")):
        (text,) = check(*6 * [0.0], **errors)
        assert f"does not know {unknown}" in text
    assert check(*5 * [0.0]) == check(*6 * [0.0], 0.1) == []


def test_an_environment_is_reported_if_only_the_others_are_solved() -> None:
    other = "game:TowerofHanoi-v0-easy"

    def check(first: list[float], second: list[float]) -> list[str]:
        rates = enumerate(zip(first, second, strict=True))
        rows = [{"step": i, f"success/{ENV}": a, f"success/{other}": b} for i, (a, b) in rates]
        return Warnings(from_mapping({"env": [ENV, f"{other}=2"], "model": "default:0.1M"})).check(rows)

    (warning,) = check(10 * [0.5], 10 * [0.0])
    assert other in warning
    assert check(9 * [0.5], 9 * [0.0]) == check(10 * [0.0], 10 * [0.0]) == check(10 * [0.5], [*9 * [0.0], 0.01]) == []


def test_small_updates_are_reported_only_for_pretrained_models_that_do_not_learn() -> None:
    def check(
        *success: float, model: str = "org/model", kl: float = 1e-5, lr: float = 1e-6, **settings: Any
    ) -> list[str]:
        rows = [{"step": i, "success": rate, "step_kl": kl, "lr": lr} for i, rate in enumerate(success)]
        config = from_mapping({"env": ENV, "model": model, **settings}).with_model_size(2 * 10**9)
        return Warnings(config).check(rows)

    (warning,) = check(*10 * [0.1])
    assert "Raise --lr, for example to 1e-05" in warning
    assert check(*9 * [0.1]) == check(*5 * [0.1], *5 * [0.3]) == check(*10 * [0.9]) == []
    assert check(*10 * [0.1], kl=1e-3) == check(*10 * [0.1], lr=5e-7) == check(*10 * [0.1], target_kl=0.0) == []
    assert check(*10 * [0.1], model="default:0.1M", lr=1e-2) == []


@pytest.mark.slow
def test_memorized_training_tasks_are_reported(tmp_path: Path) -> None:
    """A model that learned the answers of the training tasks does not know those of the others."""
    settings = {"env": "test:Capitals-v0", "model": "default:0.1M", "warm_player": "expert", "warm_start": 400}
    small = {
        "steps": 2,
        "eval_every": 1,
        "episodes": 64,
        "eval_episodes": 64,
        "max_tokens": 4,
        "seed": 1,
        "threads": 1,
        "store": False,
    }
    lines: list[str] = []
    palestra.register("test:Capitals-v0", Capitals, splits=("train", "test"), reward_range=(0.0, 1.0))
    try:
        train(from_mapping({**settings, **small, "out": str(tmp_path)}), log=lines.append)
    finally:
        palestra.unregister("test:Capitals-v0")
    assert sum("memorizes its training tasks" in line for line in lines) == 1, lines


def test_training_and_evaluation_are_compared_twice_and_only_on_the_same_environments() -> None:
    def check(*rates: tuple[float, float], **settings: Any) -> list[str]:
        """Return the warnings; each pair has the ends of the intervals that are closest to each other."""
        rows = [
            {"step": i, "success": 0.9, "success_low": low, "eval_success": 0.1, "eval_success_high": high}
            for i, (low, high) in enumerate(rates)
        ]
        return Warnings(from_mapping({"env": ENV, "model": "default:0.1M", **settings})).check(rows)

    assert len(check((0.8, 0.6), (0.8, 0.6))) == 1
    assert check((0.8, 0.6)) == []
    assert check((0.8, 0.75), (0.8, 0.6)) == check((0.8, 0.6), (0.8, 0.75)) == []
    assert check((0.8, 0.6), (0.8, 0.6), eval_env=["game:Mastermind-v0-easy"]) == []
