"""Load the teacher model for on-policy distillation."""

from __future__ import annotations

from palestra.algorithms.base import PolicyGradient
from palestra.errors import BadValue
from palestra.training.config import TrainConfig
from palestra.training.policy import Policy, load_model

_PROBE = "Hello, world! 12345\n\tIt's 1 + 1 = 2. Zoë 你好"


def load_teacher(config: TrainConfig, student: Policy) -> Policy | None:
    """Load the model that the algorithm names as its teacher; return None if it has no teacher.

    The teacher scores the student's tokens, so both must have the same tokenizer. Every process loads the whole model.
    """
    algorithm = config.algorithm
    if not isinstance(algorithm, PolicyGradient) or not algorithm.teacher:
        return None
    model, tokenizer = load_model(config, algorithm.teacher)
    if tokenizer.encode(_PROBE) != student.tokenizer.encode(_PROBE):
        raise BadValue(
            f"the teacher {algorithm.teacher} has a different tokenizer from {config.model.name}, so it cannot score "
            "its tokens; choose a teacher of the same model family"
        )
    teacher = Policy(model, tokenizer, temperature=student.temperature, recompute="off")
    return teacher.eval().requires_grad_(False)
