"""Test that published results are shown next to evaluation results."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from palestra.errors import BadValue
from palestra.evals import EvaluatedAgent, run_evaluation, write_report
from palestra.evals.folder import read_evaluation
from palestra.evals.suite import load_suite

GAME = "game:GuessTheNumber-v0-easy"
PUBLISHED = f"""
n = 2
differences = ["The paper allows ten turns."]
[[env]]
id = "{GAME}"
category = "guessing"
[[published]]
model = "Some-7B"
source = "Example 2025, table 2"
values = {{ "{GAME}" = 0.625, "guessing" = 0.5 }}
[[published]]
model = "Other-3B"
source = "Example 2025, table 3"
values = {{ "all" = 0.25 }}
"""


def suite_file(folder: Path, text: str) -> str:
    path = folder / "paper.toml"
    path.write_text(text)
    return str(path)


def test_published_results_are_printed_beside_ours(tmp_path: Path) -> None:
    suite = load_suite(suite_file(tmp_path, PUBLISHED))
    folder = tmp_path / "run"
    done = asyncio.run(run_evaluation(suite, EvaluatedAgent("expert"), folder, command=[]))
    published = done.summary["table"]["published"]
    assert published["ours"] == {GAME: 1.0, "guessing": 1.0, "all": 1.0}
    lines = [line.split() for line in str(done).splitlines()]
    assert [GAME, "100.0%", "62.5%", "-"] in lines
    assert ["guessing", "100.0%", "50.0%", "-"] in lines
    assert ["all", "100.0%", "-", "25.0%"] in lines
    assert "Some-7B: Example 2025, table 2 (success)" in str(done)
    assert "Difference: The paper allows ten turns." in str(done)
    page = write_report(folder).read_text()
    assert "Some-7B: Example 2025, table 2" in page
    assert read_evaluation(folder).suite.published == suite.published


def test_evaluations_without_published_results(tmp_path: Path) -> None:
    text = PUBLISHED.partition("[[published]]")[0]
    suite = load_suite(suite_file(tmp_path, text))
    done = asyncio.run(run_evaluation(suite, EvaluatedAgent("expert"), tmp_path / "run", command=[]))
    assert done.summary["table"]["published"] is None
    assert "published" not in str(done)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('source = "Example 2025, table 2"', "", "source must be text"),
        ("0.625", "62.5", "must be from 0 to 1"),
        ('"guessing" = 0.5', '"guesing" = 0.5', "neither an environment nor a category"),
        ('model = "Some-7B"', 'model = "Some-7B"\nyear = 2025', "unknown setting 'year'"),
        ('model = "Some-7B"', 'model = "Some-7B"\nmetric = "f1"', "metric must be one of success"),
        ('["The paper allows ten turns."]', '"ten turns"', "differences must be a list"),
    ],
)
def test_invalid_published_results(before: str, after: str, words: str, tmp_path: Path) -> None:
    assert before in PUBLISHED
    with pytest.raises(BadValue, match=words):
        load_suite(suite_file(tmp_path, PUBLISHED.replace(before, after)))


def test_suite_of_gem() -> None:
    suite = load_suite("suite:gem")
    assert all(entry.every_task for entry in suite.entries)
    assert len(suite.entries) == 14
    rows = {row.model: row.values for row in suite.published.rows}
    assert (rows["Base"]["eval:AIME24"], rows["RL + tool"]["mathematics"]) == (0.1, 0.498)
    assert rows["RL, two sets + tool"]["questions"] == 0.455
    for values in rows.values():  # the printed means agree with the printed values
        for category, mean in values.items():
            if ":" not in category:
                ids = [entry.id for entry in suite.entries if entry.category == category]
                assert abs(sum(values[env] for env in ids) / len(ids) - mean) < 0.001
