"""Test that the model plays some of the turns of an expert's episodes, and that only the expert's are imitated."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from palestra.agents import ChatAgent
from palestra.engines.default_model import default_tokenizer
from palestra.engines.scripted import ScriptedEngine
from palestra.errors import BadValue, PalestraError
from palestra.rollout import Task, collect
from palestra.rollout.samples import TrainingSample
from palestra.rollout.types import Trajectory
from palestra.training import warm_start as module
from palestra.training.demonstrations import SCRIPTED, Demonstrator, imitated_turns
from palestra.training.learner import Learner
from palestra.training.recipe import from_mapping
from palestra.training.step import clone_samples
from palestra.training.trainer_selection import run_trainer
from palestra.training.warm_start import warm_start
from tests.training.helpers import learner_of

GUESS = "game:GuessTheNumber-v0-easy"
EXPERT: dict[str, Any] = {"env": GUESS, "warm_player": "expert", "warm_epochs": 1}


def model(reply: str = r"\boxed{10}") -> ChatAgent:
    """Return an agent whose replies are always the same."""
    return ChatAgent(ScriptedEngine(reply, tokenizer=default_tokenizer()), max_tokens=8)


def played(count: int, agent: ChatAgent | None = None, own: float = 0.0) -> list[Trajectory]:
    player = Demonstrator(default_tokenizer(), "expert", max_tokens=0, model=agent, own_actions=own)
    tasks = [Task(env_id=GUESS, seed=seed, group=seed) for seed in range(count)]
    return asyncio.run(collect(player, tasks)).trajectories


def actions(trajectory: Trajectory) -> list[str]:
    return [turn.action.text for turn in trajectory.turns]


def test_the_model_plays_a_fraction_of_the_turns_and_the_expert_continues() -> None:
    mixed = played(60, model(), 0.4)
    weights = [imitated_turns(t) for t in mixed]
    assert 0.3 < 1 - fmean(weight for row in weights for weight in row) < 0.5
    for trajectory, row in zip(mixed, weights, strict=True):
        for text, weight in zip(actions(trajectory), row, strict=True):
            assert weight or text == r"\boxed{10}"
    continued = [t for t, row in zip(mixed, weights, strict=True) if row[:2] == [0.0, 1.0]]
    assert continued
    for trajectory in continued:  # the expert knows that the number is below 10
        assert actions(trajectory)[1] == r"\boxed{5}"


def test_without_a_model_all_turns_are_the_experts() -> None:
    alone = played(5)
    assert [imitated_turns(t) for t in alone] == [[1.0] * len(t.turns) for t in alone]
    assert {call.version for t in alone for turn in t.turns for call in turn.action.calls} == {SCRIPTED}
    assert [actions(t) for t in played(5, model(), 0.0)] == [actions(t) for t in alone]


def test_the_models_replies_are_as_short_as_in_training() -> None:
    words = "one two three four five six seven eight nine ten eleven twelve"
    calls = [call for t in played(4, model(words), 0.9) for turn in t.turns for call in turn.action.calls]
    assert {len(call.ids) for call in calls if call.version != SCRIPTED} == {8}


@pytest.mark.parametrize("epochs", [1, 2])
def test_every_round_but_the_first_has_turns_of_the_model_which_have_no_weight(
    monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    learner = learner_of(**{**EXPERT, "warm_epochs": epochs}, warm_start=30, warm_rounds=3, warm_batch=2)
    seen: list[tuple[set[int], set[float]]] = []
    rates: list[float] = []
    asked: list[int] = []

    def clone(given: Learner, samples: Sequence[TrainingSample], weights: Any, lr: float, **options: Any) -> Any:
        numbers = {sample.episode for sample in samples}
        seen.append((numbers, {weight for number in numbers for weight in weights[number]}))
        rates.append(lr)
        return clone_samples(given, samples, weights, lr, **options)

    async def current(longest: int) -> ChatAgent:
        asked.append(longest)
        return model()

    monkeypatch.setattr(module, "clone_samples", clone)
    lines: list[str] = []
    longest = asyncio.run(warm_start(learner, learner.config, lines.append, model=current))
    assert asked == [longest, longest]  # before the second and the third round
    assert len(seen) == 15 * epochs
    for number in range(3 * epochs):
        part = seen[5 * number : 5 * number + 5]
        assert set.union(*(episodes for episodes, _ in part)) == set(range(10))
        assert set.union(*(weights for _, weights in part)) == ({1.0} if number < epochs else {0.0, 1.0})
    assert rates.index(max(rates)) >= 9  # the learning rate rises in the first ten updates
    assert sorted(rates[-4:], reverse=True) == rates[-4:]  # and falls at the end of the last round
    assert f"warm start: round 3 of 3, epoch {epochs} of {epochs}, mean loss" in lines[-2]
    assert lines[-1] == "warm start: cloned 30 episodes of the expert player"


def test_a_run_has_an_evaluation_for_every_epoch_of_every_round(tmp_path: Path) -> None:
    settings = {
        **EXPERT,
        "model": "default:0.1M",
        "episodes": 4,
        "eval_episodes": 4,
        "steps": 1,
        "warm_start": 8,
        "warm_rounds": 2,
        "warm_epochs": 2,
        "warm_evaluate": True,
        "out": str(tmp_path),
    }
    run = asyncio.run(run_trainer(from_mapping(settings)))
    rows = [(row["step"], row.get("warm_epoch")) for row in run.rows]
    assert rows == [(-5, 0), (-4, 1), (-3, 2), (-2, 3), (-1, None), (0, None)]


def test_prompts_that_do_not_fit_into_the_models_context_are_reported() -> None:
    learner = learner_of(**EXPERT, warm_start=4, warm_rounds=2)

    async def current(_: int) -> ChatAgent:
        return ChatAgent(ScriptedEngine("1", tokenizer=default_tokenizer(), max_context=40), max_tokens=8)

    with pytest.raises(PalestraError, match="expert player of the warm start finished no episodes"):
        asyncio.run(warm_start(learner, learner.config, model=current))


def test_every_round_has_an_episode() -> None:
    with pytest.raises(BadValue, match="2 episodes cannot be divided into 5 rounds; raise --warm-start"):
        from_mapping({**EXPERT, "model": "default:0.1M", "warm_start": 2, "warm_rounds": 5})


def test_several_rounds_need_an_expert() -> None:
    with pytest.raises(BadValue, match="--warm-player expert"):
        from_mapping({"env": GUESS, "model": "default:0.1M", "warm_rounds": 2})
