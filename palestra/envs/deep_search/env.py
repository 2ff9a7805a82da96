"""DeepSearch: a question is answered by searching and reading, turn by turn, within a budget of searches.

Where questions come from is a task of its own (`palestra.envs.tasks`): it draws them, knows the answers and grades.
What is searched is a search tool's affair (`palestra.tools.search`): a local index, or a server. This joins the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

from palestra.core import Reset
from palestra.envs.deep_search.actions import ANSWER, OPEN, SEARCH, Move, read_action, written
from palestra.envs.tasks.base import TaskEnv
from palestra.envs.worlds_base import Outcome, WorldEnv, WorldOptions
from palestra.errors import BadValue, InfrastructureError, ToolFailed
from palestra.grading.qa import grade_qa
from palestra.parsing import clip
from palestra.tools.search import Hit, Index, Passage, SearchTool
from palestra.tools.search.passages import format_hits
from palestra.types import Step, text_of

if TYPE_CHECKING:
    from palestra.tools.search.corpus import Corpus

Pays = Literal["exact", "f1"]
QUERY = 1_000  # characters of a query that count
PART = 6_000  # characters of a page that are shown at once
LISTED = 12  # titles named where another one was asked for
_PART_OF = re.compile(r"(.*?)\s*#\s*([0-9]{1,4})", re.S)
_EXAMPLE = written(SEARCH, "lighthouse on the northern coast", "First I need the page about it.")


class SearchOptions(WorldOptions, total=False):
    """Keywords every deep search takes besides its own."""

    index: str | Path | Index | SearchTool | None  # a folder, or the address of a server
    max_searches: int
    max_turns: int
    topk: int
    mode: str
    snippet_words: int | None
    pays: Pays
    timeout: float


class DeepSearch(WorldEnv):
    """Base of the deep searches.

    A turn is a `<search>`, an `<open>` or the one `<answer>`, which ends the episode. A search shows the `topk` best
    passages, each cut to `snippet_words` (None: whole); `<open>` shows the whole page of a title that a search has
    found, a long one in parts. There are at most `max_searches`; a further one is refused and costs its turn, as does
    whatever cannot be read. An exact match earns 1; `pays="f1"` pays the F1 of any other answer. A search that fails
    on our side is an InfrastructureError and costs the agent nothing.

    `index` is an index's folder, an opened Index, a server's address or a SearchTool; `mode` and `timeout` are the
    search tool's.
    """

    inline = False  # a search may wait for a server, and the first one may build an index
    shared = WorldEnv.shared | {"tool", "_about", "_found", "_read"}  # the last two are replaced, never changed

    questions: TaskEnv
    searches: int  # done
    opens: int
    _about: Mapping[str, Any]  # what the task says of its item
    _found: Mapping[str, Hit]  # by title, what searches have shown so far
    _read: Mapping[str, str]  # by title, what `open` has shown
    _asked: list[str]  # queries

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
        pays: Pays = "exact",
        timeout: float = 30.0,
        **options: Unpack[WorldOptions],
    ) -> None:
        super().__init__(max_turns=max_turns, **options)
        if isinstance(max_searches, bool) or not isinstance(max_searches, int) or max_searches < 0:
            raise BadValue(f"max_searches is a whole number from 0 up, got {max_searches!r}")
        if snippet_words is not None and (not isinstance(snippet_words, int) or snippet_words < 1):
            raise BadValue(f"snippet_words is a whole number from 1 up, or None, got {snippet_words!r}")
        if pays not in get_args(Pays):
            raise BadValue(f"pays is one of {', '.join(get_args(Pays))}, got {pays!r}")
        self.questions = questions
        self.max_searches = max_searches
        self.snippet_words = snippet_words
        self.pays = pays
        if isinstance(index, SearchTool):
            self.tool = index
        else:
            source = index if index is not None else corpus if corpus is not None else ""
            self.tool = SearchTool(source, topk=topk, mode=mode, timeout=timeout)

    # The episode

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Reset:
        self.questions._first_seed = self._first_seed  # as `make` set it
        _, info = self.questions.reset(seed, options)
        self._about = {name: info[name] for name in ("item", "index", "epoch") if name in info}
        return super().reset(info["seed"])

    def begin(self, options: dict[str, Any]) -> None:  # noqa: ARG002  # the task has taken them
        self.searches = self.opens = 0
        self._found = {}
        self._read = {}
        self._asked = []

    def told(self) -> dict[str, Any]:
        return {"max_searches": self.max_searches, **self._about}

    def prompt(self) -> str:
        shown = "the beginnings of the pages" if self.snippet_words else "the passages"
        error = "ends the episode" if self.stop_when_error else "costs its turn"
        partly = " One that is partly right earns its F1." if self.pays == "f1" else ""
        return (
            f"{self.asked()}\n\n"
            "Find the answer by searching. In every turn do one of these:\n"
            f"- {written(SEARCH, 'words')}: shows {shown} that fit these words best, with their titles, at most "
            f"{self.tool.topk};\n"
            f"- {written(OPEN, 'title')}: shows the whole page of a title that a search has found;\n"
            f"- {written(ANSWER, 'the answer')}: ends the episode. Give the bare answer, without a sentence around it; "
            f"case, articles and punctuation do not matter.{partly} There is one attempt.\n"
            "What is found stands between <information> and </information>. You may think first, inside "
            f"<think></think>; the first action behind it counts. For example: {_EXAMPLE}\n"
            f"You have {_count(self.max_turns, 'turn', 'turns')} in all, the answer included, and at most "
            f"{_count(self.max_searches, 'search', 'searches')} among them: a further search is refused and {error}, "
            "as does what cannot be read. Without an answer in time you earn nothing."
        )

    def asked(self) -> str:
        """The question, for the prompt."""
        return text_of(self.questions.item.question)

    # Actions

    def act(self, action: str) -> Outcome:
        move, ready = self._weighed(action)
        if ready is not None:
            return ready
        with _boundary():
            found = self._look(move)
        return self._shown(move, found)

    async def astep(self, action: str) -> Step:
        self._admit(action)
        move, ready = self._weighed(action)
        if ready is None:
            with _boundary():
                found = await self._alook(move)
            ready = self._shown(move, found)
        return self._taken(ready)

    def _weighed(self, action: str) -> tuple[Move, Outcome | None]:
        """The action with its text cleaned; an outcome, unless something has to be looked up."""
        read = read_action(action)
        if read is None:
            text = (
                f"No action could be read. Write {written(SEARCH, 'words')}, {written(OPEN, 'title')} or "
                f"{written(ANSWER, 'the answer')}, for example {_EXAMPLE}"
            )
            return Move("", ""), self._outcome("", text, invalid="format")
        kind, text, _ = read
        if not text:
            return read, self._outcome(kind, f"There is nothing between <{kind}> and </{kind}>.", invalid="rule")
        if kind == ANSWER:
            return read, self._answered(text)
        # What cannot be written as UTF-8 no passage holds, and no server could be asked for.
        text = text[:QUERY].encode("utf-8", "replace").decode()
        if kind == SEARCH and self.searches >= self.max_searches:
            said = f"No search is left of {self.max_searches}. Open what was found, or answer."
            return read, self._outcome(kind, said, invalid="rule")
        if kind == OPEN:
            title, part = self._named(text)
            if title is None:
                said = f"No search has found a page {clip(text, 80)!r}. {self._titles()}"
                return read, self._outcome(kind, said, invalid="rule")
            return Move(kind, title, part), None
        return Move(kind, text), None

    def _named(self, text: str) -> tuple[str | None, int]:
        """The title found so far that is meant, and which part of its page."""
        by_key = {_key(title): title for title in reversed(list(self._found))}
        whole = by_key.get(_key(text))
        if whole is not None:
            return whole, 1
        match = _PART_OF.fullmatch(text)
        return (by_key.get(_key(match[1])), max(1, int(match[2]))) if match else (None, 1)

    def _titles(self) -> str:
        if not self._found:
            return "Search first: its title is shown then."
        names = list(self._found)
        return f"Found so far: {'; '.join(names[-LISTED:])}{' and others' if len(names) > LISTED else ''}."

    def _look(self, move: Move) -> list[Hit] | list[Passage]:
        if move.kind == SEARCH:
            return self.tool.hits(move.text)
        return self.tool.page(self._found[move.text])

    async def _alook(self, move: Move) -> list[Hit] | list[Passage]:
        if move.kind == SEARCH:
            return await self.tool.ahits(move.text)
        return await self.tool.apage(self._found[move.text])

    def _shown(self, move: Move, looked_up: list[Any]) -> Outcome:
        return self._listed(move.text, looked_up) if move.kind == SEARCH else self._opened(move, looked_up)

    def _listed(self, query: str, hits: list[Hit]) -> Outcome:
        self.searches += 1
        self._asked.append(query)
        found = dict(self._found)
        for hit in hits:
            found.setdefault(_title(hit.passage), hit)
        self._found = found
        return self._outcome(SEARCH, format_hits([self._cut(hit) for hit in hits]))

    def _opened(self, move: Move, passages: list[Passage]) -> Outcome:
        self.opens += 1
        text = "\n".join(passage.text for passage in passages)
        parts = max(1, -(-len(text) // PART))
        part = min(move.part, parts)
        text = text[(part - 1) * PART : part * PART]
        self._read = {**self._read, move.text: text}
        if parts > 1:
            more = f"; {written(OPEN, f'{move.text}#{part + 1}')} shows the next" if part < parts else ""
            text += f"\n[part {part} of {parts}{more}]"
        return self._outcome(OPEN, f"{move.text}\n{text}")

    def _cut(self, hit: Hit) -> Hit:
        passage = hit.passage
        words = passage.text.split() if self.snippet_words else []
        if self.snippet_words and len(words) > self.snippet_words:
            passage = replace(passage, text=f"{' '.join(words[: self.snippet_words])} ...")
        return replace(hit, passage=replace(passage, title=_title(passage)))

    def _answered(self, answer: str) -> Outcome:
        item = self.questions.item
        graded = self.questions.grade(answer)
        exact = grade_qa(answer, item.gold or item.answer)
        reward = 1.0 if graded.correct else exact.score if self.pays == "f1" else 0.0
        info = {
            **self._used(ANSWER),
            "exact_match": exact.correct,
            "f1": exact.score,
            "score": exact.score,
            "why": graded.why,
            "answer": item.answer,
        }
        said = "That answer is correct." if graded.correct else "That answer is not correct."
        return Outcome(said, reward, "solved" if graded.correct else "wrong", info=info)

    def _outcome(self, kind: str, text: str, *, invalid: str | None = None) -> Outcome:
        left = self.max_turns - self.turn - 1
        searches = _count(self.max_searches - self.searches, "search", "searches")
        goes_on = left and not (invalid and self.stop_when_error)
        note = f"\nYou have {_count(left, 'turn', 'turns')} and {searches} left." if goes_on else ""
        return Outcome(f"<information>\n{text}\n</information>{note}", invalid=invalid, info=self._used(kind))

    def _used(self, kind: str) -> dict[str, Any]:
        return {"action": kind, "searches": self.searches, "opens": self.opens}

    def render(self, mode: str = "text") -> str | None:
        """The question, and what has been asked, found and read."""
        if mode != "text" or self.ending == "reset":
            return None
        lines = [
            self.asked(),
            f"Searches ({self.searches} of {self.max_searches}): {'; '.join(self._asked) or 'none'}",
            f"Pages found: {'; '.join(self._found) or 'none'}",
            f"Pages read: {'; '.join(self._read) or 'none'}",
            f"Turns: {self.turn} of {self.max_turns}{f' ({self.ending})' if self.ending else ''}",
        ]
        return "\n".join(lines)

    # The players

    def example_action(self) -> str:
        return _EXAMPLE

    def sample_random_action(self) -> str:
        """Some words of the question, a page that was found, or a guess."""
        rng = self.player_rng
        drawn = rng.random()
        if drawn < 0.4 and self.turn + 1 < self.max_turns and self.searches < self.max_searches:
            words = re.findall(r"\w+", self.asked())
            first = rng.randrange(max(1, len(words) - 2))
            return written(SEARCH, " ".join(words[first : first + 3]))
        if drawn < 0.7 and self.turn + 1 < self.max_turns and self._found:
            return written(OPEN, rng.choice(list(self._found)))
        self.questions._player_rng = rng  # one player, one line of chance
        return written(ANSWER, self.questions.random_answer())

    def expert_action(self) -> str | None:
        """The answer of the data: what the pages hold of it, nobody here knows."""
        return written(ANSWER, self.questions.item.answer)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _key(title: str) -> str:
    return " ".join(title.casefold().split()).strip("\"'")


def _title(passage: Passage) -> str:
    """What a page is opened by."""
    return passage.title.strip() or passage.id


@contextmanager
def _boundary() -> Iterator[None]:
    """What goes wrong in searching is not the agent's doing: an index was fine when the environment was made."""
    try:
        yield
    except InfrastructureError:
        raise
    except (OSError, ValueError, MemoryError) as err:
        raise ToolFailed(f"the search failed: {type(err).__name__}: {err}") from err
