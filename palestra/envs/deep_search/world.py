"""Deep search environment with questions about the generated world, answered by searching and reading its pages."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Unpack

from palestra.envs.deep_search.actions import ANSWER, OPEN, SEARCH, SearchAction, format_action
from palestra.envs.deep_search.env import DeepSearch, SearchOptions
from palestra.envs.qa.world import PAGES, WorldQuestions
from palestra.envs.world.phrases import UNKNOWN
from palestra.envs.world.questions import Question
from palestra.envs.world.reader import Reading, read
from palestra.envs.world.solver import Solver, queries

SNIPPET_WORDS = 20  # number of words per page in a search result

_reading = lru_cache(maxsize=10_000)(read)  # many environments parse the same pages in every turn


class WorldSearch(DeepSearch):
    """Answer a question from `qa:World-v0` by searching the pages of its world.

    `kind`, `pages` and `world_seed` have the same meaning as in that task, and `reset(options={"index": i})` selects
    its i-th question. A search shows the titles and the first words of pages. Most facts appear later on a page. The
    index is built when it is first needed, stored in the cache folder, and shared by all environments in a process. The
    expert parses the question, searches for the page that it mentions, opens the page, and continues with the pages
    that are mentioned there.
    """

    expert_peeks = False  # the expert is a solver that reads only observations

    questions: WorldQuestions

    def __init__(
        self, *, kind: str = "mixed", pages: int = PAGES, world_seed: int = 0, **options: Unpack[SearchOptions]
    ) -> None:
        questions = WorldQuestions(kind=kind, pages=pages, world_seed=world_seed, split=options.get("split"))
        options.setdefault("snippet_words", SNIPPET_WORDS)
        super().__init__(questions, questions.corpus, **options)

    @property
    def question(self) -> Question:
        """The current question, with its proof."""
        return self.questions.question

    def expert_action(self) -> str | None:
        solver = _StepSolver(self._hits, self._pages_read, self._queries, self.max_searches - self.searches)
        try:
            action = SearchAction(ANSWER, solver.answer(self.question.text))
        except _PageNeeded as needed:
            last_turn = self.max_turns - self.turn <= 1
            action = SearchAction(ANSWER, UNKNOWN) if last_turn else needed.action
        return format_action(action.kind, action.text)


class _PageNeeded(Exception):
    """Raised when the solver needs another page. `action` is the search or open action to take next."""

    def __init__(self, action: SearchAction) -> None:
        super().__init__(action)
        self.action = action


class _StepSolver(Solver):
    """Solver that reads only the pages opened so far and raises `_PageNeeded` when it needs another page.

    In every turn, a new solver starts from the beginning.
    """

    def __init__(
        self,
        found_titles: Collection[str],
        opened: Mapping[str, str],
        past_queries: Collection[str],
        searches_left: int,
    ) -> None:
        super().__init__(lambda _: "")
        self._found_titles, self._opened = found_titles, opened
        self._past_queries, self._searches_left = past_queries, searches_left

    def lookup(self, title: str) -> Reading | None:
        if title in self._opened:
            return _reading(title, self._opened[title])
        if title in self._found_titles:
            raise _PageNeeded(SearchAction(OPEN, title))
        query = next((query for query in queries(title) if query not in self._past_queries), None)
        if query is None or self._searches_left < 1:
            return None  # the page does not exist, or no search is left to find it
        raise _PageNeeded(SearchAction(SEARCH, query))
