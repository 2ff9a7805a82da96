"""Test the BIRD environment with small files in BIRD's format."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra.envs.sql.bird import Bird, smaller_copy
from palestra.envs.sql.guard import File, Limits, run
from palestra.errors import BadValue, DataMissing
from palestra.spec import split_of

QUESTIONS: list[dict[str, Any]] = [
    {
        "question_id": 0,
        "db_id": "schools",
        "question": "Which school in Alameda has the most pupils?",
        "evidence": "pupils refers to Enrollment (K-12)",
        "SQL": "SELECT `School Name` FROM frpm WHERE County = 'Alameda' ORDER BY `Enrollment (K-12)` DESC LIMIT 1",
        "difficulty": "simple",
    },
    {
        "question_id": 1,
        "db_id": "schools",
        "question": "How many schools of each county scored above 500?",
        "evidence": "",
        "SQL": "SELECT T1.County, COUNT(*) FROM frpm AS T1 INNER JOIN satscores AS T2 ON T1.CDSCode = T2.cds "
        "WHERE T2.score > 500 GROUP BY T1.County",
        "difficulty": "moderate",
    },
    {
        "question_id": 2,
        "db_id": "cards",
        "question": "How old are the cards printed before this year?",
        "evidence": "",
        "SQL": "SELECT DISTINCT STRFTIME('%Y', CURRENT_TIMESTAMP) - year FROM cards WHERE year < 2025",
        "difficulty": "challenging",
    },
]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "dev.json").write_text(json.dumps(QUESTIONS))
    folder = tmp_path / "dev_databases"
    for name in ("schools", "cards"):
        (folder / name).mkdir(parents=True)
    schools = sqlite3.connect(folder / "schools" / "schools.sqlite")
    schools.execute(
        'CREATE TABLE frpm (CDSCode TEXT PRIMARY KEY, County TEXT, "School Name" TEXT, "Enrollment (K-12)" REAL)'
    )
    schools.execute("CREATE TABLE satscores (cds TEXT REFERENCES frpm (CDSCode), score INTEGER) ")
    schools.execute("CREATE VIEW high AS SELECT * FROM satscores WHERE score > 500")
    for number in range(60):
        county = ("Alameda", "Fresno", "Marin")[number % 3]
        schools.execute(
            "INSERT INTO frpm VALUES (?, ?, ?, ?)", (f"{number:04}", county, f"School {number}", number * 7 % 61)
        )
        schools.execute("INSERT INTO satscores VALUES (?, ?)", (f"{number:04}", 400 + number * 31 % 250))
    schools.execute("INSERT INTO frpm VALUES ('x', 'Marin', CAST(x'ff41' AS TEXT), NULL)")
    schools.commit()
    schools.close()
    cards = sqlite3.connect(folder / "cards" / "cards.sqlite")
    cards.execute("CREATE TABLE cards (id INTEGER PRIMARY KEY, year INTEGER, art BLOB) ")
    cards.executemany("INSERT INTO cards VALUES (?, ?, ?)", [(n, 1995 + n % 30, b"\x00\xff") for n in range(40)])
    cards.commit()
    cards.close()
    return {"questions": str(tmp_path / "dev.json"), "databases": str(folder)}


def test_the_expert_solves_and_seeds_visit_every_question(files: dict[str, Any]) -> None:
    env = palestra.make("sql:BIRD", **files)
    seen = set()
    for seed in range(3):
        prompt, info = env.reset(seed=seed)
        seen.add(info["index"])
        assert QUESTIONS[info["index"]]["question"] in str(prompt)
        assert "CREATE TABLE" in str(prompt)
        env.step(env.expert_action() or "")
        step = env.step(env.expert_action() or "")
        assert (step.reward, step.info["success"]) == (1.0, True)
    assert seen == {0, 1, 2}


def test_hints_are_shown_by_default(files: dict[str, Any]) -> None:
    assert "Hint: pupils refers" in str(palestra.make("sql:BIRD", **files).reset(options={"index": 0})[0])
    bare = palestra.make("sql:BIRD", evidence=False, show_schema=False, **files).reset(options={"index": 0})[0]
    assert "Hint" not in str(bare)
    assert "CREATE TABLE" not in str(bare)


def test_results_are_compared_as_sets(files: dict[str, Any]) -> None:
    env = palestra.make("sql:BIRD", **files)
    env.reset(options={"index": 1})
    other = (
        "SELECT County, n FROM (SELECT f.County, COUNT(*) AS n FROM frpm f, satscores s WHERE s.cds = f.CDSCode AND "
        "s.score > 500 GROUP BY f.County) ORDER BY n DESC"
    )
    assert env.step(f"<answer>{other}</answer>").reward == 1.0


def test_a_hard_coded_result_is_wrong(files: dict[str, Any]) -> None:
    env = palestra.make("sql:BIRD", **files)
    for index in range(3):
        env.reset(options={"index": index})
        inner = env.unwrapped
        assert isinstance(inner, Bird)
        rows = run(inner.databases[0], inner.question.gold, Limits()).rows
        hard_coded = "VALUES " + ", ".join("(" + ", ".join(map(repr, row)) + ")" for row in rows)
        step = env.step(f"<answer>{hard_coded}</answer>")
        assert step.reward == 0.0
        assert "copy" in step.info["why"]


def test_difficulties(files: dict[str, Any]) -> None:
    env = palestra.make("sql:BIRD", difficulty="simple", **files)
    for seed in range(4):
        assert env.reset(seed=seed)[1]["level"] == "simple"
    with pytest.raises(BadValue, match="`difficulty` must be one of"):
        palestra.make("sql:BIRD", difficulty="hard", **files)


def test_copies_have_fewer_rows_and_the_same_tables(files: dict[str, Any]) -> None:
    place = File(str(Path(files["databases"], "schools", "schools.sqlite")))
    half, none = smaller_copy(place, 10), smaller_copy(place, 0)
    assert run(half, "SELECT COUNT(*) FROM frpm", Limits()).rows[0][0] in range(5, 11)
    assert run(half, "SELECT COUNT(*) FROM high", Limits()).rows[0][0] > 0
    assert run(none, "SELECT COUNT(*) FROM frpm", Limits()).rows == ((0,),)
    cards = smaller_copy(File(str(Path(files["databases"], "cards", "cards.sqlite"))), 100)
    assert run(cards, "SELECT DISTINCT art FROM cards", Limits()).rows == ((b"\x00\xff",),)
    assert run(cards, "SELECT COUNT(*) FROM cards", Limits()).rows == ((20,),)


def test_spiders_format_works(files: dict[str, Any], tmp_path: Path) -> None:
    row = {"db_id": "cards", "question": "How many cards are there?", "query": "SELECT count(*) FROM cards"}
    (tmp_path / "spider.json").write_text(json.dumps([row]))
    env = palestra.make("sql:BIRD", questions=str(tmp_path / "spider.json"), databases=files["databases"])
    env.reset(seed=0)
    assert env.step("<answer>SELECT COUNT(id) FROM cards</answer>").reward == 1.0


def test_conformance(files: dict[str, Any]) -> None:
    report = palestra.check_env("sql:BIRD", kwargs=files, episodes=6, seconds=2.0)
    assert len(report.passed) == 8
    assert report.expert is not None
    assert report.expert.value == 1.0


def test_missing_or_malformed_files_raise(files: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match="questions="):
        palestra.make("sql:BIRD")
    with pytest.raises(DataMissing, match="nowhere.json"):
        palestra.make("sql:BIRD", questions="nowhere.json", databases=files["databases"])
    (tmp_path / "odd.json").write_text('[{"question": "?"}]')
    with pytest.raises(BadValue, match="row 0"):
        palestra.make("sql:BIRD", questions=str(tmp_path / "odd.json"), databases=files["databases"])
    (tmp_path / "lost.json").write_text(json.dumps([{**QUESTIONS[0], "db_id": "lost"}]))
    with pytest.raises(DataMissing, match="lost.sqlite"):
        palestra.make("sql:BIRD", questions=str(tmp_path / "lost.json"), databases=files["databases"]).reset(seed=0)


def test_splits_share_no_question(files: dict[str, Any]) -> None:
    questions = [{**QUESTIONS[1], "question": f"How many schools, version {number}?"} for number in range(60)]
    Path(files["questions"]).write_text(json.dumps(questions))
    seen: dict[str | None, set[str]] = {}
    for split in ("train", "test", None):
        env = palestra.make("sql:BIRD", split=split, **files)
        assert env.num_tasks is not None
        infos = [env.reset(seed=seed)[1] for seed in range(env.num_tasks)]
        seen[split] = {info["task_id"] for info in infos}
        assert len(seen[split]) == env.num_tasks
    assert not seen["train"] & seen["test"]
    assert seen["train"] | seen["test"] == seen[None]
    Path(files["questions"]).write_text(json.dumps(QUESTIONS[:1]))
    task_id = palestra.make("sql:BIRD", **files).reset(seed=0)[1]["task_id"]
    other = "train" if split_of(task_id) == "test" else "test"
    with pytest.raises(DataMissing, match="no questions of difficulty None, split"):
        palestra.make("sql:BIRD", split=other, **files)
