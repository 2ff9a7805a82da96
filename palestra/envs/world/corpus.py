"""Write a world as JSONL, or yield its pages as passages for the search tool. The text is the same in every process."""

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
from palestra.envs.world.questions import QUESTIONS, Question, draw_question
from palestra.envs.world.world import World
from palestra.seeding import child_seed

_WORDING_MODULES = (
    "shuffle",
    "names",
    "kinds",
    "world",
    "facts",
    "prose",
    "fillers",
    "articles",
)  # the modules that determine the pages' text


def articles(world: World) -> Iterator[Article]:
    """Generate the articles for all pages, ordered by page number."""
    return (article_of(world, page) for page in range(world.pages))


def row(article: Article) -> dict[str, Any]:
    """Return the JSON row for an article."""
    return {
        "id": str(article.page),
        "title": article.title,
        "text": article.text,
        "kind": article.kind,
        "links": list(article.links),
    }


def write_jsonl(world: World, path: str | Path, *, progress: Callable[[int], None] | None = None) -> int:
    """Write all pages to a JSONL file atomically and return its size in bytes.

    After every thousand pages, `progress` is called with the number of pages written so far.
    """
    return _write_rows((row(article) for article in articles(world)), Path(path), progress)


def write_questions(world: World, path: str | Path, *, each: int, seed: int = 0) -> int:
    """Write `each` questions per kind, with answers and proofs, to a JSONL file and return its size in bytes."""
    rows = (
        question_row(draw_question(world, Random(child_seed(seed, "questions", kind, number)), kind))
        for kind in QUESTIONS
        for number in range(each)
    )
    return _write_rows(rows, Path(path), None)


def question_row(question: Question) -> dict[str, Any]:
    """Return the JSON row for a question."""
    return {
        "question": question.text,
        "answer": question.answer,
        "aliases": list(question.aliases),
        "kind": question.kind,
        "answerable": question.answerable,
        "proof": [asdict(fact) for fact in question.proof],
    }


def _write_rows(rows: Iterable[dict[str, Any]], target: Path, progress: Callable[[int], None] | None) -> int:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
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
        Path(temporary).chmod(0o666 & ~mask)  # mkstemp restricts access to the owner
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target.stat().st_size


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldCorpus:
    """The pages of a world as a searchable corpus, for an environment's `corpus` attribute."""

    seed: int
    pages: int

    @property
    def key(self) -> str:
        """Unique name of the corpus, used as the cache key for its search index."""
        return f"world-{self.pages}-{self.seed}-{_wording()}"

    def passages(self) -> Iterator[tuple[str, str, str]]:
        """Yield the id, the title and the text of every page."""
        for article in articles(World(self.seed, self.pages)):
            yield str(article.page), article.title, article.text


@cache
def _wording() -> str:
    """Return a digest of the modules that generate the text, so that a search index for older text is not reused."""
    sources = [get_data(__package__, f"{name}.py") or b"" for name in _WORDING_MODULES]
    return blake2b(b"".join(sources), digest_size=5).hexdigest()
