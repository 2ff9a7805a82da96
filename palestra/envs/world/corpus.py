"""A world -> rows of JSONL and passages for the search tool, one at a time, the same bytes in any process."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path
from pkgutil import get_data
from random import Random
from typing import Any

from palestra.envs.world.articles import Article, article_of
from palestra.envs.world.questions import QUESTIONS, Question, ask
from palestra.envs.world.world import World
from palestra.seeding import child_seed

_WRITERS = (
    "shuffle",
    "names",
    "kinds",
    "world",
    "facts",
    "prose",
    "articles",
)  # the modules that decide what pages say


def articles(world: World) -> Iterator[Article]:
    """Every page, in order."""
    return (article_of(world, page) for page in range(world.pages))


def row(article: Article) -> dict[str, Any]:
    """What stands in a line of the corpus."""
    return {
        "id": str(article.page),
        "title": article.title,
        "text": article.text,
        "kind": article.kind,
        "links": list(article.links),
    }


def write_jsonl(world: World, path: str | Path, *, progress: Callable[[int], None] | None = None) -> int:
    """Write the whole corpus; the file appears when it is complete. How many bytes it has.

    `progress` is told how many pages are written, every thousand.
    """
    return _written((row(article) for article in articles(world)), Path(path), progress)


def write_questions(world: World, path: str | Path, *, each: int, seed: int = 0) -> int:
    """Write `each` questions of every kind with their answers and proofs, as `write_jsonl` does the pages."""
    rows = (
        question_row(ask(world, Random(child_seed(seed, "questions", kind, number)), kind))
        for kind in QUESTIONS
        for number in range(each)
    )
    return _written(rows, Path(path), None)


def question_row(question: Question) -> dict[str, Any]:
    """A question as a line of JSON."""
    return {
        "question": question.text,
        "answer": question.answer,
        "aliases": list(question.aliases),
        "kind": question.kind,
        "answerable": question.answerable,
        "proof": [asdict(fact) for fact in question.proof],
    }


def _written(rows: Iterable[dict[str, Any]], target: Path, progress: Callable[[int], None] | None) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, half = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            for number, line in enumerate(rows, 1):
                file.write(json.dumps(line, ensure_ascii=False))
                file.write("\n")
                if progress is not None and number % 1000 == 0:
                    progress(number)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(half).chmod(0o666 & ~mask)  # mkstemp's is for its owner alone
        Path(half).replace(target)
    except BaseException:
        Path(half).unlink(missing_ok=True)
        raise
    return target.stat().st_size


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldCorpus:
    """The pages of a world as something to search in: an environment's `corpus`."""

    seed: int
    pages: int

    @property
    def key(self) -> str:
        """Names the corpus among all others: what an index of it is kept under."""
        return f"world-{self.pages}-{self.seed}-{_wording()}"

    def passages(self) -> Iterator[tuple[str, str, str]]:
        """Id, title and text of every page."""
        for article in articles(World(self.seed, self.pages)):
            yield str(article.page), article.title, article.text


@cache
def _wording() -> str:
    """Changes with the code that words the pages, so that no index of older ones is taken for theirs."""
    sources = [get_data(__package__, f"{name}.py") or b"" for name in _WRITERS]
    return blake2b(b"".join(sources), digest_size=5).hexdigest()
