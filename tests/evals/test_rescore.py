"""Test that stored episodes can be scored again without calling the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra.errors import BadValue
from palestra.evals import (
    EvalSettings,
    EvaluatedAgent,
    RescoreResult,
    Suite,
    compare,
    rescore,
    run_evaluation,
    suite_entry,
    write_report,
)
from palestra.rollout import read
from tests.evals.players import GAME, Flaky

HERE = "tests.evals.players"
FLAKY = "flaky:Numbers-v0"


@pytest.fixture
def flaky() -> Iterator[str]:
    Flaky.forget()
    palestra.register(FLAKY, Flaky)
    yield FLAKY
    palestra.unregister(FLAKY)


def played(folder: Path, env_id: str, agent: str = "random", **more: Any) -> Path:
    suite = Suite(name="test", entries=(suite_entry(env_id, **more),))
    asyncio.run(run_evaluation(suite, EvaluatedAgent(agent), folder, settings=EvalSettings(retries=0), command=[]))
    return folder


def again(source: Path, folder: Path, **more: Any) -> RescoreResult:
    return asyncio.run(rescore(source, folder, command=[], **more))


def test_nothing_changed_gives_the_same_table(tmp_path: Path) -> None:
    source = played(tmp_path / "a", GAME, n=15, k=2)
    result = again(source, tmp_path / "b")
    assert result.replays == {"same": 30}
    assert result.flips == []
    old = {(t.seed, t.member): t for t in read(source / "episodes.jsonl")}
    for t in read(tmp_path / "b" / "episodes.jsonl"):
        before = old[t.seed, t.member]
        assert [turn.action for turn in t.turns] == [turn.action for turn in before.turns]
        assert t.rewards == before.rewards
        assert [turn.agent_seconds for turn in t.turns] == [turn.agent_seconds for turn in before.turns]
    assert compare(source, tmp_path / "b")["total"]["difference"] == 0


def test_changed_grader_changes_results_without_calling_the_agent(flaky: str, tmp_path: Path) -> None:
    source = played(tmp_path / "a", flaky, f"{HERE}:three", n=5)
    Flaky.wanted = 4
    result = again(source, tmp_path / "b")
    assert result.replays == {"same": 5}
    assert [(key, before, now) for key, before, now in result.flips] == [((0, s, 0), True, False) for s in range(5)]
    assert result.evaluation.summary["table"]["total"]["success"] == 0.0


def test_differing_observations_are_reported_per_episode(flaky: str, tmp_path: Path) -> None:
    source = played(tmp_path / "a", flaky, f"{HERE}:three", n=3)
    Flaky.reply = "Guess!"
    result = again(source, tmp_path / "b")
    assert result.replays == {"observations differ": 3}
    assert "observations differ from turn 1" in write_report(tmp_path / "b").read_text()
    assert result.evaluation.summary["replay"]["episodes"] == [
        {"env": flaky, "seed": seed, "member": 0, "replay": "observations differ from turn 1"} for seed in range(3)
    ]


def test_early_end_is_scored_and_marked(flaky: str, tmp_path: Path) -> None:
    source = played(tmp_path / "a", flaky, f"{HERE}:three", n=3)
    Flaky.turns = 1
    result = again(source, tmp_path / "b")
    assert result.replays == {"ended early": 3}
    assert result.evaluation.summary["table"]["total"]["success"] == 1.0


def test_unfinished_replay_is_a_failure(flaky: str, tmp_path: Path) -> None:
    source = played(tmp_path / "a", flaky, f"{HERE}:three", n=3)
    Flaky.turns = 5
    result = again(source, tmp_path / "b")
    assert result.replays == {"unfinished": 3}
    assert result.evaluation.left == 3
    assert result.evaluation.summary["table"]["total"]["failed_by"] == {"env": 3}


def test_truncated_episode_stays_truncated(tmp_path: Path) -> None:
    source = played(tmp_path / "a", "game:Sokoban-v0-easy", n=4, turns=2)
    result = again(source, tmp_path / "b")
    assert result.replays == {"same": 4}
    assert result.evaluation.summary["table"]["total"]["truncated"] == 1.0


def test_other_keywords(tmp_path: Path) -> None:
    source = played(tmp_path / "a", "game:Mastermind-v0-easy", "expert", n=6)
    result = again(source, tmp_path / "b", kwargs={"partial_credit": True})
    assert result.replays["same"] == 6
    assert result.evaluation.summary["table"]["envs"][0]["kwargs"] == {"partial_credit": True}
    assert any(len([r for r in t.rewards if r]) > 1 for t in read(tmp_path / "b" / "episodes.jsonl"))


def test_failures_are_not_rescored(flaky: str, tmp_path: Path) -> None:
    Flaky.failures = {1: 1}
    source = played(tmp_path / "a", flaky, f"{HERE}:three", n=3)
    result = again(source, tmp_path / "b")
    assert result.evaluation.summary["table"]["total"]["episodes"] == 2
    assert result.evaluation.left == 1


def test_grader_function(tmp_path: Path) -> None:
    source = played(tmp_path / "a", GAME, n=20)
    lengths = {t.seed: len(t.turns) for t in read(source / "episodes.jsonl")}
    result = again(source, tmp_path / "b", grader=f"{HERE}:short_is_good")
    verdicts = {t.seed: t.success for t in read(tmp_path / "b" / "episodes.jsonl")}
    assert verdicts == {seed: turns <= 2 for seed, turns in lengths.items()}
    assert result.replays == {"graded": 20}
    row = again(source, tmp_path / "c", grader=f"{HERE}:half").evaluation.summary["table"]["total"]
    assert (row["success"], row["score"], row["return"]) == (1.0, 0.5, 0.25)
    row = again(source, tmp_path / "d", grader=f"{HERE}:judged_elsewhere").evaluation.summary["table"]["total"]
    assert row["success"] == row["score"] == 1.0


def test_exception_in_grader_is_a_failure(tmp_path: Path) -> None:
    source = played(tmp_path / "a", GAME, n=6)
    row = again(source, tmp_path / "b", grader=f"{HERE}:sulking").evaluation.summary["table"]["total"]
    assert (row["episodes"], row["failed_by"]) == (3, {"grader": 3})


def test_rescore_resumes(tmp_path: Path) -> None:
    source = played(tmp_path / "a", GAME, n=10)
    whole = again(source, tmp_path / "b")
    path = tmp_path / "b" / "episodes.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)[:4]
    path.write_bytes(b"".join(lines))
    rest = again(source, tmp_path / "b")
    assert rest.evaluation.played == 6
    assert rest.evaluation.summary["table"] == whole.evaluation.summary["table"]


def test_usage_errors_raise(tmp_path: Path) -> None:
    source = played(tmp_path / "a", GAME, n=1)
    with pytest.raises(BadValue, match="does not overwrite its source"):
        again(source, source)
    with pytest.raises(BadValue, match="cannot be combined"):
        again(source, tmp_path / "b", grader=f"{HERE}:half", kwargs={"max_turns": 2})
    with pytest.raises(BadValue, match="must be a function of a trajectory"):
        again(source, tmp_path / "b", grader=f"{HERE}:GAME")
    again(source, tmp_path / "b")
    with pytest.raises(BadValue, match=r"rescored\.grader: unset ->"):
        again(source, tmp_path / "b", grader=f"{HERE}:half")
