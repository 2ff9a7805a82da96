"""Test the `palestra world` command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palestra.cli import EXIT_INFRASTRUCTURE, EXIT_OK, EXIT_USAGE, main
from palestra.tools.search import Index, read


def test_pages_and_questions_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages, questions = tmp_path / "new" / "world.jsonl", tmp_path / "questions.jsonl"
    options = ["--pages", "300", "--seed", "4", "--out", str(pages), "--questions", str(questions), "--each", "2"]
    assert main(["world", *options]) == EXIT_OK
    assert "300 pages" in capsys.readouterr().out
    rows = [json.loads(line) for line in pages.read_text().splitlines()]
    assert [row["id"] for row in rows] == [str(number) for number in range(300)]
    titles = {row["title"] for row in rows}
    assert len(titles) == 300
    assert all(set(row["links"]) <= titles and row["links"] for row in rows)
    assert len(questions.read_text().splitlines()) == 14
    index = Index.build(read([pages]))  # the search tool can read the file
    assert len(index) == 300
    assert index.search(rows[7]["title"], 1)[0].passage.text


def test_invalid_arguments_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["world"]) == EXIT_USAGE
    assert "--out" in capsys.readouterr().err
    assert main(["world", "--pages", "50", "--out", str(tmp_path / "w")]) == EXIT_USAGE
    assert main(["world", "--seed", "-1", "--out", str(tmp_path / "w")]) == EXIT_USAGE
    assert main(["world", "--each", "0", "--questions", str(tmp_path / "q")]) == EXIT_USAGE
    (tmp_path / "file").touch()
    assert main(["world", "--pages", "100", "--out", str(tmp_path / "file" / "w")]) == EXIT_INFRASTRUCTURE
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
