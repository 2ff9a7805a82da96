"""Base class for generated questions with a number, a tuple of numbers or a formula as the answer."""

from __future__ import annotations

from typing import Any

from palestra.core import Reset
from palestra.envs.tasks.generated import GeneratedTask
from palestra.grading import Grade, grade_math


class MathTask(GeneratedTask):
    """Base class for generated math tasks; answers must be fully evaluated, but their notation does not matter."""

    inline = False  # grading an answer that is not a plain number can be slow

    async def areset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        """Call `reset` without a thread, because it takes about 0.1 ms.

        The prompts of a batch then do not depend on the timing of threads, so training runs are reproducible.
        """
        return self.reset(seed=seed, options=options)

    def grade(self, answer: str) -> Grade:
        return grade_math(answer, self.item.answer, evaluated=True)

    def random_answer(self) -> str:
        return str(self.player_rng.randint(-20, 100))

    def example_answer(self) -> str:
        return "42"
