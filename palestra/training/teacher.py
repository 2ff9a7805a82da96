"""The teacher for on-policy distillation: a model in this process, or one behind an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from palestra.algorithms.base import PolicyGradient
from palestra.engines.base import Engine
from palestra.engines.openai import OpenAIEngine
from palestra.errors import BadValue
from palestra.rollout.samples import to_batch
from palestra.rollout.types import Trajectory
from palestra.training.config import TrainConfig
from palestra.training.policy import Policy, load_model

_PROBE = "Hello, world! 12345\n\tIt's 1 + 1 = 2. Zoë 你好"


def teacher_name(config: TrainConfig) -> str:
    """Return the name of the algorithm's teacher, or "" if it has none."""
    return config.algorithm.teacher if isinstance(config.algorithm, PolicyGradient) else ""


def connect_teacher(config: TrainConfig, tokenizer: Any) -> Engine | None:
    """Return an engine for the teacher's server; None if the algorithm's teacher is not behind a server."""
    name = teacher_name(config)
    if "://" not in name:
        return None
    if config.sampling.temperature != 1.0:
        raise BadValue("a teacher behind a server returns log-probabilities at temperature 1; use --temperature 1")
    return OpenAIEngine(name, tokenizer=tokenizer, exact=True)


async def score_samples(teacher: Engine, trajectories: Sequence[Trajectory]) -> list[list[float]]:
    """Return the teacher's log-probabilities for all tokens in the trajectories' samples, in order."""
    return await asyncio.gather(*(teacher.score(sample.ids) for sample in to_batch(trajectories)))


def load_teacher(config: TrainConfig, student: Policy) -> Policy | None:
    """Load the algorithm's teacher model; return None if there is no teacher or it is behind a server.

    The teacher scores the student's tokens, so both must have the same tokenizer. Every process loads the whole model.
    """
    name = teacher_name(config)
    if not name or "://" in name:
        return None
    model, tokenizer = load_model(config, name)
    if tokenizer.encode(_PROBE) != student.tokenizer.encode(_PROBE):
        raise BadValue(
            f"the teacher {name} has a different tokenizer from {config.model.name}, so it cannot score "
            "its tokens; choose a teacher of the same model family"
        )
    teacher = Policy(model, tokenizer, temperature=student.temperature, recompute="off")
    return teacher.eval().requires_grad_(False)
