"""Word problems: short stories that end with a question about a number."""

from __future__ import annotations

from random import Random
from typing import Any, ClassVar, Unpack

from palestra.envs.math.base import MathTask
from palestra.envs.math.exact import format_number
from palestra.envs.math.story_kinds import KINDS
from palestra.envs.math.story_parts import Story, distracting_sentences
from palestra.envs.tasks.base import Item, TaskOptions
from palestra.envs.tasks.generated import Levels, check_int, check_subset


class WordProblems(MathTask):
    """Grade-school word problems.

    `kinds` is a subset of KINDS, `steps` is the number of events, `size` bounds the initial numbers, and `distractors`
    is the number of sentences with irrelevant numbers. Every level has millions of different items.
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
        overrides = {"kinds": kinds, "steps": steps, "size": size, "distractors": distractors}
        super().__init__(level, overrides, **options)

    @classmethod
    def check(cls, *, kinds: Any, steps: Any, size: Any, distractors: Any) -> None:
        check_subset("kinds", kinds, KINDS)
        check_int("steps", steps, 1, 12)
        check_int("size", size, 10, 1_000_000)
        check_int("distractors", distractors, 0, 6)

    @classmethod
    def generate(cls, rng: Random, *, kinds: tuple[str, ...], steps: int, size: int, distractors: int) -> Item:
        return _make_item(rng, KINDS[rng.choice(kinds)](rng, steps, size), distractors)

    def select(self, options: dict[str, Any]) -> Item:
        """Return an item from `split`; stories with the same template are the same task."""
        settings = self.settings(self.draw_level())
        kinds, steps, size = settings["kinds"], settings["steps"], settings["size"]
        story = self.sample_task(
            lambda: KINDS[self.rng.choice(kinds)](self.rng, steps, size),
            lambda story: story.template,
            chosen=bool(options),
        )
        return _make_item(self.rng, story, settings["distractors"])


def _make_item(rng: Random, story: Story, distractors: int) -> Item:
    sentences = list(story.sentences)
    for distractor in distracting_sentences(rng, distractors, [*sentences, story.question]):
        sentences.insert(rng.randint(1, len(sentences)), distractor)
    question = f"{' '.join(sentences)} {story.question}"
    return Item(question=question, answer=format_number(story.answer), key=story.kind)
