"""Test that wrong log-probabilities from an engine are detected before a run trains on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from palestra.errors import EngineFailed
from palestra.rollout.samples import to_batch
from palestra.rollout.types import Trajectory
from palestra.training.learner import Learner
from palestra.training.step import reinforcement_step
from tests.training.helpers import batch, learner_of

Change = Callable[[list[float]], list[float]]


def sampled(learner: Learner, change: Change) -> list[Trajectory]:
    """Return episodes with the learner's log-probabilities, as modified by `change` for each reply."""
    trajectories = batch(1, count=6)
    samples = to_batch(trajectories)
    found: dict[int, list[float]] = {}
    with torch.no_grad():
        for micro_batch in learner.micro_batches(samples):
            scores = micro_batch.read(learner.policy.score(micro_batch).logprobs)
            for sample, numbers in zip(micro_batch.samples, scores, strict=True):
                own = found.setdefault(sample.episode, [])
                own += [number for number, mask in zip(numbers, sample.mask, strict=True) if mask]
    changed = []
    for index, trajectory in enumerate(trajectories):
        left = iter(found[index])
        turns = []
        for turn in trajectory.turns:
            [call] = turn.action.calls
            call = replace(call, logprobs=change([next(left) for _ in call.ids]))
            turns.append(replace(turn, action=replace(turn.action, calls=(call,))))
        changed.append(replace(trajectory, turns=tuple(turns)))
    return changed


def test_right_logprobs_have_a_kl_of_zero() -> None:
    learner = learner_of()
    metrics = reinforcement_step(learner, sampled(learner, list), 0, version=0)
    assert metrics["engine_kl"] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        lambda logprobs: [value - 1.0 for value in logprobs],
        lambda logprobs: [value / 2 for value in logprobs],  # at another temperature
        lambda logprobs: [-3.0 - 0.1 * place for place, _ in enumerate(logprobs)],
    ],
    ids=["offset", "temperature", "other"],
)
def test_wrong_logprobs_stop_the_run(change: Change) -> None:
    learner = learner_of()
    with pytest.raises(EngineFailed, match="log-probabilities do not match the weights: the KL is"):
        reinforcement_step(learner, sampled(learner, change), 0, version=0)
