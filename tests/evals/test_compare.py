"""Test the comparison of two evaluations, paired by seed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra.errors import BadValue
from palestra.evals import EvalSettings, EvaluatedAgent, Suite, compare, run_evaluation, suite_entry
from palestra.evals.comparison import as_text
from palestra.evals.paired import mcnemar, sign_flips
from palestra.rollout import read
from tests.evals.players import GAME, Flaky

HERE = "tests.evals.players"
FLAKY = "flaky:Numbers-v0"


@pytest.fixture
def flaky() -> Iterator[str]:
    Flaky.forget()
    Flaky.turns = 1
    palestra.register(FLAKY, Flaky)
    yield FLAKY
    palestra.unregister(FLAKY)


def run(folder: Path, agent: str, *ids: str, **more: Any) -> Path:
    suite = Suite(name="test", entries=tuple(suite_entry(one, **more) for one in ids))
    asyncio.run(run_evaluation(suite, EvaluatedAgent(agent), folder, settings=EvalSettings(retries=0), command=[]))
    return folder


def test_single_attempts_are_tested_by_mcnemar(flaky: str, tmp_path: Path) -> None:
    before = run(tmp_path / "a", f"{HERE}:by_seed", flaky, n=40)  # by_seed is correct if the seed ends in 0
    after = run(tmp_path / "b", f"{HERE}:three", flaky, n=40)
    comparison = compare(before, after)
    (row,) = comparison["envs"]
    assert (row["tasks"], row["before"], row["after"]) == (40, 0.1, 1.0)
    assert row["difference"] == pytest.approx(0.9)
    assert row["difference_low"] < 0.9 < row["difference_high"]
    assert (row["test"], row["p"]) == ("exact McNemar", mcnemar(36, 0))
    assert [seed for seed, *_ in row["wins"]] == [seed for seed in range(40) if seed % 10]
    assert row["losses"] == []
    back = compare(after, before)
    assert back["total"]["difference"] == pytest.approx(-0.9)
    assert back["total"]["p"] == row["p"]
    assert len(back["envs"][0]["losses"]) == 36


def test_several_attempts_and_returns_are_tested_by_flipping_signs(tmp_path: Path) -> None:
    before = run(tmp_path / "a", "random", GAME, n=12, k=4)
    after = run(tmp_path / "b", f"{HERE}:guess", GAME, n=12, k=4)
    comparison = compare(before, after)
    means: dict[int, list[float]] = {}
    for folder, sign in ((before, -1), (after, 1)):
        for t in read(folder / "episodes.jsonl"):
            means.setdefault(t.seed, []).append(sign * bool(t.success) / 4)
    values = [sum(differences) for _, differences in sorted(means.items())]
    (row,) = comparison["envs"]
    assert row["difference"] == pytest.approx(sum(values) / 12)
    assert (row["test"], row["p"]) == ("sign flips", pytest.approx(sign_flips(values)))
    assert compare(before, after, metric="return")["metric"] == "return"


def test_a_run_does_not_differ_from_itself(tmp_path: Path) -> None:
    one = run(tmp_path / "a", "random", GAME, "game:Sokoban-v0-easy", n=10)
    comparison = compare(one, one)
    assert comparison["total"]["difference"] == 0.0
    assert comparison["total"]["p"] == 1.0
    assert comparison["settings_that_differ"] == []
    assert "not statistically significant" in as_text(comparison)


def test_unpaired_tasks_are_reported(flaky: str, tmp_path: Path) -> None:
    Flaky.failures = {2: 9}
    before = run(tmp_path / "a", f"{HERE}:three", flaky, n=10, seed=0)
    Flaky.failures = {}
    after = run(tmp_path / "b", f"{HERE}:three", flaky, n=10, seed=5)
    comparison = compare(before, after)
    assert comparison["total"]["tasks"] == 5
    assert comparison["total"]["unpaired"] == 9  # 4 in the first run, where one task failed, and 5 in the second
    assert "9 tasks have a result in only one evaluation" in as_text(comparison)
    elsewhere = run(tmp_path / "c", f"{HERE}:three", flaky, n=3, seed=500)
    with pytest.raises(BadValue, match="no task in common"):
        compare(before, elsewhere)
    with pytest.raises(BadValue, match="must be one of success, return, score"):
        compare(before, after, metric="luck")


def test_differing_settings_are_reported(tmp_path: Path) -> None:
    before = run(tmp_path / "a", "expert", GAME, n=6, kwargs={"max_turns": 4})
    after = run(tmp_path / "b", "expert", GAME, n=6, kwargs={"max_turns": 1}, turns=3)
    comparison = compare(before, after)
    assert comparison["settings_that_differ"] == [
        f"envs.{GAME}.kwargs.max_turns: 4 -> 1",
        f"envs.{GAME}.turns: unset -> 3",
    ]
    assert comparison["total"]["tasks"] == 6


def test_environments_have_equal_weight_and_p_values_are_corrected(tmp_path: Path) -> None:
    ids = (GAME, "game:Sokoban-v0-easy", "game:Wordle-v0-easy")
    before, after = run(tmp_path / "a", "random", *ids, n=10), run(tmp_path / "b", "expert", *ids, n=10)
    comparison = compare(before, after)
    assert comparison["total"]["difference"] == pytest.approx(sum(row["difference"] for row in comparison["envs"]) / 3)
    for row in comparison["envs"]:
        assert row["p"] <= row["p_holm"] <= min(1.0, 3 * row["p"])
    page = as_text(comparison, as_markdown=True)
    assert page.startswith("### ")
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 3 + 1
    assert len({line.count("|") for line in table}) == 1
    assert "better by" in page
    assert "wins:" in page
