"""Test that a run's report and curve can be created from its folder alone."""

from __future__ import annotations

import json
import struct
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palestra.errors import BadValue, MissingExtra, StoreFailed
from palestra.reports.svg import Chart, Point, Series, draw, thinned, ticks
from palestra.rollout import Writer
from palestra.rollout.types import Trajectory, Turn
from palestra.training.recipe import from_mapping
from palestra.training.reporting.report import learning_curve, page, picture, small_charts, write_curve, write_page
from palestra.training.reporting.run_folder import RunRecord, last_checkpoint, read_run, sample_episodes
from palestra.types import Action

GAME, OTHER = "game:GuessTheNumber-v0-easy", "game:Sudoku-v0-easy"


def evaluation(success: float, **more: Any) -> dict[str, Any]:
    return {
        "eval_success": success,
        "eval_success_low": max(0.0, success - 0.05),
        "eval_success_high": min(1.0, success + 0.05),
        "eval_turns_per_episode": 3.0,
        **more,
    }


def rows(count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{"step": -1, **evaluation(0.3)}]
    for step in range(count):
        rate = 0.3 + 0.6 * step / count
        found.append(
            {
                "step": step,
                "success": rate,
                "success_low": rate - 0.1,
                "success_high": rate + 0.1,
                "horizon": 3 if step < 6 else 5,
                "entropy": 1 - rate,
                "clip_fraction": 0.0,
                "signal": float(step != 2),
                "failures": int(step == 3),
                "seconds_sampling": 1.0,
                "seconds_learning": 2.0,
                **(evaluation(rate, seconds_evaluating=1.0) if step % 4 == 3 else {}),
            }
        )
    return found


def record(folder: Path, count: int = 12, **settings: Any) -> RunRecord:
    config = from_mapping({"env": GAME, "steps": 12, "horizon": "3,5@6", "lr": 0.5, **settings})
    return RunRecord(
        folder=folder,
        config=json.loads(json.dumps(config.to_dict())),
        versions={"palestra": "0.1.0"},
        command=["palestra", "train", "--system", "a <b> & c"],
        rows=rows(count),
    )


def save(run: RunRecord) -> None:
    run.folder.mkdir(parents=True, exist_ok=True)
    saved = {"config": run.config, "versions": run.versions, "command": run.command}
    (run.folder / "run.json").write_text(json.dumps(saved))
    (run.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in run.rows))


def episode(seed: int, success: bool, text: str = "\\boxed{5}") -> Trajectory:
    turn = Turn(
        observation="Guess <a> number & win.",
        action=Action(text=text),
        reward=float(success),
        terminated=True,
        truncated=False,
        info={"success": success},
        agent_seconds=0.0,
        env_seconds=0.0,
    )
    return Trajectory(
        env_id=GAME,
        kwargs={},
        seed=seed,
        group=seed,
        member=0,
        turns=(turn,),
        final_observation="Over.",
        success=success,
    )


class Checked(HTMLParser):
    """Check that every element is closed in order, and collect external resources."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)
        self.outside += [str(value) for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def checked(text: str) -> Checked:
    parser = Checked()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser


def test_the_page_is_self_contained_and_describes_the_run(tmp_path: Path) -> None:
    text = page(record(tmp_path), [episode(1, True), episode(2, False, "<script>alert(1)</script>")])
    seen = checked(text)
    assert seen.outside == []
    assert "url(" not in text
    assert "@import" not in text
    assert "<script" not in text, "an agent's text must be escaped"
    assert "<script>alert(1)</script>" in seen.text
    assert "Guess <a> number & win." in seen.text
    for words in ("12 of 12 steps, finished", "before training", "30.0%", "after 12 steps", "85.0%", "80.0% to 90.0%"):
        assert words in seen.text
    assert "1 steps" in seen.text, "the number of steps without a learning signal must be displayed"
    assert "5 turns" in seen.text
    assert "palestra train --system 'a <b> & c'" in seen.text
    assert text.count('class="changed"') == 4  # env, steps, horizon, lr
    assert "prefers-color-scheme: dark" in text


def test_a_run_that_has_just_started_has_a_page(tmp_path: Path) -> None:
    assert "0 of 12 steps, not finished" in checked(page(replace(record(tmp_path), rows=[]))).text
    only = replace(record(tmp_path), rows=rows(0))
    assert "30.0%" in checked(page(only)).text
    assert picture(only).startswith(b"\x89PNG")
    assert picture(replace(only, rows=[])).startswith(b"\x89PNG")


def test_points_of_the_curve_are_at_the_step_of_their_policy(tmp_path: Path) -> None:
    """Check that training points are placed before the update of their step, and evaluation points after it."""
    training, held_out = learning_curve(record(tmp_path)).series
    assert [p.x for p in training.points] == list(range(12))
    assert [p.x for p in held_out.points] == [0, 4, 8, 12]
    first = held_out.points[0]
    assert (first.low, first.y, first.high) == (0.25, 0.3, 0.35)
    assert learning_curve(record(tmp_path)).marks == [(0, "3 turns"), (6, "5 turns")]


def test_a_run_that_reached_its_target_is_finished(tmp_path: Path) -> None:
    assert not replace(record(tmp_path, count=6), rows=rows(6)).finished
    assert record(tmp_path, count=6, target=0.4).finished


def test_cloning_shows_its_loss_instead_of_success(tmp_path: Path) -> None:
    config = json.loads(json.dumps(from_mapping({"algorithm": "sft", "data": "some/trajectories"}).to_dict()))
    trained: list[dict[str, Any]] = [{"step": -1}]
    trained += [{"step": step, "loss": 1 / (step + 1), "seconds_learning": 1.0} for step in range(4)]
    run = RunRecord(folder=tmp_path, config=config, rows=trained)
    text = checked(page(run)).text
    assert "some/trajectories" in text
    assert "4 steps, not finished" in text
    assert "Learning curve" not in text
    assert [chart.title for chart in small_charts(run)] == ["Loss"]
    assert "Loss" not in [chart.title for chart in small_charts(record(tmp_path))]


def test_constant_zero_charts_are_omitted_and_environments_are_separate(tmp_path: Path) -> None:
    run = record(tmp_path, env=[GAME, OTHER])
    some = [
        {**row, f"eval_success/{GAME}": 0.5, f"eval_success/{OTHER}": 0.1} if "eval_success" in row else row
        for row in run.rows
    ]
    run = replace(run, rows=some)
    titles = [chart.title for chart in small_charts(run)]
    assert "Entropy" in titles
    assert "Clipped tokens" not in titles
    assert titles[-2:] == [GAME, OTHER]
    assert f"{GAME} + {OTHER}" in checked(page(run)).text


def test_reports_are_written_from_the_folder(tmp_path: Path) -> None:
    run = record(tmp_path / "run")
    save(run)
    with Writer(run.folder / "trajectories" / "step-000011.jsonl.gz") as writer:
        for seed in range(6):
            writer.write(episode(seed // 2, seed % 2 == 0))
    (run.folder / "trajectories" / "step-000012.jsonl.gz").touch()  # a step that has just started
    assert read_run(run.folder) == run
    assert [(t.seed, t.success) for t in sample_episodes(run.folder)] == [(0, True), (1, False), (2, True), (0, False)]
    first = write_page(run.folder).read_bytes()
    assert write_page(run.folder).read_bytes() == first
    assert checked(first.decode()).text.count("Over.") == 4
    curve = write_curve(run.folder)
    width, height = struct.unpack(">II", curve.read_bytes()[16:24])
    assert (width, height) == (1200, 600)
    same = curve.read_bytes()
    assert write_curve(run.folder).read_bytes() == same
    assert {path.name for path in run.folder.iterdir() if path.is_file()} == {
        "run.json",
        "metrics.jsonl",
        "report.html",
        "curve.png",
    }


def test_the_plot_shows_the_data(tmp_path: Path) -> None:
    from matplotlib.image import imread

    save(record(tmp_path))
    pixels = imread(write_curve(tmp_path))[..., :3]
    blue = np.all(abs(pixels - [0x1F / 255, 0x6F / 255, 0xEB / 255]) < 0.02, axis=-1)
    assert blue.sum() > 1000
    columns = [int(blue[:, x].nonzero()[0].mean()) for x in range(0, 1200, 50) if blue[:, x].any()]
    assert columns[0] > columns[-1] + 100, "the line must rise, because success does"


def test_a_folder_without_a_run_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"contains no run \(run\.json is missing\)"):
        write_page(tmp_path)
    for text in ("", "[]", '{"config": {}}'):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(BadValue, match="is not a valid run file"):
            read_run(tmp_path)
    save(record(tmp_path))
    (tmp_path / ".report.html.part").mkdir()
    with pytest.raises(StoreFailed, match=r"cannot write .*report\.html"):
        write_page(tmp_path)


def test_missing_matplotlib_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[train\]'"):
        picture(record(tmp_path))
    assert page(record(tmp_path))


def test_incomplete_checkpoints_are_ignored(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None
    for name in ("step-2", "step-10", ".step-20.part"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        (tmp_path / "checkpoints" / name / "manifest.json").touch()
    (tmp_path / "checkpoints" / "step-30").mkdir()
    assert last_checkpoint(tmp_path) == 10


# Charts

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)


@example(0.0, 5e-324, 5)
@given(NUMBERS, NUMBERS, st.integers(1, 10))
def test_ticks_are_few_round_numbers_within_the_range(one: float, other: float, count: int) -> None:
    low, high = sorted((one, other))
    found = ticks(low, high, count)
    room = (high - low) * 1e-6 + 1e-9
    assert all(low - room <= value <= high + room for value in found)
    assert len(found) <= count + 2
    assert found == sorted(set(found))


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=30), st.booleans(), st.booleans())
def test_a_chart_is_valid_svg_within_its_bounds(points: list[tuple[float, float]], dots: bool, legend: bool) -> None:
    series = Series(
        name="a < b",
        style="one",
        dots=dots,
        points=[Point(x=x, y=y, low=y - 1, high=y + 1, text="&") for x, y in points],
    )
    text = draw(Chart(title='"t"', series=[series], legend=legend, marks=[(points[0][0], "<5")] if points else []))
    if not points:
        assert text == ""
        return
    for element in ET.fromstring(text).iter():
        for name in ("x", "x1", "x2", "cx"):
            assert -1 <= float(element.get(name, 0)) <= 761
        for name in ("y", "y1", "y2", "cy"):
            assert -1 <= float(element.get(name, 0)) <= 301
        for pair in element.get("points", "").split():
            x, y = map(float, pair.split(","))
            assert -1 <= x <= 761
            assert -1 <= y <= 301


@given(st.lists(NUMBERS, min_size=1, max_size=200), st.integers(1, 50))
def test_downsampling_averages_neighbors(values: list[float], most: int) -> None:
    points = [Point(x=i, y=y, low=y, high=y) for i, y in enumerate(values)]
    found = thinned(points, most)
    assert len(found) == min(most, len(points))
    assert [p.x for p in found] == sorted(p.x for p in found)
    assert all(min(values) - 1e-3 <= p.y <= max(values) + 1e-3 for p in found)
    if len(points) <= most:
        assert found == points
