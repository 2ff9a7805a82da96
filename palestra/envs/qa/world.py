r"""Questions about the generated world: what no model can remember, so that a score says what the agent found."""

from __future__ import annotations

from functools import lru_cache
from random import Random
from typing import Any, Unpack

from palestra.envs.tasks.base import Item, TaskEnv, TaskOptions
from palestra.envs.world.corpus import WorldCorpus
from palestra.envs.world.questions import QUESTIONS, Question, ask
from palestra.envs.world.world import World
from palestra.errors import BadValue
from palestra.grading.base import Grade
from palestra.grading.qa import grade_qa
from palestra.seeding import child_seed

KINDS = (*QUESTIONS, "mixed")
PAGES = 2000

_world = lru_cache(maxsize=4)(World)  # many environments ask about one


class WorldQuestions(TaskEnv):
    """A question about the world that `world_seed` and `pages` give; `kind` says of what sort.

    With `tools=["search"]` its pages are searched; without, the question is asked alone, and only guessing is left.
    "unanswerable" asks two sorts by turns of chance, so that always saying "unknown" earns half: questions that no
    page answers, and ones of the same wording that some page does. `reset(options={"index": i})` asks the i-th
    question of its kind. The running question, with its proof, is `env.question`.
    """

    shared = TaskEnv.shared | {"world", "question", "corpus"}

    question: Question

    def __init__(
        self, *, kind: str = "mixed", pages: int = PAGES, world_seed: int = 0, **options: Unpack[TaskOptions]
    ) -> None:
        super().__init__(**options)
        if kind not in KINDS:
            raise BadValue(f"kind is one of {', '.join(KINDS)}, got {kind!r}")
        self.kind = kind
        self.world = _world(world_seed, pages)
        self.corpus = WorldCorpus(seed=self.world.seed, pages=pages)  # what tools=["search"] searches

    def draw(self, options: dict[str, Any]) -> Item:
        rng = self.rng
        if "index" in options:
            index = options.pop("index")
            if isinstance(index, bool) or not isinstance(index, int) or index < 0:
                raise BadValue(f"index is a whole number from 0 up, got {index!r}")
            rng = Random(child_seed(self.world.seed, "question", self.kind, index))
        question = self.question = ask(self.world, rng, self._drawn_kind(rng))
        text = (
            f"This is a question about an encyclopaedia of {self.world.pages:,} pages on people, places, works, "
            "organisations and events that never were.\n\n"
            f"Question: {question.text}\n\n"
            "Answer with a name as the encyclopaedia writes it, a date such as 3 May 1712, a year, a number or a word "
            "or two. If the encyclopaedia does not tell, the answer is unknown."
        )
        return Item(question=text, answer=question.answer, gold=question.golds, key=f"{question.kind}: {question.text}")

    def _drawn_kind(self, rng: Random) -> str:
        if self.kind == "mixed":
            return rng.choice(QUESTIONS)
        if self.kind == "unanswerable" and rng.random() < 0.5:
            return rng.choice(("1hop", "2hop", "3hop"))
        return self.kind

    def grade(self, answer: str) -> Grade:
        return grade_qa(answer, self.item.gold)

    def random_answer(self) -> str:
        """One of those the question names, or the answer to another question of the kind."""
        if self.question.options:
            return self.player_rng.choice(self.question.options)
        return ask(self.world, self.player_rng, self._drawn_kind(self.player_rng)).answer

    def example_answer(self) -> str:
        return "3 May 1712"
