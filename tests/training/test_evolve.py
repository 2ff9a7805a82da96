"""Test AgentEvol end to end at a tiny size: it trains the configured model on exactly the successful episodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from palestra.agents import RandomAgent
from palestra.algorithms.agentevol import successes
from palestra.errors import BadValue
from palestra.rollout import Trajectory, Writer, collect, read
from palestra.training import evolve, train
from palestra.training.config import TrainConfig
from palestra.training.recipe import from_mapping
from palestra.training.step import cloning_step

torch.set_num_threads(1)
GAME = "game:GuessTheNumber-v0-easy"


class Killed(Exception):
    pass


def tiny(out: Path, **values: Any) -> TrainConfig:
    settings: dict[str, Any] = {
        "env": GAME,
        "algorithm": "agentevol",
        "model": "default:0.1M",
        "out": str(out),
        "steps": 3,
        "episodes": 32,
        "group_size": 4,
        "concurrency": 32,
        "eval_every": 0,
        "eval_episodes": 2,
        "max_tokens": 8,
        "epochs": 1,
        "batch": 8,
        "lr": 1e-3,
        "lr_warmup": 1,
    }
    return from_mapping({**settings, **values})


def curve(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if "second" not in k} for row in rows]


class Cloned:
    """Record the trajectories that each round trains on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[list[Trajectory], list[list[float]], list[torch.Tensor]]] = []
        monkeypatch.setattr(evolve, "cloning_step", self._clone)

    def _clone(self, learner: Any, trajectories: Any, weights: Any, lr: float, **options: Any) -> dict[str, float]:
        before = [p.detach().clone() for p in learner.policy.model.parameters()]
        self.seen.append((list(trajectories), [list(w) for w in weights], before))
        return cloning_step(learner, trajectories, weights, lr, **options)


@pytest.mark.parametrize("source", ["start", "current"])
def test_only_successes_are_cloned_into_the_configured_model(
    source: str, taught: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloned = Cloned(monkeypatch)
    run = train(tiny(tmp_path / "run", model=taught, evolve_from=source, batch=1000, steps=2))
    rows = [row for row in run.rows if row["step"] >= 0]
    assert len(cloned.seen) == 2, "each of the two rounds must make one pass with one batch"
    for step, (trajectories, weights, _) in enumerate(cloned.seen):
        explored = list(read(run.folder / "trajectories" / f"step-{step:06d}.jsonl.gz"))
        assert len(explored) == 32
        assert rows[step]["successes"] == len(trajectories) == len(successes(explored)) > 0
        assert all(t.success for t in trajectories)
        assert all(set(w) == {t.total_reward} for w, t in zip(weights, trajectories, strict=True))
    (_, _, first), (_, _, second) = cloned.seen
    same = all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert same is (source == "start")
    learned = AutoModelForCausalLM.from_pretrained(run.folder / "last").parameters()
    assert any(not torch.equal(a, b) for a, b in zip(first, learned, strict=True))


def test_successes_of_earlier_rounds_can_be_included(
    taught: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloned = Cloned(monkeypatch)
    run = train(tiny(tmp_path / "run", model=taught, evolve_rounds=0, evolve_weight="equal", batch=1000))
    successes = [row["successes"] for row in run.rows if row["step"] >= 0]
    assert successes == sorted(set(successes)), "the training set must grow"
    assert [len(trajectories) for trajectories, _, _ in cloned.seen] == successes
    assert all(set(w) == {1.0} for _, weights, _ in cloned.seen for w in weights)


def test_the_base_set_is_cloned_first_and_in_every_round(
    taught: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = asyncio.run(collect(RandomAgent(), GAME, episodes=24, seed=3, concurrency=16)).trajectories
    with Writer(tmp_path / "base.jsonl") as writer:
        for trajectory in played:
            writer.write(trajectory)
    base = [t for t in played if t.success]
    cloned = Cloned(monkeypatch)
    messages: list[str] = []
    config = tiny(
        tmp_path / "run", model=taught, data=str(tmp_path / "base.jsonl"), evolve_base=0.5, batch=1000, steps=1
    )
    run = train(config, log=messages.append)
    (first, weights, _), (second, mixed, _) = cloned.seen
    assert sorted(t.seed for t in first) == sorted(t.seed for t in base)
    assert all(set(w) == {1.0} for w in weights)
    successes = run.rows[-1]["successes"]
    assert len(second) == len(base) + successes == run.rows[-1]["examples"]
    assert sorted({w for ws in mixed for w in ws}) == [0.5, 1.0]
    assert any(line.startswith(f"cloned the base set: {len(base)} trajectories") for line in messages)


def test_a_killed_run_resumes_exactly(taught: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": taught, "evolve_rounds": 2, "episodes": 16, "eval_every": 1, "eval_episodes": 4}
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


def test_a_run_without_the_weights_at_its_start_is_not_continued(taught: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": taught, "episodes": 8}
    train(tiny(tmp_path / "run", steps=1, **options))
    path = tmp_path / "run" / "start.pt"
    path.unlink()
    for content in (None, b"", b"abc"):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(
            BadValue, match=r"start.pt, the model at the start of RL, is missing or damaged .*--overwrite"
        ):
            train(tiny(tmp_path / "run", steps=2, **options))


def test_a_round_without_success_changes_nothing_and_is_reported(tmp_path: Path) -> None:
    run = train(tiny(tmp_path / "run", warm_start=0, steps=1, episodes=8))  # an untrained model's actions are invalid
    assert run.rows[-1]["successes"] == 0
    assert run.rows[-1]["signal"] == 0.0
    start, last = (
        AutoModelForCausalLM.from_pretrained(folder).state_dict()
        for folder in sorted((run.folder / "checkpoints").iterdir())
    )
    assert all(torch.equal(start[name], last[name]) for name in start)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"env": ()}, "name at least one environment"),
        ({"evolve_from": "end"}, "evolve_from must be one of start, current"),
        ({"evolve_base": -1.0}, "evolve_base must be at least 0"),
        ({"evolve_rounds": 0, "store": False}, "remove --no-store"),
    ],
)
def test_invalid_settings_are_rejected(values: dict[str, Any], words: str) -> None:
    with pytest.raises(BadValue, match=words):
        tiny(Path("nowhere"), **values)
