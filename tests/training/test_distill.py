"""Test on-policy distillation: the advantage is the teacher's log-prob minus the student's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch

from palestra.errors import BadValue
from palestra.rollout.samples import to_batch
from palestra.rollout.types import Trajectory
from palestra.training.step import reinforcement_step
from palestra.training.teacher import connect_teacher, load_teacher, score_samples
from palestra.types import Call
from tests.engines.stub_server import TOKENIZER, Stub, distribution
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


def with_bytes(t: Trajectory) -> Trajectory:
    """Return the trajectory with token ids below 250, which the server's toy model accepts."""

    def mapped(call: Call) -> Call:
        return replace(call, prompt_ids=[i % 250 for i in call.prompt_ids], ids=[i % 250 for i in call.ids])

    turns = [replace(u, action=replace(u.action, calls=tuple(map(mapped, u.action.calls)))) for u in t.turns]
    return replace(t, turns=tuple(turns))


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_teacher_behind_a_server_scores_the_sampled_tokens(kind: Literal["vllm", "sglang"]) -> None:
    trajectories = [with_bytes(t) for t in batch(3, split_at=1)]
    with Stub(kind) as server:
        learner = learner_of(algorithm="distill", teacher=server.url)

        async def scores() -> list[list[float]]:
            teacher = connect_teacher(learner.config, TOKENIZER)
            assert teacher is not None
            async with teacher:
                return await score_samples(teacher, trajectories)

        teacher_logprobs = asyncio.run(scores())
    metrics = reinforcement_step(learner, trajectories, 0, teacher_logprobs=teacher_logprobs)
    gaps = [
        student - distribution(before)[token]
        for t in trajectories
        for turn in t.turns
        for call in turn.action.calls
        for before, token, student in zip([call.prompt_ids[-1], *call.ids[:-1]], call.ids, call.logprobs, strict=True)
    ]
    assert metrics["teacher_kl"] == pytest.approx(sum(gaps) / len(gaps), abs=1e-6)
    assert load_teacher(learner.config, learner.policy) is None
    with pytest.raises(BadValue, match="--temperature 1"):
        connect_teacher(learner_of(algorithm="distill", teacher=server.url, temperature=0.5).config, TOKENIZER)
