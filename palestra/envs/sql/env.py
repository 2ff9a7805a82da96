"""Environments in which the agent explores a database with queries and submits a query that answers a question."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from random import Random
from typing import Any, Unpack

from palestra.envs.multi_turn import MultiTurnEnv, MultiTurnOptions, Outcome
from palestra.envs.sql.domain import LEVELS, Domain, Question
from palestra.envs.sql.domains import DOMAINS
from palestra.envs.sql.grade import Compare, grade, same
from palestra.envs.sql.guard import Database, Image, Limits, Result, run
from palestra.envs.sql.random_schema.source import RandomSchema, random_schema
from palestra.errors import BadValue, EnvFailed
from palestra.parsing import last_boxed, plain
from palestra.seeding import child_seed

MAX_REPLY_CHARS = 40_000  # number of characters at the end of a reply that are searched for an action
MAX_CELL_CHARS = 400  # maximum length of a displayed cell
MAX_DRAWS = 20_000  # maximum number of questions to generate until one is in the split and passes the checks
MAX_RUNS = 200  # maximum number of questions to check by running them
RANDOM = "random"  # name of the domain in which every seed has its own schema
SCHEMA = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"

_TAGS = ("sql", "answer")
_BLOCK = re.compile(r"```(?:sql|sqlite)[ \t]*\n(.*?)```", re.S | re.I)
_QUERY = re.compile(r"(?:select|with|pragma|explain|values)\b", re.I)
_ANSWER_LABEL = re.compile(r"answer(?: is)?[*_]{0,2}:?[*_]{0,2}\s*\Z", re.I)
_FENCE = re.compile(r"\A```[a-z]*[ \t]*\n(.*?)\n?```\Z", re.S | re.I)


class SqlEnv(MultiTurnEnv):
    """Base class for the SQL environments, in which the agent answers a question about an SQLite database.

    A subclass sets `question`, `databases`, `compare` and `about` in `setup`. Queries are read-only and have resource
    limits (`palestra/envs/sql/guard.py`). Observations contain at most `show_rows` rows of a result. With
    `show_schema`, the prompt contains the table definitions, otherwise only the table names. The answer is a query. It
    is graded by running it and the gold query on the database and on copies with different data, so that a query with a
    hard-coded result fails. The reward is 1 for a correct answer and 0 otherwise. The first answer ends the episode.
    """

    expert_peeks = True  # the expert submits the gold query
    shared = MultiTurnEnv.shared | {"question", "databases", "limits", "_schema"}

    question: Question
    databases: tuple[Database, ...]  # the database that the agent queries, followed by its copies
    compare: Compare
    about: str

    def __init__(
        self,
        *,
        show_schema: bool = False,
        show_rows: int = 10,
        limits: Limits | None = None,
        max_turns: int = 8,
        **options: Unpack[MultiTurnOptions],
    ) -> None:
        super().__init__(max_turns=max_turns, **options)
        if show_rows < 1:
            raise BadValue(f"`show_rows` must be at least 1, got {show_rows!r}")
        self.show_schema = bool(show_schema)
        self.show_rows = show_rows
        self.limits = limits or Limits()
        self._schema: tuple[tuple[str, str], ...] = ()

    def read_schema(self) -> None:
        """Read the database's table definitions. `setup` must call this method last."""
        tables = run(self.databases[0], SCHEMA, Limits(length=1_000_000))
        if tables.error:
            raise EnvFailed(f"cannot read the table definitions: {tables.error}")
        self._schema = tuple((str(name), str(sql)) for name, sql in tables.rows if not str(name).startswith("sqlite_"))
        self._explored = False

    # Episode

    def prompt(self) -> str:
        if self.show_schema:
            tables = "Tables:\n" + "\n".join(f"{sql};" for _, sql in self._schema)
        else:
            tables = f"Tables: {', '.join(name for name, _ in self._schema)}."
        order = "The order of the rows matters." if self.compare == "list" else "The order of the rows does not matter."
        return (
            "Answer a question about an SQLite database by writing a query.\n"
            f"{self.about}\n{tables}\nQuestion: {self.question.text}\n\nActions:\n"
            f"- <sql>...</sql>: run a read-only query and see up to {self.show_rows} of its rows. Use sqlite_master or "
            "PRAGMA table_info(...) to see the table definitions.\n"
            "- <answer>...</answer>: submit the query that answers the question; this ends the episode. The query must "
            "be correct on this database and on copies with different data, so do not hard-code values that you looked "
            f"up. It must return the requested columns in the requested order; their names do not matter. {order}\n"
            f"Write one action per turn, for example: {self.example_action()}\nYou may think first; the last action of "
            f"your reply counts. You have {self.max_turns} turns, including the answer."
        )

    def reset_info(self) -> dict[str, Any]:
        return {"level": self.question.level, "tables": [name for name, _ in self._schema]}

    def can_read(self, action: str) -> bool:
        return read_action(action) is not None

    def act(self, action: str) -> Outcome:
        parsed = read_action(action)
        if parsed is None:
            example = self.example_action()
            text = f"No action found. Write <sql>...</sql> or <answer>...</answer>, for example: {example}"
            return Outcome(text, invalid="format")
        tag, query = parsed
        if tag == "answer":
            return self._grade(query)
        result = run(self.databases[0], query, self.limits, rows=self.show_rows)
        if result.error:
            return Outcome(f"Error: {result.error}.", invalid="rule")
        self._explored = True
        return Outcome(as_table(result))

    def _grade(self, query: str) -> Outcome:
        verdict = grade(query, self.question.gold, self.databases, self.compare, self.limits)
        info = {"why": verdict.why, "answer": query, "gold": self.question.gold}
        if verdict.correct:
            return Outcome(f"Correct: {verdict.why}.", 1.0, "solved", info=info)
        return Outcome(f"Wrong: {verdict.why}.", 0.0, "lost", info=info)

    def render(self, mode: str = "text") -> str | None:
        """Return the question and the first rows of every table."""
        if mode != "text" or self.ending == "reset":
            return None
        parts = [f"Question: {self.question.text}"]
        for name, _ in self._schema:
            quoted = '"' + name.replace('"', '""') + '"'
            rows = run(self.databases[0], f"SELECT * FROM {quoted}", self.limits, rows=3)  # noqa: S608  # name is quoted
            parts.append(f"{name}\n{rows.error or as_table(rows)}")
        return "\n\n".join(parts)

    # Players

    def example_action(self) -> str:
        return f"<sql>{SCHEMA}</sql>"

    def expert_action(self) -> str | None:
        return f"<answer>{self.question.gold}</answer>" if self._explored else self.example_action()

    def sample_random_action(self) -> str:
        table = self.player_rng.choice(self._schema)[0]
        table = '"' + table.replace('"', '""') + '"'
        columns = self.player_rng.choice(("COUNT(*)", "*", "MAX(rowid)"))
        tag = self.player_rng.choice(("sql", "sql", "answer"))
        return f"<{tag}>SELECT {columns} FROM {table} LIMIT 5</{tag}>"  # noqa: S608  # the name is quoted


class GeneratedSql(SqlEnv):
    """Answer questions about generated databases.

    `domain` is "shop", "library", "school", "flights" or "hospital", or None for all of them; "random" generates a
    schema from the seed, and composes questions about it. `level` is "easy" (one table), "medium" (joins and
    aggregates) or "hard" (several joins, dates, subqueries), or None for all levels. The
    answer is also graded on `copies` copies of the database with the same names but different data, including different
    keys; all of them but the first contain edge cases for the gold query. The correct result differs on the first copy.
    The expert reads the schema and submits the gold query.

    Questions with the same template and values are the same task. In addition, some templates are held out as a whole,
    and the tables of random schemas have other names in the test split.
    """

    filters_tasks = False  # `_generate` respects `split`

    def __init__(
        self,
        *,
        domain: str | None = None,
        level: str | None = None,
        copies: int = 4,
        show_schema: bool = False,
        show_rows: int = 10,
        limits: Limits | None = None,
        max_turns: int = 8,
        **options: Unpack[MultiTurnOptions],
    ) -> None:
        super().__init__(show_schema=show_schema, show_rows=show_rows, limits=limits, max_turns=max_turns, **options)
        if domain is not None and domain not in (*DOMAINS, RANDOM):
            choices = ", ".join((*DOMAINS, RANDOM))
            raise BadValue(f"`domain` must be one of {choices}, or None for any except {RANDOM}; got {domain!r}")
        if level is not None and level not in LEVELS:
            raise BadValue(f"`level` must be one of {', '.join(LEVELS)}, or None for any; got {level!r}")
        if isinstance(copies, bool) or not isinstance(copies, int) or not 1 <= copies <= 20:
            raise BadValue(f"`copies` must be an integer from 1 to 20, got {copies!r}")
        self.domain, self.level, self.copies = domain, level, copies

    def setup(self, options: dict[str, Any]) -> None:  # noqa: ARG002  # this environment has no reset options
        domain = self.domain or self.rng.choice(sorted(DOMAINS))
        self.about = source_of(domain, self.task_seed, self.split).about
        self.databases, self.question = _generate(domain, self.level, self.copies, self.split, self.task_seed)
        self.compare = "list" if self.question.ordered else "bag"
        self.read_schema()

    def task_key(self) -> object:
        """Return the question's template and values; the data does not matter."""
        return self.question.key


@dataclass(frozen=True, slots=True)
class EdgeCopy:
    """A copy with edge cases for the gold query; it is built when an answer is graded."""

    domain: str
    seed: int
    split: str | None
    number: int
    gold: str

    def connect(self) -> sqlite3.Connection:
        return _edge_image(self).connect()


@lru_cache(maxsize=256)  # the episodes in a group are graded on the same copies
def _edge_image(copy: EdgeCopy) -> Image:
    return source_of(copy.domain, copy.seed, copy.split).build(copy.seed, copy.number, copy.gold)


def source_of(domain: str, seed: int, split: str | None) -> Domain | RandomSchema:
    """Return the domain with this name, or the random schema for a seed and a split."""
    return random_schema(seed, split) if domain == RANDOM else DOMAINS[domain]


@lru_cache(maxsize=128)  # the episodes in a group have the same seed
def _generate(
    domain: str, level: str | None, copies: int, split: str | None, seed: int
) -> tuple[tuple[Database, ...], Question]:
    """Build a database and its copies, and choose a question whose answer is not empty and differs on the first copy.

    Questions from another split are skipped before they are run, because most belong to the training split.
    """
    source = source_of(domain, seed, split)
    rng = Random(child_seed(seed, domain, "question"))
    limits = Limits()
    original, copy = source.build(seed), source.build(seed, 1)
    runs = 0
    for question in islice(source.questions(rng, level, seed), MAX_DRAWS):
        if split not in (None, question.split):
            continue
        first = run(original, question.gold, limits)
        if first.error:
            raise EnvFailed(f"the gold query fails: {first.error}; query: {question.gold}")
        if any(cell not in (None, 0) for row in first.rows for cell in row) and not same(
            run(copy, question.gold, limits), first, "bag"
        ):
            edges = (EdgeCopy(domain, seed, split, number, question.gold) for number in range(2, copies + 1))
            return (original, copy, *edges), question
        runs += 1
        if runs == MAX_RUNS:
            break
    raise EnvFailed(f"none of {runs} questions in split {split!r} has an answer that differs between the copies")


def read_action(reply: str) -> tuple[str, str] | None:
    r"""Return the tag and the query in the last `<sql>` or `<answer>` in a reply; the closing tag may be missing.

    If there are no tags, a query in `\boxed{}` is the answer, and so is the last ```sql block if "Final answer:"
    directly precedes it; otherwise, this block is a query to run.
    """
    text = reply[-MAX_REPLY_CHARS:]
    lower = text.lower()
    if len(lower) != len(text):  # a few characters have a longer lowercase form, which would shift positions
        lower = text
    ends = [(end, tag) for tag in _TAGS if (end := lower.rfind(f"</{tag}>")) >= 0]
    for end, tag in sorted(ends, reverse=True):
        start = lower.rfind(f"<{tag}>", 0, end)
        if start >= 0:
            return tag, _bare(text[start + len(tag) + 2 : end])
    start, tag = max((lower.rfind(f"<{tag}>"), tag) for tag in _TAGS)
    if start >= 0:
        return tag, _bare(text[start + len(tag) + 2 :])
    box = last_boxed(text) if "\\boxed{" in text else None
    if box is not None and _QUERY.match(query := _bare(box)):
        return "answer", query
    blocks = list(_BLOCK.finditer(text))
    if not blocks:
        return None
    last = blocks[-1]
    return "answer" if _ANSWER_LABEL.search(text[: last.start()][-60:]) else "sql", last[1].strip()


def _bare(query: str) -> str:
    """Remove the code fence or other markup that models often put around a query."""
    query = query.strip()
    fenced = _FENCE.match(query)
    if fenced:
        return fenced[1].strip()
    if not _QUERY.match(query) and _QUERY.match(stripped := plain(query)):
        return stripped
    return query


def as_table(result: Result) -> str:
    """Format a result as text, one row per line, with cells separated by vertical bars."""
    lines = [" | ".join(_cell(name) for name in result.columns)]
    lines += [" | ".join(_cell(cell) for cell in row) for row in result.rows]
    count = len(result.rows)
    if result.more:
        lines.append(f"(the first {count} rows; there are more)")
    else:
        lines.append(f"({count} row{'' if count == 1 else 's'})")
    return "\n".join(line[:2_000] for line in lines)


def _cell(value: Any) -> str:
    text = "NULL" if value is None else f"x'{value.hex()}'" if isinstance(value, bytes) else str(value)
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= MAX_CELL_CHARS else f"{text[:MAX_CELL_CHARS]}..."
