"""SqlWorld: look around in a database, then hand in one query that answers the question."""

from __future__ import annotations

import re
from functools import lru_cache
from random import Random
from typing import Any, Unpack

from palestra.envs.sql.domain import LEVELS, Question
from palestra.envs.sql.domains import DOMAINS
from palestra.envs.sql.grade import Compare, grade, same
from palestra.envs.sql.guard import Database, Limits, Result, run
from palestra.envs.worlds_base import Outcome, WorldEnv, WorldOptions
from palestra.errors import BadValue, EnvFailed
from palestra.seeding import child_seed

TAIL = 40_000  # characters at the end of a reply in which an action is looked for
CELL = 400  # characters of a cell that are shown
DRAWS = 200  # questions that are tried for one whose answer differs between the copies
SCHEMA = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"

_TAGS = ("sql", "answer")
_BLOCK = re.compile(r"```(?:sql|sqlite)[ \t]*\n(.*?)```", re.S | re.I)
_FENCE = re.compile(r"\A```[a-z]*[ \t]*\n(.*?)\n?```\Z", re.S | re.I)


class SqlWorld(WorldEnv):
    """A question over an SQLite database. A subclass draws it in `begin`: `question`, `databases`, `compare`, `about`.

    Queries read only and are bounded (`palestra/envs/sql/guard.py`); results show `show_rows` rows. With `show_schema`
    the prompt has the tables' definitions, otherwise their names alone. The answer is a query, graded by running it and
    the gold one on the database and on copies with other data, so that an answer that was looked up and written down
    fails. One answer an episode: right 1, wrong 0.
    """

    shared = WorldEnv.shared | {"question", "databases", "limits", "_schema"}

    question: Question
    databases: tuple[Database, ...]  # the one that is seen, then the copies
    compare: Compare
    about: str

    def __init__(
        self,
        *,
        show_schema: bool = False,
        show_rows: int = 10,
        limits: Limits | None = None,
        max_turns: int = 8,
        **options: Unpack[WorldOptions],
    ) -> None:
        super().__init__(max_turns=max_turns, **options)
        if show_rows < 1:
            raise BadValue(f"show_rows is at least 1, got {show_rows!r}")
        self.show_schema = bool(show_schema)
        self.show_rows = show_rows
        self.limits = limits or Limits()
        self._schema: tuple[tuple[str, str], ...] = ()

    def look(self) -> None:
        """Read the tables of the database at hand; `begin` ends with it."""
        found = run(self.databases[0], SCHEMA, Limits(length=1_000_000))
        if found.error:
            raise EnvFailed(f"the tables cannot be read: {found.error}")
        self._schema = tuple((str(name), str(sql)) for name, sql in found.rows if not str(name).startswith("sqlite_"))
        self._explored = False

    # The episode

    def prompt(self) -> str:
        if self.show_schema:
            tables = "The tables:\n" + "\n".join(f"{sql};" for _, sql in self._schema)
        else:
            tables = f"The tables: {', '.join(name for name, _ in self._schema)}."
        order = " The order of the rows counts." if self.compare == "list" else " The order of the rows does not count."
        return (
            "You answer a question about an SQLite database by writing a query.\n"
            f"{self.about}\n{tables}\nQuestion: {self.question.text}\n\nAn action is one of\n"
            f"- <sql>...</sql>: run a query and see up to {self.show_rows} of its rows. Queries read only. "
            "sqlite_master and PRAGMA table_info(...) tell how the tables are made;\n"
            "- <answer>...</answer>: hand in the query that answers the question, which ends the episode. It is run on "
            "this database and on copies with other data, and must be right on all of them, so values that you looked "
            f"up do not help. It returns the columns that are asked for, in that order, whatever their names.{order}\n"
            f"Write one action a turn, for example {self.example_action()}. You may think first; the last action of "
            f"your reply counts. You have {self.max_turns} turns, the answer included."
        )

    def told(self) -> dict[str, Any]:
        return {"level": self.question.level, "tables": [name for name, _ in self._schema]}

    def act(self, action: str) -> Outcome:
        read = read_action(action)
        if read is None:
            text = (
                f"No action could be read. Write <sql>...</sql> or <answer>...</answer>, as in {self.example_action()}."
            )
            return Outcome(text, invalid="format")
        verb, query = read
        if verb == "answer":
            return self._judge(query)
        result = run(self.databases[0], query, self.limits, rows=self.show_rows)
        if result.error:
            return Outcome(f"Error: {result.error}.", invalid="rule")
        self._explored = True
        return Outcome(as_table(result))

    def _judge(self, query: str) -> Outcome:
        verdict = grade(query, self.question.gold, self.databases, self.compare, self.limits)
        info = {"why": verdict.why, "answer": query, "gold": self.question.gold}
        if verdict.correct:
            return Outcome(f"Right: {verdict.why}.", 1.0, "solved", info=info)
        return Outcome(f"Wrong: {verdict.why}.", 0.0, "lost", info=info)

    def render(self, mode: str = "text") -> str | None:
        """The question and the tables, with the first rows of each."""
        if mode != "text" or self.ending == "reset":
            return None
        shown = [f"Question: {self.question.text}"]
        for name, _ in self._schema:
            quoted = '"' + name.replace('"', '""') + '"'
            rows = run(self.databases[0], f"SELECT * FROM {quoted}", self.limits, rows=3)  # noqa: S608  # quoted
            shown.append(f"{name}\n{rows.error or as_table(rows)}")
        return "\n\n".join(shown)

    # The players

    def example_action(self) -> str:
        return f"<sql>{SCHEMA}</sql>"

    def expert_action(self) -> str | None:
        return f"<answer>{self.question.gold}</answer>" if self._explored else self.example_action()

    def sample_random_action(self) -> str:
        table = self.player_rng.choice(self._schema)[0]
        table = '"' + table.replace('"', '""') + '"'
        what = self.player_rng.choice(("COUNT(*)", "*", "MAX(rowid)"))
        tag = self.player_rng.choice(("sql", "sql", "answer"))
        return f"<{tag}>SELECT {what} FROM {table} LIMIT 5</{tag}>"  # noqa: S608  # quoted


class GeneratedSql(SqlWorld):
    """Questions over generated databases.

    `domain`: "shop", "library", "school", "flights" or "hospital"; None: any. `level`: "easy" (one table), "medium"
    (joins and aggregates), "hard" (several joins, dates, sub-queries); None: any. `copies` with other data are graded
    on, too: same names, everything else drawn anew, keys included; the right result differs from the database's on at
    least one. The expert looks at the tables and hands in the gold query.
    """

    def __init__(
        self,
        *,
        domain: str | None = None,
        level: str | None = None,
        copies: int = 2,
        show_schema: bool = False,
        show_rows: int = 10,
        limits: Limits | None = None,
        max_turns: int = 8,
        **options: Unpack[WorldOptions],
    ) -> None:
        super().__init__(show_schema=show_schema, show_rows=show_rows, limits=limits, max_turns=max_turns, **options)
        if domain is not None and domain not in DOMAINS:
            raise BadValue(f"domain is one of {', '.join(DOMAINS)}, or None for any, got {domain!r}")
        if level is not None and level not in LEVELS:
            raise BadValue(f"level is one of {', '.join(LEVELS)}, or None for any, got {level!r}")
        if isinstance(copies, bool) or not isinstance(copies, int) or not 1 <= copies <= 20:
            raise BadValue(f"copies is a number from 1 to 20, got {copies!r}")
        self.domain, self.level, self.copies = domain, level, copies

    def begin(self, options: dict[str, Any]) -> None:  # noqa: ARG002  # it knows none
        domain = self.domain or self.rng.choice(sorted(DOMAINS))
        self.about = DOMAINS[domain].about
        self.databases, self.question = _made(domain, self.level, self.copies, self.seed)
        self.compare = "list" if self.question.ordered else "bag"
        self.look()


@lru_cache(maxsize=128)  # groups of rollouts share a seed
def _made(domain: str, level: str | None, copies: int, seed: int) -> tuple[tuple[Database, ...], Question]:
    """A database, its copies, and a question whose answer is not empty and differs between them."""
    world = DOMAINS[domain]
    rng = Random(child_seed(seed, domain, "question"))
    limits = Limits()
    images = tuple(world.build(seed, copy) for copy in range(copies + 1))
    slots = {**world.slots, **world.named(seed)}
    templates = world.of_level(level)
    for _ in range(DRAWS):
        question = rng.choice(templates).fill(rng, slots)
        first = run(images[0], question.gold, limits)
        if first.error:
            raise EnvFailed(f"the gold query fails: {first.error}; it was {question.gold}")
        if any(cell not in (None, 0) for row in first.rows for cell in row) and any(
            not same(run(copy, question.gold, limits), first, "bag") for copy in images[1:]
        ):
            return images, question
    raise EnvFailed(f"no question of {DRAWS} has an answer that differs between the copies")


def read_action(reply: str) -> tuple[str, str] | None:
    """The last `<sql>` or `<answer>` of a reply and its query; a lone ```sql block is run. A last tag need not be
    closed.
    """
    text = reply[-TAIL:]
    lower = text.lower()
    if len(lower) != len(text):  # a few letters grow when they get small
        lower = text
    ends = [(end, tag) for tag in _TAGS if (end := lower.rfind(f"</{tag}>")) >= 0]
    for end, tag in sorted(ends, reverse=True):
        start = lower.rfind(f"<{tag}>", 0, end)
        if start >= 0:
            return tag, _bare(text[start + len(tag) + 2 : end])
    start, tag = max((lower.rfind(f"<{tag}>"), tag) for tag in _TAGS)
    if start >= 0:
        return tag, _bare(text[start + len(tag) + 2 :])
    blocks = _BLOCK.findall(text)
    return ("sql", blocks[-1].strip()) if blocks else None


def _bare(query: str) -> str:
    """Without the fence that models like to put around code."""
    query = query.strip()
    fenced = _FENCE.match(query)
    return fenced[1].strip() if fenced else query


def as_table(result: Result) -> str:
    """Rows as text: a line each, cells parted by bars."""
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
    return text if len(text) <= CELL else f"{text[:CELL]}..."
