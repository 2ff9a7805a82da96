"""Passages and search hits, and a reader that yields passages from JSONL and text files in a fixed order."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from palestra.errors import BadValue

TEXT_SUFFIXES = (".txt", ".md", ".rst", ".text")
JSONL_SUFFIXES = (".jsonl", ".jsonl.gz", ".ndjson")
MAX_CHARS = 4_000  # maximum number of characters per passage in the text that a model receives
_IDS = ("id", "_id", "docid", "doc_id")
_TEXTS = ("text", "content", "body", "passage", "abstract")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """The unit of retrieval: a short text with a title."""

    id: str
    title: str
    text: str

    @property
    def contents(self) -> str:
        """Title and text as one string, in the format that Search-R1's corpora use."""
        return f'"{self.title}"\n{self.text}'

    @classmethod
    def from_contents(cls, id: str, contents: str) -> Passage:  # noqa: A002  # `id` is the name of the field
        """Split `contents` into a title (its first line, with or without quotes) and a text."""
        title, newline, text = contents.partition("\n")
        if not newline:
            return cls(id=id, title="", text=contents)
        quoted = len(title) > 1 and title[0] == title[-1] == '"'
        return cls(id=id, title=title[1:-1] if quoted else title, text=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One search result."""

    passage: Passage
    score: float
    number: int | None = field(default=None, compare=False)  # position of the passage in a local index


def format_hits(hits: Sequence[Hit]) -> str:
    """Format hits as text for a model, as in Search-R1."""
    if not hits:
        return "No passage matches the query. Try other words."
    return "\n".join(
        f"Doc {rank}(Title: {hit.passage.title}) {_clipped(hit.passage.text)}" for rank, hit in enumerate(hits, 1)
    )


def _clipped(text: str) -> str:
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} [...]"


def read(sources: Iterable[str | Path], *, words: int = 100) -> Iterator[Passage]:
    """Read passages from files and folders: one per JSONL row; other files are split into passages of `words` words."""
    if words < 1:
        raise BadValue(f"`words` must be at least 1, got {words}")
    for source in sources:
        path = Path(source)
        if path.is_dir():
            yield from _folder(path, words)
        elif not path.is_file():
            raise BadValue(f"no such file or folder: {path}")
        elif path.name.endswith(JSONL_SUFFIXES):
            yield from _rows(path, path.name.partition(".")[0])
        else:
            yield from _text(path, path.name, words)


def passage_from_row(row: Mapping[str, Any], *, number: int, where: str) -> Passage:
    """Convert a JSONL row with `contents` (title, newline, text), or `text` and optionally `title`, to a Passage."""
    passage_id = str(next((row[name] for name in _IDS if row.get(name) is not None), number))
    if isinstance(row.get("contents"), str):
        return Passage.from_contents(passage_id, row["contents"])
    text = next((row[name] for name in _TEXTS if isinstance(row.get(name), str)), None)
    if text is None:
        raise BadValue(
            f"{where}: a row needs `contents` or `text`, but this one has {', '.join(map(str, row)) or 'no fields'}"
        )
    title = row.get("title")
    return Passage(id=passage_id, title=title if isinstance(title, str) else "", text=text)


def _folder(folder: Path, words: int) -> Iterator[Passage]:
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.name.endswith((*TEXT_SUFFIXES, *JSONL_SUFFIXES))
        and path.is_file()
        and not _hidden(path.relative_to(folder))
    )
    if not files:
        raise BadValue(f"{folder} contains no files of type {', '.join((*TEXT_SUFFIXES, *JSONL_SUFFIXES))}")
    for path in files:
        name = path.relative_to(folder).as_posix()
        yield from _rows(path, name) if path.name.endswith(JSONL_SUFFIXES) else _text(path, name, words)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _rows(path: Path, name: str) -> Iterator[Passage]:
    with _open_text(path) as file:
        for number, line in enumerate(_lines(file, path), 1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except json.JSONDecodeError as err:
                raise BadValue(f"{where} is not valid JSON: {err}") from err
            if not isinstance(row, dict):
                raise BadValue(f"{where}: a row must be a JSON object, got {type(row).__name__}")
            passage = passage_from_row(row, number=number, where=where)
            # The file name makes ids of rows without an `id` field unique within a folder.
            yield (
                passage
                if any(row.get(key) is not None for key in _IDS)
                else Passage(id=f"{name}:{number}", title=passage.title, text=passage.text)
            )


def _lines(file: IO[str], path: Path) -> Iterator[str]:
    try:
        yield from file
    except (gzip.BadGzipFile, EOFError) as err:
        raise BadValue(f"{path} is damaged: {err}") from err


def _open_text(path: Path) -> IO[str]:
    if path.name.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")


def _text(path: Path, name: str, words: int) -> Iterator[Passage]:
    """Split a text file into passages: at paragraph breaks if the paragraphs are short enough, else between words."""
    number = 0
    with path.open(encoding="utf-8", errors="replace") as file:
        for piece in _pieces(_paragraphs(file), words):
            number += 1
            yield Passage(id=f"{name}:{number}", title=name, text=piece)


def _paragraphs(lines: Iterable[str]) -> Iterator[list[str]]:
    paragraph: list[str] = []
    for line in lines:
        if line.strip():
            paragraph += line.split()
        elif paragraph:
            yield paragraph
            paragraph = []
    if paragraph:
        yield paragraph


def _pieces(paragraphs: Iterable[list[str]], words: int) -> Iterator[str]:
    pending: list[str] = []
    for paragraph in paragraphs:
        if pending and len(pending) + len(paragraph) > words:
            yield " ".join(pending)
            pending = []
        pending += paragraph
        while len(pending) > words:
            yield " ".join(pending[:words])
            pending = pending[words:]
    if pending:
        yield " ".join(pending)
