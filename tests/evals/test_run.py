"""Test that evaluations are complete, can be resumed, do not depend on order, and count failures separately."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra.errors import BadValue
from palestra.evals import (
    EvalSettings,
    EvaluatedAgent,
    Evaluation,
    Prices,
    Suite,
    evaluate,
    read_evaluation,
    run_evaluation,
    suite_entry,
)
from palestra.evals.folder import differences
from palestra.evals.outcomes import read_outcomes
from palestra.evals.report import write_report
from palestra.folders import locked
from palestra.rollout import read
from tests.engines.stub_server import Stub
from tests.evals.players import GAME, AnyInfo, Flaky

HERE = "tests.evals.players"
FLAKY = "flaky:Numbers-v0"


@pytest.fixture
def flaky() -> Iterator[str]:
    Flaky.forget()
    palestra.register(FLAKY, Flaky)
    yield FLAKY
    palestra.unregister(FLAKY)


def suite(*ids: str, **more: Any) -> Suite:
    return Suite(name="test", entries=tuple(suite_entry(one, **more) for one in ids))


def run(what: Suite, agent: str, folder: Path, *, overwrite: bool = False, **settings: Any) -> Evaluation:
    return asyncio.run(
        run_evaluation(
            what,
            EvaluatedAgent(agent),
            folder,
            settings=EvalSettings(**settings),
            overwrite=overwrite,
            command=["palestra", "eval"],
        )
    )


def test_every_episode_is_stored_and_counted_in_the_table(tmp_path: Path) -> None:
    done = run(suite(GAME, "game:Sokoban-v0-easy", n=20, k=3, seed=7), "random", tmp_path / "a")
    assert done.played == done.planned == 120
    assert done.left == 0
    trajectories = list(read(tmp_path / "a" / "episodes.jsonl"))
    assert {(t.env_id, t.seed, t.member) for t in trajectories} == {
        (env, seed, member) for env in (GAME, "game:Sokoban-v0-easy") for seed in range(7, 27) for member in range(3)
    }
    row = done.summary["table"]["envs"][0]
    mine = [t for t in trajectories if t.env_id == GAME]
    assert row["success"] == pytest.approx(sum(bool(t.success) for t in mine) / 60)
    assert row["return"] == pytest.approx(sum(t.total_reward for t in mine) / 60)
    assert row["turns"] == pytest.approx(sum(len(t.turns) for t in mine) / 60)
    assert row["pass@1"] == pytest.approx(row["success"])
    assert row["pass^3"] <= row["pass^2"] <= row["pass^1"] == pytest.approx(row["pass@1"])
    assert row["pass@1"] <= row["pass@2"] <= row["pass@3"]
    low, high = row["random_success"], row["expert_success"]
    assert row["normalised"] == pytest.approx((row["success"] - low) / (high - low))
    assert sum(row["endings"].values()) == 60
    total = done.summary["table"]["total"]
    rates = [one["success"] for one in done.summary["table"]["envs"]]
    assert total["success"] == pytest.approx(sum(rates) / 2)


def test_settings_are_recorded(tmp_path: Path) -> None:
    run(suite(GAME, n=4, kwargs={"max_turns": 3}, turns=2), "expert", tmp_path / "a")
    record = read_evaluation(tmp_path / "a")
    (one,) = record.suite.entries
    assert (one.id, dict(one.kwargs), one.seeds, one.turns) == (GAME, {"max_turns": 3}, (0, 1, 2, 3), 2)
    assert record.saved["kind"] == "eval"
    assert record.saved["versions"]["palestra"] == palestra.__version__
    assert record.saved["command"] == ["palestra", "eval"]
    assert all(len(t.turns) <= 2 for t in read(tmp_path / "a" / "episodes.jsonl"))


def test_no_normalised_score_with_other_keywords(tmp_path: Path) -> None:
    done = run(suite(GAME, n=4, kwargs={"max_turns": 3}), "expert", tmp_path / "a")
    assert "normalised" not in done.summary["table"]["envs"][0]


@pytest.mark.parametrize("stop_after", [1, 17, 59])
def test_resuming_from_a_partial_file_gives_the_same_table(stop_after: int, tmp_path: Path) -> None:
    what = suite(GAME, n=20, k=3)
    whole = run(what, f"{HERE}:guess", tmp_path / "whole", concurrency=7)
    lines = (tmp_path / "whole" / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    part = tmp_path / "part"
    part.mkdir()
    (part / "run.json").write_bytes((tmp_path / "whole" / "run.json").read_bytes())
    # A kill leaves the written lines and one partial line.
    (part / "episodes.jsonl").write_bytes(
        b"".join(lines[:stop_after]) + lines[stop_after][: len(lines[stop_after]) // 2]
    )
    again = run(what, f"{HERE}:guess", part, concurrency=1)
    assert again.played == 60 - stop_after
    assert again.summary["table"] == whole.summary["table"]
    write_report(part)
    write_report(tmp_path / "whole")
    assert (part / "table.csv").read_bytes() == (tmp_path / "whole" / "table.csv").read_bytes()


def test_finished_evaluation_plays_nothing(tmp_path: Path) -> None:
    what = suite(GAME, n=5)
    run(what, "expert", tmp_path / "a")
    assert run(what, "expert", tmp_path / "a").played == 0


def test_other_settings_are_rejected_and_overwrite_starts_over(tmp_path: Path) -> None:
    run(suite(GAME, n=5), "expert", tmp_path / "a")
    with pytest.raises(BadValue) as caught:
        run(suite(GAME, n=6, k=2), "random", tmp_path / "a")
    text = str(caught.value)
    for words in ('agent.name: "expert" -> "random"', "seeds.count: 5 -> 6", ".k: 1 -> 2", "--overwrite"):
        assert words in text
    done = run(suite(GAME, n=6, k=2), "random", tmp_path / "a", overwrite=True)
    assert done.played == 12
    assert len(list(read(tmp_path / "a" / "episodes.jsonl"))) == 12


def test_folders_of_other_programs_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps({"config": {}}))
    (tmp_path / "metrics.jsonl").write_text("")
    for overwrite in (False, True):
        with pytest.raises(BadValue, match="contains a training run"):
            run(suite(GAME, n=1), "expert", tmp_path, overwrite=overwrite)
    assert json.loads((tmp_path / "run.json").read_text()) == {"config": {}}
    with pytest.raises(BadValue, match="contains a training run"):
        read_evaluation(tmp_path)
    with pytest.raises(BadValue, match=r"run\.json is missing"):
        read_evaluation(tmp_path / "nowhere")


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with locked(tmp_path, activity="evaluating"), pytest.raises(BadValue, match="another process is evaluating"):
        run(suite(GAME, n=1), "expert", tmp_path)


def test_failures_are_retried_and_counted_separately(flaky: str, tmp_path: Path) -> None:
    Flaky.failures = {1: 2, 4: 100}
    done = run(suite(flaky, n=6), f"{HERE}:three", tmp_path / "a", retries=2)
    row = done.summary["table"]["envs"][0]
    assert (row["episodes"], row["failed"], row["failed_by"], row["missing"]) == (5, 1, {"env": 1}, 0)
    assert row["success"] == 1.0  # only episodes with a result are counted; one that raised an error is not a loss
    assert done.left == 1
    assert done.summary["running"]["retries"] == 4
    assert Flaky.tried[1] == 3


def test_the_same_command_plays_only_failed_episodes_again(flaky: str, tmp_path: Path) -> None:
    Flaky.failures = {2: 100, 3: 100}
    run(suite(flaky, n=6), f"{HERE}:three", tmp_path / "a", retries=0)
    Flaky.failures = {}
    done = run(suite(flaky, n=6), f"{HERE}:three", tmp_path / "a", retries=0)
    assert (done.played, done.left) == (2, 0)
    assert set(Flaky.played.values()) == {1}
    assert len(list(read(tmp_path / "a" / "episodes.jsonl"))) == 8  # the failed attempts remain in the file
    Flaky.forget()
    whole = run(suite(flaky, n=6), f"{HERE}:three", tmp_path / "b")
    assert whole.summary["table"] == done.summary["table"]


def test_too_many_consecutive_failures_stop_the_run(flaky: str, tmp_path: Path) -> None:
    Flaky.failures = dict.fromkeys(range(50), 100)
    done = run(suite(flaky, n=50), f"{HERE}:three", tmp_path / "a", retries=0, give_up_after=5, concurrency=1)
    assert "5 consecutive episodes failed" in (done.stopped or "")
    assert done.left == 50
    assert done.summary["table"]["total"]["missing"] == 45
    assert "success" not in done.summary["table"]["total"]
    assert write_report(tmp_path / "a").exists()


def test_tokens_and_cost_of_a_server_that_shows_no_ids(tmp_path: Path) -> None:
    with Stub("plain", context=4096, reply={"role": "assistant", "content": "\\boxed{5}"}) as server:
        done = run(
            suite(GAME, n=4, sampling={"max_tokens": 8}), server.url, tmp_path / "a", prices=Prices(read=2, written=10)
        )
        sent = server.bodies("/v1/chat/completions")
    row = done.summary["table"]["envs"][0]
    calls = row["turns"] * 4
    assert len(sent) == calls
    assert row["tokens_written"] > 0
    assert row["cost"] == pytest.approx(4 * (2 * row["tokens_read"] + 10 * row["tokens_written"]) / 1e6)
    assert {body["max_tokens"] for body in sent} == {8}
    assert len({body["seed"] for body in sent}) == len(sent)  # every reply has its own seed
    assert read_outcomes(tmp_path / "a")[0, 0, 0].tokens_written
    (call,) = next(read(tmp_path / "a" / "episodes.jsonl")).turns[0].action.calls
    assert call.ids == []
    assert call.usage is not None
    assert min(call.usage) > 0


def test_any_text_and_info_of_an_environment_can_be_stored(tmp_path: Path) -> None:
    """Check an `info` that refers to itself or is endless, and texts that cannot be encoded."""
    palestra.register("odd:AnyInfo-v0", AnyInfo)
    try:
        done = run(suite("odd:AnyInfo-v0", n=1), "random", tmp_path / "e")
    finally:
        palestra.unregister("odd:AnyInfo-v0")
    assert done.summary["table"]["envs"][0]["episodes"] == 1
    assert "answer \N{REPLACEMENT CHARACTER}" in write_report(done.folder).read_text(encoding="utf-8")
    for trajectory in read(tmp_path / "e" / "episodes.jsonl"):
        info = trajectory.turns[-1].info
        assert (trajectory.success, info["set"], info["huge"]) == (True, ["a", 1, [2, 3]], hex(10**10_000))
        assert info["self"] == ["... (refers to itself)", {"info": "... (refers to itself)"}]
        assert info["rude"] == {"<Rude whose repr raises RuntimeError>": "<Rude whose repr raises RuntimeError>"}
        assert info["text"].endswith(f"x... ({5 << 20} characters)")


def test_differences_contain_the_path() -> None:
    before = {"a": 1, "b": {"c": [1, 2]}, "envs": [{"id": "x", "k": 1}]}
    after = {"a": 1, "b": {"c": [1, 3]}, "envs": [{"id": "x", "k": 2}], "new": True}
    assert differences(before, after) == ["b.c[1]: 2 -> 3", "envs[x].k: 1 -> 2", "new: unset -> true"]
    assert differences(before, before) == []


def test_summary_is_written_during_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palestra.evals.run.SUMMARY_INTERVAL", 0.0)
    seen = []

    def look(observation: str) -> str:
        path = tmp_path / "a" / "summary.json"
        seen.append(json.loads(path.read_text())["table"]["total"]["episodes"] if path.exists() else 0)
        return "\\boxed{5}"

    monkeypatch.setattr("tests.evals.players.first", look)
    run(suite(GAME, n=5), f"{HERE}:first", tmp_path / "a", concurrency=1)
    assert seen == sorted(seen)
    assert 0 < seen[-1] < 5


def test_wall_clock_ignores_pauses_and_overlap(tmp_path: Path) -> None:
    what = suite(GAME, n=6)
    run(what, f"{HERE}:slow_guess", tmp_path / "a", concurrency=3)
    path = tmp_path / "a" / "episodes.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    # Simulate three concurrent episodes, a pause of an hour, and three more concurrent episodes.
    for i, data in enumerate(lines):
        data["started"], data["seconds"] = 1000.0 + 3600 * (i // 3) + 0.5 * (i % 3), 2.0
    path.write_text("".join(json.dumps(data) + "\n" for data in lines))
    running = run(what, f"{HERE}:slow_guess", tmp_path / "a").summary["running"]
    assert running["wall_seconds"] == pytest.approx(6.0)
    assert running["seconds_per_episode"] == pytest.approx(2.0)
    assert running["envs"] == {GAME: pytest.approx(2.0)}


def test_python_api_evaluates_names_and_functions(tmp_path: Path) -> None:
    result = evaluate(GAME, "expert", n=3, out=tmp_path / "expert")
    assert result.success == 1.0
    assert "<table" in result._repr_html_()
    again = evaluate(GAME, "expert", n=3, out=tmp_path / "expert")
    assert again.played == 0

    async def in_a_notebook() -> Evaluation:  # calls `evaluate` inside a running event loop
        return evaluate([GAME], lambda observation: r"\boxed{5}", n=2, k=2, out=tmp_path / "function")

    assert asyncio.run(in_a_notebook()).planned == 4
