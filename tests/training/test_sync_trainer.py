"""Test synchronous training end to end at a tiny size: every algorithm runs, and a killed run resumes exactly."""

from __future__ import annotations

from pathlib import Path
from random import SystemRandom
from time import sleep
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from palestra.agents import ChatAgent
from palestra.algorithms import get_algorithm
from palestra.core import Reset
from palestra.engines import LocalEngine
from palestra.engines.default_model import default_model
from palestra.envs.math.arithmetic import Arithmetic
from palestra.errors import BadValue
from palestra.rollout import Trajectory, read
from palestra.training import rollout_workers, train
from palestra.training.config import TrainConfig
from palestra.training.recipe import from_mapping
from palestra.training.run import TrainingRun

torch.set_num_threads(1)


class Killed(Exception):
    pass


def tiny(out: Path, **values: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "env": "game:GuessTheNumber-v0-easy",
        "model": "default:0.1M",
        "out": str(out),
        "steps": 4,
        "episodes": 8,
        "group_size": 4,
        "concurrency": 16,
        "eval_every": 2,
        "eval_episodes": 4,
        "save_every": 1,
        "max_tokens": 8,
    }
    return from_mapping({**settings, **values})


def curve(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if "second" not in k} for row in rows]


@pytest.mark.parametrize(
    "options",
    [
        {"algorithm": "reinforce", "lora_rank": 4, "kl": 0.01},
        {"algorithm": "rebn", "gamma": 0.9, "horizon": "2,4@2"},
        {"algorithm": "grpo", "kl": 0.01, "minibatches": 2, "epochs": 2},
        {"algorithm": "rloo", "aggregate": "sequence"},
        {"algorithm": "reinforce_pp", "kl": 0.01, "kl_in": "reward"},
        {"algorithm": "ppo", "critic": "lora", "entropy": 0.01, "temperature": 0.8, "horizon": "2"},
        {"algorithm": "ppo_token", "horizon": "2", "packing": True, "gradient_checkpointing": "on"},
        {"algorithm": "dapo", "is_correction": "always", "oversampling": 1.5, "dynamic_sampling": 1},
        {"algorithm": "gspo", "ratio_over": "sample", "packing": True},
        {"algorithm": "distill", "teacher": "default:0.1M"},
    ],
    ids=lambda options: options["algorithm"],
)
def test_every_algorithm_runs_and_reports_its_metrics(options: dict[str, Any], taught: str, tmp_path: Path) -> None:
    # The returns in a group may all be equal, which is no learning signal for an algorithm that compares them.
    episodes = 16 if get_algorithm(options["algorithm"]).needs_groups else 8
    run = train(tiny(tmp_path / "run", steps=2, episodes=episodes, model=taught, save_every=2, **options))
    assert [row["step"] for row in run.rows] == [-1, 0, 1]
    last = run.rows[-1]
    assert {"success", "return", "turns_per_episode", "eval_success", "lr"} <= set(last)
    assert any("grad_norm" in row for row in run.rows)
    if options["algorithm"].startswith("ppo"):
        assert any("explained_variance" in row for row in run.rows)
    if options.get("kl"):
        assert any("kl" in row for row in run.rows)
    AutoModelForCausalLM.from_pretrained(run.folder / "last")
    assert len(list(read(run.folder / "trajectories" / "step-000001.jsonl.gz"))) >= episodes


@pytest.mark.parametrize(
    "options", [{}, {"algorithm": "ppo_token", "lora_rank": 4, "kl": 0.01, "packing": True}], ids=["plain", "lora"]
)
def test_a_killed_run_resumes_exactly(options: dict[str, Any], taught: str, tmp_path: Path) -> None:
    options = {"model": taught, "steps": 3, **options}
    whole = train(tiny(tmp_path / "whole", **options))

    def die(line: str) -> None:
        if line.startswith("step 2/"):
            raise Killed

    with pytest.raises(Killed):
        train(tiny(tmp_path / "cut", **options), log=die)
    resumed = train(tiny(tmp_path / "cut", **options))
    assert curve(resumed.rows) == curve(whole.rows)
    one, other = (AutoModelForCausalLM.from_pretrained(run.folder / "last").state_dict() for run in (whole, resumed))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_runs_in_a_math_environment_do_not_depend_on_the_time_of_a_reset(
    taught: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of prompts must not depend on timing, because the log-probabilities depend on them by rounding."""
    reset = Arithmetic.reset

    def slow_reset(env: Arithmetic, *arguments: Any, **options: Any) -> Reset:
        sleep(SystemRandom().random() / 50)
        return reset(env, *arguments, **options)

    monkeypatch.setattr(Arithmetic, "reset", slow_reset)
    options = {"env": "math:Arithmetic-v0-easy", "model": taught, "steps": 1, "episodes": 16, "eval_every": 0}
    runs = [train(tiny(tmp_path / name, **options)) for name in ("one", "other")]
    one, other = ([call.logprobs for t in played(run) for call in t.turns[0].action.calls] for run in runs)
    assert one == other
    assert curve(runs[0].rows) == curve(runs[1].rows)


def played(run: TrainingRun) -> list[Trajectory]:
    return list(read(run.folder / "trajectories" / "step-000000.jsonl.gz"))


def test_a_folder_of_another_run_is_not_overwritten(taught: str, tmp_path: Path) -> None:
    train(tiny(tmp_path / "run", steps=1, model=taught))
    with pytest.raises(BadValue, match=r"different settings:\n  optimizer.lr: unset -> 0.5\n"):
        train(tiny(tmp_path / "run", steps=1, lr=0.5, model=taught))
    assert train(tiny(tmp_path / "run", steps=1, lr=0.5, model=taught), overwrite=True).rows


def test_worker_processes_play_the_same_episodes(taught: str, tmp_path: Path) -> None:
    episodes = []
    for workers in (0, 1):
        run = train(tiny(tmp_path / str(workers), steps=1, model=taught, rollout_workers=workers))
        stored = sorted(read(run.folder / "trajectories" / "step-000000.jsonl.gz"), key=lambda t: (t.group, t.member))
        episodes.append([[(turn.action.action_ids, turn.reward) for turn in t.turns] for t in stored])
    assert episodes[0] == episodes[1]
    assert len(episodes[0]) == 8


def test_the_number_of_worker_processes_depends_on_the_device_the_environment_and_the_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = default_model("0.1M")
    paged = LocalEngine(model, tokenizer=tokenizer, device="cpu", runner="paged")
    native = LocalEngine(model, tokenizer=tokenizer, device="cpu")
    others: list[dict[str, Any]] = [
        {"env": "math:Arithmetic-v0-easy"},
        {"tools": ("python",)},
        {"env_backend": "thread"},
    ]

    def count(engine: LocalEngine = paged, **values: Any) -> int:
        config = tiny(tmp_path, **{"concurrency": 1024, **values})
        return rollout_workers._default_count(config, lambda: ChatAgent(engine), engine)

    cores = 16
    monkeypatch.setattr(rollout_workers, "usable_cores", lambda: cores)
    assert (count(), count(concurrency=512), count(concurrency=127)) == (12, 8, 0)
    assert [count(**values) for values in others] == [0, 0, 0]
    assert count(native) == 0
    cores = 8
    assert count() == 6
    cores = 3
    assert count() == 0
    with pytest.raises(BadValue, match="remove --env-backend process"):
        tiny(tmp_path, rollout_workers=2, env_backend="process")


def test_a_run_folder_is_accepted_as_model(taught: str, tmp_path: Path) -> None:
    first = train(tiny(tmp_path / "one", steps=1, model=taught))
    second = train(tiny(tmp_path / "two", steps=1, model=str(first.folder)))
    assert second.first_success == first.last_success
