"""Base class for environments in which the agent answers a question by searching and reading pages.

A single-turn task (`palestra.envs.tasks`) provides the questions and grades the answers. A search tool
(`palestra.tools.search`) searches a local index or a server. This module combines the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

from palestra.core import Reset
from palestra.envs.deep_search.actions import ANSWER, OPEN, SEARCH, SearchAction, format_action, read_action
from palestra.envs.multi_turn import MultiTurnEnv, MultiTurnOptions, Outcome
from palestra.envs.tasks.base import TaskEnv
from palestra.errors import BadValue, InfrastructureError, ToolFailed
from palestra.grading.qa import grade_qa
from palestra.parsing import clip, plain
from palestra.tools.search import Hit, Index, Passage, SearchTool
from palestra.tools.search.passages import format_hits
from palestra.types import Step, text_of

if TYPE_CHECKING:
    from palestra.tools.search.corpus import Corpus

RewardRule = Literal["exact", "f1"]
MAX_QUERY_CHARS = 1_000  # maximum query length; longer queries are truncated
PART_CHARS = 6_000  # maximum length of a page or part; longer pages are split
MAX_LISTED = 12  # maximum number of titles listed in the feedback for an unknown title
_PART_OF = re.compile(r"(.*?)\s*#\s*([0-9]{1,4})", re.S)
_EXAMPLE = format_action(SEARCH, "lighthouse on the northern coast", "I need the page about the lighthouse first.")


class SearchOptions(MultiTurnOptions, total=False):
    """Keyword arguments common to all deep search environments."""

    index: str | Path | Index | SearchTool | None  # a string is a folder or a server address
    max_searches: int
    max_turns: int
    topk: int
    mode: str
    snippet_words: int | None
    reward_rule: RewardRule
    max_answers: int | None
    timeout: float


class DeepSearch(MultiTurnEnv):
    """Base class for the deep search environments.

    In each turn, the agent takes one action: `<search>`, `<open>` or `<answer>`. An answer ends the episode. A search
    shows the `topk` best passages, each truncated to `snippet_words` words (None disables truncation). `<open>` shows
    the full page for a title that appeared in a search result. Long pages are split into parts. After `max_searches`
    searches, any further search is rejected but still uses a turn. A reply that cannot be parsed also uses a turn. An
    exact match earns 1. With `reward_rule="f1"`, any other answer earns its F1 score. After a wrong answer, the agent
    may answer again, up to `max_answers` times in an episode; None means no limit, as in AgentGym. If the search itself
    fails, an InfrastructureError is raised and no turn is used.

    `index` is an index folder, an open Index, a server address, or a SearchTool. `mode` and `timeout` are
    passed to the search tool.
    """

    filters_tasks = False  # `questions` respects `split`
    expert_peeks = True  # the expert submits the answer from the dataset
    inline = False  # a search may wait for a server, and the first one may build an index
    # `_hits` and `_pages_read` can be shared because they are replaced, never mutated.
    shared = MultiTurnEnv.shared | {"tool", "_task_info", "_hits", "_pages_read"}

    questions: TaskEnv
    searches: int  # number of searches so far
    opens: int
    answers: int  # number of answers so far
    _task_info: Mapping[str, Any]  # entries of the task's reset info that identify the item
    _hits: Mapping[str, Hit]  # hits shown so far, by title
    _pages_read: Mapping[str, str]  # pages opened so far, by title
    _queries: list[str]

    def __init__(
        self,
        questions: TaskEnv,
        corpus: Corpus | None,
        /,
        *,
        index: str | Path | Index | SearchTool | None = None,
        max_searches: int = 5,
        max_turns: int = 12,
        topk: int = 5,
        mode: str = "bm25",
        snippet_words: int | None = None,
        reward_rule: RewardRule = "exact",
        max_answers: int | None = 1,
        timeout: float = 30.0,
        **options: Unpack[MultiTurnOptions],
    ) -> None:
        super().__init__(max_turns=max_turns, **options)
        if isinstance(max_searches, bool) or not isinstance(max_searches, int) or max_searches < 0:
            raise BadValue(f"`max_searches` must be an integer of at least 0, got {max_searches!r}")
        if snippet_words is not None and (not isinstance(snippet_words, int) or snippet_words < 1):
            raise BadValue(f"`snippet_words` must be an integer of at least 1, or None; got {snippet_words!r}")
        if reward_rule not in get_args(RewardRule):
            raise BadValue(f"`reward_rule` must be one of {', '.join(get_args(RewardRule))}; got {reward_rule!r}")
        if max_answers is not None and (type(max_answers) is not int or max_answers < 1):
            raise BadValue(f"`max_answers` must be an integer of at least 1, or None for no limit; got {max_answers!r}")
        self.max_answers = max_answers
        self.questions = questions
        self.num_tasks = questions.num_tasks
        self.max_searches = max_searches
        self.snippet_words = snippet_words
        self.reward_rule = reward_rule
        if isinstance(index, SearchTool):
            self.tool = index
        else:
            source = index if index is not None else corpus if corpus is not None else ""
            self.tool = SearchTool(source, topk=topk, mode=mode, timeout=timeout)

    # Episode

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.questions._first_seed = self._first_seed  # set by `make`
        _, info = self.questions.reset(seed, options)
        self._task_info = {name: info[name] for name in ("item", "index", "epoch") if name in info}
        return super().reset(info["seed"])

    def setup(self, options: dict[str, Any]) -> None:  # noqa: ARG002  # the task handles the options
        self.searches = self.opens = self.answers = 0
        self._hits = {}
        self._pages_read = {}
        self._queries = []

    def task_key(self) -> object:
        return self.questions.task_id

    def reset_info(self) -> dict[str, Any]:
        return {"max_searches": self.max_searches, **self._task_info}

    def prompt(self) -> str:
        shown, unit = ("opening words", "pages") if self.snippet_words else ("text", "passages")
        cost = "ends the episode" if self.stop_when_error else "uses a turn"
        partial = " A partially correct answer earns its F1 score." if self.reward_rule == "f1" else ""
        end = " and end the episode" if self.max_answers == 1 else "; a correct answer ends the episode"
        attempts = "You have one attempt." if self.max_answers == 1 else f"You have {self.max_answers} attempts."
        if self.max_answers is None:
            attempts = "After a wrong answer, you may answer again."
        return (
            f"{self.question_text()}\n\n"
            "Find the answer by searching. In every turn, take one of these actions:\n"
            f"- {format_action(SEARCH, 'query')}: show the titles and {shown} of up to {self.tool.topk} {unit} that "
            "best match the query\n"
            f"- {format_action(OPEN, 'title')}: show the full page with this title, which must have appeared in a "
            "search result\n"
            f"- {format_action(ANSWER, 'the answer')}: submit the answer{end}. Give only the answer, "
            f"not a sentence; case, articles and punctuation do not matter.{partial} {attempts}\n"
            "Results appear between <information> and </information>. You may think first, inside "
            f"<think></think>; only the first action after it counts. For example: {_EXAMPLE}\n"
            f"You have {_count(self.max_turns, 'turn', 'turns')}, including the answer, and at most "
            f"{_count(self.max_searches, 'search', 'searches')}. A further search is rejected and {cost}; a reply "
            f"without a valid action also {cost}. If you do not answer within this budget, the reward is 0."
        )

    def question_text(self) -> str:
        """Return the question for the prompt."""
        return text_of(self.questions.item.question)

    # Actions

    def act(self, action: str) -> Outcome:
        parsed, outcome = self._parse(action)
        if outcome is not None:
            return outcome
        with _boundary():
            results = self._look_up(parsed)
        return self._show(parsed, results)

    async def astep(self, action: str) -> Step:
        self._check_step(action)
        parsed, outcome = self._parse(action)
        if outcome is None:
            with _boundary():
                results = await self._alook_up(parsed)
            outcome = self._show(parsed, results)
        return self._to_step(outcome)

    def can_read(self, action: str) -> bool:
        return read_action(action) is not None

    def _parse(self, action: str) -> tuple[SearchAction, Outcome | None]:
        """Return the action with cleaned text and its outcome, which is None if the search tool must be called."""
        parsed = read_action(action)
        if parsed is None:
            text = (
                f"No action found. Write {format_action(SEARCH, 'query')}, {format_action(OPEN, 'title')} or "
                f"{format_action(ANSWER, 'the answer')}, for example: {_EXAMPLE}"
            )
            return SearchAction("", ""), self._outcome("", text, invalid="format")
        kind, text, _ = parsed
        if not text:
            return parsed, self._outcome(kind, f"There is no text between <{kind}> and </{kind}>.", invalid="rule")
        if kind == ANSWER:
            return parsed, self._grade_answer(text)
        # Lone surrogates cannot be encoded as UTF-8, so no passage contains them and no server accepts them.
        text = text[:MAX_QUERY_CHARS].encode("utf-8", "replace").decode()
        if kind == SEARCH and self.searches >= self.max_searches:
            feedback = f"All {self.max_searches} searches are used. Open a page that was found, or answer."
            return parsed, self._outcome(kind, feedback, invalid="rule")
        if kind == OPEN:
            title, part = self._find_title(text)
            if title is None:
                title, part = self._find_title(plain(text).strip("[]"))
            if title is None:
                feedback = f"No search has found a page titled {clip(text, 80)!r}. {self._found_titles()}"
                return parsed, self._outcome(kind, feedback, invalid="rule")
            return SearchAction(kind, title, part), None
        return SearchAction(kind, plain(text)), None

    def _find_title(self, text: str) -> tuple[str | None, int]:
        """Return the matching title among the search results so far, or None, and the requested part of its page."""
        by_key = {_key(title): title for title in reversed(list(self._hits))}
        whole = by_key.get(_key(text))
        if whole is not None:
            return whole, 1
        match = _PART_OF.fullmatch(text)
        return (by_key.get(_key(match[1])), max(1, int(match[2]))) if match else (None, 1)

    def _found_titles(self) -> str:
        if not self._hits:
            return "Search first; the search results show the titles of pages."
        names = list(self._hits)
        return f"Found so far: {'; '.join(names[-MAX_LISTED:])}{' and others' if len(names) > MAX_LISTED else ''}."

    def _look_up(self, action: SearchAction) -> list[Hit] | list[Passage]:
        if action.kind == SEARCH:
            return self.tool.hits(action.text)
        return self.tool.page(self._hits[action.text])

    async def _alook_up(self, action: SearchAction) -> list[Hit] | list[Passage]:
        if action.kind == SEARCH:
            return await self.tool.ahits(action.text)
        return await self.tool.apage(self._hits[action.text])

    def _show(self, action: SearchAction, results: list[Any]) -> Outcome:
        return self._show_hits(action.text, results) if action.kind == SEARCH else self._show_page(action, results)

    def _show_hits(self, query: str, hits: list[Hit]) -> Outcome:
        self.searches += 1
        self._queries.append(query)
        by_title = dict(self._hits)
        for hit in hits:
            by_title.setdefault(_title(hit.passage), hit)
        self._hits = by_title
        return self._outcome(SEARCH, format_hits([self._snippet(hit) for hit in hits]))

    def _show_page(self, action: SearchAction, passages: list[Passage]) -> Outcome:
        self.opens += 1
        text = "\n".join(passage.text for passage in passages)
        parts = max(1, -(-len(text) // PART_CHARS))
        part = min(action.part, parts)
        text = text[(part - 1) * PART_CHARS : part * PART_CHARS]
        self._pages_read = {**self._pages_read, action.text: text}
        if parts > 1:
            more = f"; {format_action(OPEN, f'{action.text}#{part + 1}')} shows the next part" if part < parts else ""
            text += f"\n[part {part} of {parts}{more}]"
        return self._outcome(OPEN, f"{action.text}\n{text}")

    def _snippet(self, hit: Hit) -> Hit:
        passage = hit.passage
        words = passage.text.split() if self.snippet_words else []
        if self.snippet_words and len(words) > self.snippet_words:
            passage = replace(passage, text=f"{' '.join(words[: self.snippet_words])} ...")
        return replace(hit, passage=replace(passage, title=_title(passage)))

    def _grade_answer(self, answer: str) -> Outcome:
        item = self.questions.item
        grade = self.questions.grade(answer)
        exact = grade_qa(answer, item.gold or item.answer)
        reward = 1.0 if grade.correct else exact.score if self.reward_rule == "f1" else 0.0
        info = {
            **self._counters(ANSWER),
            "exact_match": exact.correct,
            "f1": exact.score,
            "score": exact.score,
            "why": grade.why,
            "answer": item.answer,
        }
        self.answers += 1
        again = self.max_answers is None or self.answers < self.max_answers
        if not grade.correct and again and self.turn + 1 < self.max_turns:
            return self._outcome(ANSWER, "The answer is not correct. Try again.")
        feedback = "The answer is correct." if grade.correct else "The answer is not correct."
        return Outcome(feedback, reward, "solved" if grade.correct else "wrong", info=info)

    def _outcome(self, kind: str, text: str, *, invalid: str | None = None) -> Outcome:
        left = self.max_turns - self.turn - 1
        searches = _count(self.max_searches - self.searches, "search", "searches")
        continues = left and not (invalid and self.stop_when_error)
        note = f"\nYou have {_count(left, 'turn', 'turns')} and {searches} left." if continues else ""
        return Outcome(f"<information>\n{text}\n</information>{note}", invalid=invalid, info=self._counters(kind))

    def _counters(self, kind: str) -> dict[str, Any]:
        return {"action": kind, "searches": self.searches, "opens": self.opens}

    def render(self, mode: str = "text") -> str | None:
        """Return the question, the queries, the pages found and the pages read."""
        if mode != "text" or self.ending == "reset":
            return None
        lines = [
            self.question_text(),
            f"Searches ({self.searches} of {self.max_searches}): {'; '.join(self._queries) or 'none'}",
            f"Pages found: {'; '.join(self._hits) or 'none'}",
            f"Pages read: {'; '.join(self._pages_read) or 'none'}",
            f"Turns: {self.turn} of {self.max_turns}{f' ({self.ending})' if self.ending else ''}",
        ]
        return "\n".join(lines)

    # Players

    def example_action(self) -> str:
        return _EXAMPLE

    def sample_random_action(self) -> str:
        """Search for random words from the question, open a page from the search results, or guess an answer."""
        rng = self.player_rng
        choice = rng.random()
        if choice < 0.4 and self.turn + 1 < self.max_turns and self.searches < self.max_searches:
            words = re.findall(r"\w+", self.question_text())
            first = rng.randrange(max(1, len(words) - 2))
            return format_action(SEARCH, " ".join(words[first : first + 3]))
        if choice < 0.7 and self.turn + 1 < self.max_turns and self._hits:
            return format_action(OPEN, rng.choice(list(self._hits)))
        self.questions._player_rng = rng  # the task's random answers use the same generator
        return format_action(ANSWER, self.questions.random_answer())

    def expert_action(self) -> str | None:
        """Return the answer from the dataset without searching, because the pages may not contain it."""
        return format_action(ANSWER, self.questions.item.answer)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _key(title: str) -> str:
    return " ".join(title.casefold().split()).strip("\"'")


def _title(passage: Passage) -> str:
    """Return the title that `<open>` accepts for a passage, which is its id if its own title is empty."""
    return passage.title.strip() or passage.id


@contextmanager
def _boundary() -> Iterator[None]:
    """Convert exceptions from the search tool into ToolFailed.

    The index was valid when the environment was created, so such an exception is an infrastructure failure.
    """
    try:
        yield
    except InfrastructureError:
        raise
    except (OSError, ValueError, MemoryError) as err:
        raise ToolFailed(f"the search failed: {type(err).__name__}: {err}") from err
