"""Test the HTML report, the CSV table and the text table."""

from __future__ import annotations

import asyncio
import base64
import csv
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from palestra.errors import BadValue
from palestra.evals import EvaluatedAgent, Evaluation, Suite, run_evaluation, suite_entry, write_report
from palestra.evals.report import pass_chart, sample
from palestra.evals.text import aligned, markdown, table_text
from palestra.reports.html import MAX_IMAGE_BYTES, episode
from palestra.reports.ranges import Range, draw
from palestra.rollout.types import Trajectory, Turn
from palestra.types import Action, Observation
from tests.evals.players import GAME

NASTY = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Evaluation:
    ids = (GAME, "game:Sokoban-v0-easy", "math:Arithmetic-v0-easy")
    suite = Suite(name=f"three {NASTY}", entries=tuple(suite_entry(one, n=12, k=2) for one in ids))
    folder = tmp_path_factory.mktemp("evals") / "a"
    return asyncio.run(run_evaluation(suite, EvaluatedAgent("random"), folder, command=["palestra", "eval", NASTY]))


class Balance(HTMLParser):
    """Collect the resources that a page would load or execute, and check that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_report_is_self_contained(done: Evaluation) -> None:
    text = write_report(done.folder).read_text()
    page = Balance()
    page.feed(text)
    assert page.open == []
    assert page.links == []
    assert "script" not in page.tags
    assert "&lt;script&gt;" in text
    for words in (GAME, "By environment", "By category", "Attempts", "A sample of episodes", "palestra eval", "seeds"):
        assert words in text
    assert page.tags.count("details") == 8 + 1
    for svg in re.findall(r"<svg.*?</svg>", text, flags=re.S):
        ET.fromstring(svg)
    assert text.count("<svg") == 2


def test_samples_include_every_environment(done: Evaluation) -> None:
    assert {t.env_id for t in sample(done.folder)} == {row["env"] for row in done.summary["table"]["envs"]}


def test_csv_contains_every_number(done: Evaluation) -> None:
    write_report(done.folder)
    with (done.folder / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["part"] for row in rows] == ["env"] * 3 + ["category"] * 2 + ["level"] + ["total"]
    for row, known in zip(rows, done.summary["table"]["envs"], strict=False):
        for key in ("success", "success_low", "success_high", "return", "pass@2", "turns"):
            assert float(row[key]) == pytest.approx(known[key])


def test_text_table(done: Evaluation) -> None:
    text = table_text(done.summary["table"])
    for words in (GAME, "random=0, expert=1", "pass@2", "pass^2", "all environments"):
        assert words in text


def test_pass_curves_rise_and_fall(done: Evaluation) -> None:
    any_of, all_of = pass_chart(done.summary["table"]["envs"]).series
    assert [p.x for p in any_of.points] == [1, 2]
    assert any_of.points[0].y == all_of.points[0].y
    assert any_of.points[1].y >= any_of.points[0].y
    assert all_of.points[1].y <= all_of.points[0].y


def test_tables_align_and_escape() -> None:
    assert aligned(["a", "b"], [["long name", "1"]]) == "a          b\nlong name  1"
    assert aligned(["a", "b", "c"], [["long name", "1", "2"]], 14) == (
        "a          b\nlong name  1\n\na          c\nlong name  2"  # the columns do not fit into one line
    )
    assert markdown(["a", "b"], [["x|y", "1"]]).splitlines()[2] == "| x\\|y | 1 |"


def test_ranges_outside_the_span_are_clipped_to_the_chart() -> None:
    root = ET.fromstring(draw("t", [Range(name="<a>", value=3.0, low=-2.0, high=9.0, marks=(0.5,))], span=(0.0, 1.0)))
    (dot,) = root.iter("circle")
    assert 0 < float(dot.attrib["cx"]) < 760
    assert draw("t", []) == ""
    assert "<svg" in draw("t", [Range(name="one", value=2.0)])


def test_a_folder_without_a_summary(done: Evaluation, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_bytes((done.folder / "run.json").read_bytes())
    with pytest.raises(BadValue, match=r"no summary\.json yet"):
        write_report(tmp_path)


def test_images_in_observations_are_embedded() -> None:
    png = b"\x89PNG\r\n\x1a\nsecret"
    parts: Observation = [{"type": "text", "text": "The <page>:"}, {"type": "image", "image": png}]
    large: Observation = [{"type": "image", "image": png + b"x" * MAX_IMAGE_BYTES}]
    script: Observation = [{"type": "image", "image": b"<svg onload=alert(1)>"}]
    rest: dict[str, Any] = {"reward": 0.0, "terminated": False, "truncated": False, "info": {}}
    turns = tuple(
        Turn(observation=seen, action=Action(text="click [1]"), agent_seconds=0.0, env_seconds=0.0, **rest)
        for seen in (parts, large, script)
    )
    played = Trajectory(
        env_id="web:Map-v0",
        kwargs={},
        seed=1,
        group=0,
        member=0,
        turns=turns,
        final_observation="The end.",
        success=False,
    )
    page = episode(played)
    assert page.count("<img ") == 1
    assert base64.b64encode(png).decode() in page
    assert page.count("<pre>[image]</pre>") == 2
    assert "The &lt;page&gt;:" in page
    assert "onload" not in page
