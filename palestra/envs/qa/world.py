"""Questions about the generated encyclopedia, which is fictional and therefore unknown to pretrained models."""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Any, Unpack

from palestra.envs.tasks.base import Item, TaskEnv, TaskOptions
from palestra.envs.world.corpus import WorldCorpus
from palestra.envs.world.questions import QUESTIONS, Question, draw_question
from palestra.envs.world.world import World
from palestra.errors import BadValue
from palestra.grading.base import Grade
from palestra.grading.qa import grade_qa
from palestra.seeding import child_seed

KINDS = (*QUESTIONS, "mixed")
PAGES = 2000
UNANSWERABLE = 0.3  # share of questions of kind "unanswerable" that have no answer

_world = lru_cache(maxsize=4)(World)  # environments with the same arguments share one World


class WorldQuestions(TaskEnv):
    """A question about the encyclopedia generated from `world_seed` and `pages`.

    `kind` is the kind of question. With `tools=["search"]`, the agent can search the pages. Without tools, only a
    player that remembers the encyclopedia from earlier training could answer. For kind "unanswerable", 30% of the
    questions are unanswerable, and the others are answerable questions of the same form. `reset(options={"index": i})`
    selects the i-th question of that kind. `env.question` is the current question with its proof. With `split="test"`,
    the questions are about a different world.
    """

    filters_tasks = False  # each split has its own world
    shared = TaskEnv.shared | {"world", "question", "corpus"}

    question: Question

    def __init__(
        self, *, kind: str = "mixed", pages: int = PAGES, world_seed: int = 0, **options: Unpack[TaskOptions]
    ) -> None:
        super().__init__(**options)
        if kind not in KINDS:
            raise BadValue(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
        self.kind = kind
        if self.split == "test":
            world_seed = child_seed(world_seed, "test")
        self.world = _world(world_seed, pages)
        self.corpus = WorldCorpus(seed=self.world.seed, pages=pages)  # documents for tools=["search"]

    def draw(self, options: dict[str, Any]) -> Item:
        rng = self.rng
        if "index" in options:
            index = options.pop("index")
            if isinstance(index, bool) or not isinstance(index, int) or index < 0:
                raise BadValue(f"index must be a non-negative whole number, got {index!r}")
            rng = Random(child_seed(self.world.seed, "question", self.kind, index))
        question = self.question = draw_question(self.world, rng, self._draw_kind(rng))
        text = (
            f"This is a question about an encyclopedia of {self.world.pages:,} pages on fictional people, places, "
            "works, organizations and events.\n\n"
            f"Question: {question.text}\n\n"
            "Answer with a name as written in the encyclopedia, a date such as 3 May 1712, a year, a number, or one "
            "or two words. If the encyclopedia does not contain the answer, answer unknown."
        )
        return Item(question=text, answer=question.answer, gold=question.golds, key=f"{question.kind}: {question.text}")

    def _draw_kind(self, rng: Random) -> str:
        if self.kind == "mixed":
            return rng.choice(QUESTIONS)
        if self.kind == "unanswerable" and rng.random() >= UNANSWERABLE:
            return "answerable"
        return self.kind

    def task_key(self, item: Item) -> object:
        return self.world.seed, self.world.pages, item.key

    def grade(self, answer: str) -> Grade:
        return grade_qa(answer, self.item.gold)

    def random_answer(self) -> str:
        """Return one of the options in the question, or the answer to another question of this kind."""
        if self.question.options:
            return self.player_rng.choice(self.question.options)
        return draw_question(self.world, self.player_rng, self._draw_kind(self.player_rng)).answer

    def example_answer(self) -> str:
        return "3 May 1712"
