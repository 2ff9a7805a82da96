"""Test the statistics and tables that the scripts in recipes/papers write into the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from tests.papers.scripts import PAPERS, SCRIPTS, module

TASKS = st.dictionaries(st.text("abc", min_size=1), st.lists(st.floats(0, 1), min_size=1, max_size=9), min_size=1)


def test_the_interquartile_mean_drops_a_quarter_at_each_end() -> None:
    iqm = module("iqm").iqm
    assert iqm({"a": [8, 1, 2, 3, 4, 5, 6, 70]}) == 4.5  # mean of 3, 4, 5, 6
    assert iqm({"a": [0], "b": [1, 2], "c": [90]}) == 1.5  # over all tasks: mean of 1, 2
    assert iqm({"a": [0, 1, 2, 3, 9]}) == 2.0  # 5 / 4 is rounded down
    with pytest.raises(ValueError, match="at least one score"):
        iqm({"a": []})


def test_intervals_are_percentiles_of_resampled_runs() -> None:
    interval = module("iqm").interval
    # Two runs: the mean is 0, 0.5 and 1 with the probabilities 1/4, 1/2 and 1/4.
    assert interval({"a": [0, 1]}) == [0, 1]
    assert interval({"a": [0, 1]}, confidence=0.4) == [0.5, 0.5]
    # Runs are resampled within their task, so equal runs of different tasks have an interval without width.
    assert interval({"a": [0, 0, 0], "b": [1, 1, 1]}) == [0.5, 0.5]


@given(TASKS, st.floats(-2, 2), st.floats(0.1, 3))
def test_statistics_follow_shifts_and_scales(scores: dict[str, list[float]], shift: float, scale: float) -> None:
    stats = module("iqm")
    moved = {task: [scale * value + shift for value in values] for task, values in scores.items()}
    expected = [stats.iqm(scores), *stats.interval(scores, resamples=50)]
    assert [stats.iqm(moved), *stats.interval(moved, resamples=50)] == pytest.approx(
        [scale * value + shift for value in expected]
    )
    everything = [value for values in scores.values() for value in values]
    assert all(min(everything) - 1e-9 <= value <= max(everything) + 1e-9 for value in expected)


def test_tables_contain_the_latest_finished_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = module("report")
    rows = [
        {
            "question": "q",
            "model": "m",
            "task": task,
            "variant": "v",
            "seed": seed,
            "settings": settings,
            "set": [],
            "ended": ended,
            "final": value,
            "evaluations": {},
            "curve": {"step": [0, 5], "success": [0.5, value], "turns": [3, seed]},
        }
        for task, seed, settings, ended, value in [
            ("a", 1, "old", "finished", 0.9),
            ("a", 1, "new", "stopped", 0.9),
            ("a", 1, "new", "finished", 0.2),
            ("a", 2, "new", "finished", 0.2),
            ("b", 1, "new", "finished", 0.4),
            ("b", 2, "new", "finished", 0.4),
        ]
    ]
    (mine,) = report.current(rows, "q").values()
    assert report.matrix(mine, ["a", "b", "c"], ["v", "w"], report.final).splitlines() == [
        "| | a | b | all | seeds |",
        "|---|---|---|---|---|",
        "| v | 20.0% (20.0% to 20.0%) | 40.0% (40.0% to 40.0%) | 30.0% (30.0% to 30.0%) | 2 |",
    ]
    assert report.listing({"group": mine[:1]}, {"turns": (report.last_of("turns"), ".1f")}).endswith(
        "| group | 1.0 | 1 |"
    )
    assert [report.collapsed(row) for row in mine] == [1, 1, 0, 0]
    assert "failed runs, which are in the data file: 1." in report.section(rows, "q", "x", lambda _: "")
    monkeypatch.setattr(report, "DOCS", tmp_path)
    (tmp_path / "images").mkdir()
    for model, file in {
        "default:0.1M": "figure.png",
        "models/m": "figure-m.png",
        "default:1M": "figure-default-1M.png",
    }.items():
        panels = {"a": {"v": [{**row, "model": model} for row in mine[:2]], "w": []}, "d": {"v": []}}
        assert report.draw("figure", panels, "success", "success") == f"![success by step](images/{file})"
        assert (tmp_path / "images" / file).stat().st_size > 0


def test_success_before_and_after_rl_by_task() -> None:
    agentgym, files = module("agentgym"), module("files")
    envs = agentgym.SCENARIOS["TextCraft"][0]
    evaluations = [
        {"step": step, "eval_turns_per_episode": 3.0, "eval_success": 0.5}
        | {f"eval_success/{env}": rate + 0.1 * i for i, env in enumerate(envs)}
        for step, rate in [(-1, 0.2), (29, 0.6)]
    ]
    row = {"question": "tasks", "model": "default:0.1M", "task": "TextCraft", "variant": "rebn", "seed": 1}
    row |= {"settings": "a", "set": [], "ended": "finished", "curve": files.curve(evaluations, 8), "final": 0.5}
    lines = agentgym.tasks_report([row]).splitlines()
    assert lines[2] == "| TextCraft: textcraft:Depth1-v0 | 20.0% | 60.0% | +40.0% | 1 |"
    assert lines[5] == "| TextCraft: textcraft:Depth4-v0 | 50.0% | 90.0% | +40.0% | 1 |"
    assert len(lines) == 6
    assert agentgym.feedback_report([row]).splitlines()[2:] == ["| world with rules | 50.0% | 50.0% | +0.0% | 1 |"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_tables_are_generated_from_the_data(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = module("files")
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)  # drawing the figures takes seconds
    page = tmp_path / "papers.md"
    written = (files.DOCS / "papers.md").read_text()
    page.write_text(written)
    rows = files.results(PAPERS / "results" / f"{script}.jsonl")
    for name, question in module(script).QUESTIONS.items():
        files.write_section(page, f"{script} {name}", question.report(rows))
    assert page.read_text() == written, f"run: python recipes/papers/{script}.py --table"


def test_the_tables_of_runs_with_default_settings_are_generated_from_the_data(tmp_path: Path) -> None:
    stability, forgotten, files = module("stability"), module("forgotten_actions"), module("files")
    sections = [
        (stability, stability.PAGE, "stability", stability.summary),
        (stability, stability.RUNS_PAGE, "stability runs", stability.table),
        (forgotten, forgotten.PAGE, "forgotten actions", forgotten.table),
    ]
    for script, page, name, text in sections:
        rows = files.results(script.RESULTS)
        assert rows
        copy = tmp_path / page.name
        copy.write_text(page.read_text())
        files.write_section(copy, name, text(rows))
        assert copy.read_text() == page.read_text(), f"run: python recipes/papers/{script.__name__}.py --table"


def test_runs_with_default_settings_have_no_settings_of_their_own() -> None:
    stability = module("stability")
    for game, settings in stability.GAMES.items():
        given = {"env", "env_kwargs", "model", "steps", "target"}
        given |= {"warm_player"} if game.startswith("textcraft_pretrained") else set()
        assert settings.keys() <= given, game


def test_the_summary_counts_runs_by_their_final_success() -> None:
    stability = module("stability")
    row = {"label": "defaults", "game": "guess", "target": 0.94, "reached": None, "steps": 400, "seconds": 9}
    row |= {"ended": "finished", "env_kwargs": stability.GAMES["guess"]["env_kwargs"]}
    runs = [
        {**row, "seed": 101, "success": [[400, 0.92]], "final": 0.93},
        {**row, "seed": 102, "success": [[400, 0.95]], "final": 0.89, "reached": 400},
        {**row, "seed": 102, "success": [[6, 0.7]], "final": None, "ended": "stopped", "steps": 6},
        {**row, "seed": 103, "success": [[6, 0.5]], "final": None, "ended": "stopped"},
        {**row, "seed": 103, "success": [[7, 0.6]], "final": None, "ended": "stopped", "steps": 500, "env_kwargs": {}},
        {**row, "seed": 103, "success": [[9, 0.9]], "final": None, "ended": "failed with exit code 1", "steps": 600},
        {**row, "seed": 104, "success": [[9, 0.91]], "final": 0.88, "reached": 9, "target": 0.9},
        {**row, "seed": 104, "success": [[6, 0.99]], "final": None, "ended": "stopped", "steps": 8},
        {**row, "seed": 104, "success": [[6, 0.7], [9, 0.6]], "final": None, "ended": "stopped", "steps": 9},
    ]
    (line,) = [line for line in stability.summary(runs).splitlines() if line.startswith("| guess |")]
    assert line.startswith("| guess | hidden state | 1 of 4 | 2 of 4 | 9 to 400 | 9 | 88.0% |")
    assert line.endswith("| 101: 92.0%, 400; 103: 50.0%, 6; another run of 104: 70.0%, 6 |")
    earlier = [{**run, "label": stability.EARLIER, "final": 0.5} for run in runs]
    assert line in stability.summary(earlier + runs).splitlines(), "only runs with the current defaults count"
    (line,) = [line for line in stability.summary(earlier).splitlines() if line.startswith("| guess (")]
    assert line.startswith("| guess (same entropy bonus) | hidden state | 0 of 4 |")


def test_the_summary_has_the_lowest_success_of_all_runs_with_the_current_target() -> None:
    stability = module("stability")
    row = {
        "label": "defaults",
        "game": "hanoi",
        "target": 0.94,
        "final": 0.95,
        "reached": 10,
        "steps": 60,
        "seconds": 9,
    }
    row |= {"ended": "finished", "env_kwargs": {}}
    runs = [
        {**row, "seed": 101, "success": [[10, 0.95], [15, 0.93], [60, 0.99]]},
        {**row, "seed": 101, "success": [[10, 0.96]], "steps": 10},  # newer, without further steps
        {**row, "seed": 102, "success": [[10, 0.91], [15, 0.85]], "target": 0.9},
        {**row, "seed": 102, "success": [[10, 0.97], [15, 0.94]]},
    ]
    (line,) = [line for line in stability.summary(runs).splitlines() if line.startswith("| hanoi |")]
    assert line.endswith("| 95.0% | 93.0% |  |")


def test_times_of_different_machines_are_in_different_tables() -> None:
    gem, files = module("gem"), module("files")
    rows = [r for r in files.results(PAPERS / "results" / "gem.jsonl") if r["question"] == "async"]
    machines = list(dict.fromkeys(row["hardware"] for row in rows))
    report = gem.asynchronous_report(rows)
    assert all(f"On {machine}:" in report for machine in machines) == (len(machines) > 1)
    assert "On " not in gem.asynchronous_report([row for row in rows if row["hardware"] == machines[0]])
