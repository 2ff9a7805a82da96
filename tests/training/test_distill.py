"""Test on-policy distillation: the advantage is the teacher's log-prob minus the student's."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from palestra.rollout.samples import to_batch
from palestra.training.step import reinforcement_step
from palestra.training.teacher import load_teacher
from tests.training.helpers import batch, learner_of
from tests.training.test_corrections import logprobs

torch.set_num_threads(1)


def test_the_loss_is_the_reverse_kl_to_the_teacher() -> None:
    trajectories = batch(3, split_at=1)
    settings: dict[str, Any] = {
        "algorithm": "distill",
        "teacher": "default:0.1M",
        "temperature": 0.9,
    }  # recomputes old log-probs
    learner = learner_of(lr=6e-3, **settings)
    other = learner_of(reference=True, **settings)
    learner.teacher, other.policy = other.reference, other.reference  # type: ignore[assignment]
    students, teachers = logprobs(learner, trajectories), logprobs(other, trajectories)
    gaps = [s - t for own, their in zip(students, teachers, strict=True) for s, t in zip(own, their, strict=True)]
    metrics = reinforcement_step(learner, trajectories, 0)
    assert len(gaps) == sum(sample.sampled for sample in to_batch(trajectories))
    assert metrics["teacher_kl"] == pytest.approx(sum(gaps) / len(gaps), abs=1e-4)
    assert metrics["policy_loss"] == pytest.approx(sum(gaps) / len(gaps), abs=1e-4)
    for _ in range(8):
        reinforcement_step(learner, trajectories, 0)
    after = [
        s - t
        for own, their in zip(logprobs(learner, trajectories), teachers, strict=True)
        for s, t in zip(own, their, strict=True)
    ]
    assert sum(map(abs, after)) < 0.8 * sum(map(abs, gaps))


def test_a_teacher_is_loaded_by_name() -> None:
    learner = learner_of(algorithm="distill", teacher="default:0.1M")
    teacher = load_teacher(learner.config, learner.policy)
    assert teacher is not None
    assert not any(p.requires_grad for p in teacher.parameters())
    assert load_teacher(learner_of(algorithm="rebn").config, learner.policy) is None
