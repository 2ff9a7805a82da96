"""WordProblems: stories of several steps that end with a question about a number."""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar, Unpack

from palestra.envs.math.base import MathTask
from palestra.envs.math.exact import shown
from palestra.envs.math.stories import KINDS
from palestra.envs.math.story import asides
from palestra.envs.tasks.base import Item, TaskOptions
from palestra.envs.tasks.generated import Levels, check_some, check_whole


class WordProblems(MathTask):
    """Grade-school stories.

    `kinds` are some of KINDS, `steps` how much happens, `size` bounds the numbers they begin with, and `distractors` is
    the number of sentences that have numbers of no bearing. Every level has millions of different items.
    """

    levels: ClassVar[Levels] = {
        "easy": {"kinds": tuple(KINDS), "steps": 2, "size": 40, "distractors": 0},
        "medium": {"kinds": tuple(KINDS), "steps": 4, "size": 60, "distractors": 1},
        "hard": {"kinds": tuple(KINDS), "steps": 6, "size": 100, "distractors": 3},
    }

    def __init__(
        self,
        *,
        level: str = "easy",
        kinds: tuple[str, ...] | None = None,
        steps: int | None = None,
        size: int | None = None,
        distractors: int | None = None,
        **options: Unpack[TaskOptions],
    ) -> None:
        given = {"kinds": kinds, "steps": steps, "size": size, "distractors": distractors}
        super().__init__(level, given, **options)

    @classmethod
    def check(cls, *, kinds: Any, steps: Any, size: Any, distractors: Any) -> None:
        check_some("kinds", kinds, KINDS)
        check_whole("steps", steps, 1, 12)
        check_whole("size", size, 10, 1_000_000)
        check_whole("distractors", distractors, 0, 6)

    @classmethod
    def generate(cls, rng: Random, *, kinds: tuple[str, ...], steps: int, size: int, distractors: int) -> Item:
        story = KINDS[rng.choice(kinds)](rng, steps, size)
        sentences = list(story.sentences)
        for aside in asides(rng, distractors, [*sentences, story.question]):
            sentences.insert(rng.randint(1, len(sentences)), aside)
        question = f"{' '.join(sentences)} {story.question}"
        return Item(question=question, answer=shown(story.answer), key=story.kind)
