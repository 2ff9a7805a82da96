"""Base class for generated questions with a number, a tuple of numbers or a formula as the answer."""

from __future__ import annotations

from palestra.envs.tasks.generated import GeneratedTask
from palestra.grading import Grade, grade_math


class MathTask(GeneratedTask):
    """Base class for generated math tasks; answers must be fully evaluated, but their notation does not matter."""

    inline = False  # grading an answer that is not a plain number can be slow

    def grade(self, answer: str) -> Grade:
        return grade_math(answer, self.item.answer, evaluated=True)

    def random_answer(self) -> str:
        return str(self.player_rng.randint(-20, 100))

    def example_answer(self) -> str:
        return "42"
