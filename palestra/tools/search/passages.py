"""JSONL, text files and folders -> passages, one at a time, in a settled order."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from palestra.errors import BadValue

TEXTS = (".txt", ".md", ".rst", ".text")
ROWS = (".jsonl", ".jsonl.gz", ".ndjson")
_IDS = ("id", "_id", "docid", "doc_id")
_BODIES = ("text", "content", "body", "passage", "abstract")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """What one hit is: a piece of text short enough to read."""

    id: str
    title: str
    text: str

    @property
    def contents(self) -> str:
        """Title and text in one string, as Search-R1's corpora hold them."""
        return f'"{self.title}"\n{self.text}'

    @classmethod
    def of_contents(cls, id: str, contents: str) -> Passage:  # noqa: A002  # the field's name
        """The other way: the first line is the title, in quotes or not."""
        title, newline, text = contents.partition("\n")
        if not newline:
            return cls(id=id, title="", text=contents)
        quoted = len(title) > 1 and title[0] == title[-1] == '"'
        return cls(id=id, title=title[1:-1] if quoted else title, text=text)


def read(sources: Iterable[str | Path], *, words: int = 100) -> Iterator[Passage]:
    """The passages of files and folders. Rows of JSONL are passages; other texts are cut into `words` words each."""
    if words < 1:
        raise BadValue(f"a passage has at least one word, got words={words}")
    for source in sources:
        path = Path(source)
        if path.is_dir():
            yield from _folder(path, words)
        elif not path.is_file():
            raise BadValue(f"there is no file or folder {path}")
        elif path.name.endswith(ROWS):
            yield from _rows(path, path.name.partition(".")[0])
        else:
            yield from _text(path, path.name, words)


def of_row(row: Mapping[str, Any], *, number: int, where: str) -> Passage:
    """A row of JSONL: `contents` (title, newline, text), or `text` with or without a `title`."""
    named = str(next((row[name] for name in _IDS if row.get(name) is not None), number))
    if isinstance(row.get("contents"), str):
        return Passage.of_contents(named, row["contents"])
    body = next((row[name] for name in _BODIES if isinstance(row.get(name), str)), None)
    if body is None:
        raise BadValue(
            f"{where}: a row needs `contents` or `text`, this one has {', '.join(map(str, row)) or 'nothing'}"
        )
    title = row.get("title")
    return Passage(id=named, title=title if isinstance(title, str) else "", text=body)


def _folder(folder: Path, words: int) -> Iterator[Passage]:
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.name.endswith((*TEXTS, *ROWS)) and path.is_file() and not _hidden(path.relative_to(folder))
    )
    if not files:
        raise BadValue(f"{folder} holds no {', '.join((*TEXTS, *ROWS))}")
    for path in files:
        name = path.relative_to(folder).as_posix()
        yield from _rows(path, name) if path.name.endswith(ROWS) else _text(path, name, words)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _rows(path: Path, name: str) -> Iterator[Passage]:
    with _opened(path) as file:
        for number, line in enumerate(_lines(file, path), 1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except json.JSONDecodeError as err:
                raise BadValue(f"{where} is no JSON: {err}") from err
            if not isinstance(row, dict):
                raise BadValue(f"{where}: a row is an object, got {type(row).__name__}")
            passage = of_row(row, number=number, where=where)
            # Rows without an id of their own are told apart by file, since a folder may hold several.
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


def _opened(path: Path) -> IO[str]:
    if path.name.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return path.open(encoding="utf-8", errors="replace")


def _text(path: Path, name: str, words: int) -> Iterator[Passage]:
    """Whole paragraphs while they fit, the rest cut at words."""
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
    held: list[str] = []
    for paragraph in paragraphs:
        if held and len(held) + len(paragraph) > words:
            yield " ".join(held)
            held = []
        held += paragraph
        while len(held) > words:
            yield " ".join(held[:words])
            held = held[words:]
    if held:
        yield " ".join(held)
