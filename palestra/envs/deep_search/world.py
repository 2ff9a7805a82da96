"""Deep search in the generated world: questions that no model remembers, pages that are searched and read."""

from __future__ import annotations

from typing import Unpack

from palestra.envs.deep_search.actions import written
from palestra.envs.deep_search.env import DeepSearch, SearchOptions
from palestra.envs.deep_search.expert import next_move
from palestra.envs.qa.world import PAGES, WorldQuestions
from palestra.envs.world.questions import Question

SNIPPET = 20  # words of a page that a search shows


class WorldSearch(DeepSearch):
    """A question of `qa:World-v0`, to be answered from the pages of its world.

    `kind`, `pages` and `world_seed` are that task's, and `reset(options={"index": i})` asks its i-th question. A search
    shows titles and the first words of pages; most of what they tell stands further down. Their index is built when
    first needed and kept in the cache folder, and all environments of a process share it. The expert reads the question
    as the world words it, searches for the page it names, opens it, and follows.
    """

    questions: WorldQuestions

    def __init__(
        self, *, kind: str = "mixed", pages: int = PAGES, world_seed: int = 0, **options: Unpack[SearchOptions]
    ) -> None:
        questions = WorldQuestions(kind=kind, pages=pages, world_seed=world_seed)
        options.setdefault("snippet_words", SNIPPET)
        super().__init__(questions, questions.corpus, **options)

    @property
    def question(self) -> Question:
        """The running question, with its proof."""
        return self.questions.question

    def expert_action(self) -> str | None:
        move = next_move(
            self.question.text,
            found=self._found,
            opened=self._read,
            asked=self._asked,
            searches_left=self.max_searches - self.searches,
            turns_left=self.max_turns - self.turn,
        )
        return written(move.kind, move.text)
