"""Test evaluations on AgentGym's item ids."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import palestra
from palestra.cli import main
from palestra.errors import BadValue
from palestra.evals import EvaluatedAgent, run_evaluation
from palestra.evals.data_ids import read_item_ids, with_item_ids
from palestra.evals.suite import Suite, load_suite
from palestra.registry.agentgym_tasks import item_task

EMPTY = Suite(name="", entries=())


def id_file(folder: Path, *ids: object) -> Path:
    path = folder / "ids.json"
    path.write_text(json.dumps(list(ids)))
    return path


def test_item_ids_have_the_meaning_of_agentgym() -> None:
    assert item_task("babyai_85")[1][:2] == ("babyai:All-v0", 85)
    assert item_task("textcraft_12")[1][:2] == ("textcraft:All-v0", 12)
    assert item_task("sciworld_31")[1] == ("sciworld:All-v0", 31, {}, {"split": None, "order": "agentgym"})
    assert item_task("searchqa_0")[1][:2] == ("search:NQ", 0)
    assert item_task("searchqa_3609")[1][:2] == ("search:NQ", 3609)
    assert item_task("searchqa_3610")[1][:2] == ("search:TriviaQA", 0)
    assert item_task("searchqa_51712")[1][:2] == ("search:Bamboogle", 124)
    assert item_task("webshop_9")[1][:2] == ("webshop:Shop-v0", 9)
    for wrong in ("searchqa_51713", "alfworld_3", "textcraft", "textcraft_x"):
        with pytest.raises(BadValue, match="training question|not a known item id"):
            item_task(wrong)


def test_only_the_listed_items_are_played(tmp_path: Path) -> None:
    path = id_file(tmp_path, {"item_id": "textcraft_500"}, {"item_id": "textcraft_3"}, {"item_id": "babyai_7"})
    suite = with_item_ids(EMPTY, [path])
    assert [(one.id, one.seeds, one.turns) for one in suite.entries] == [
        ("textcraft:All-v0", (500, 3), 30),
        ("babyai:All-v0", (7,), 20),
    ]
    done = asyncio.run(run_evaluation(suite, EvaluatedAgent("expert"), tmp_path / "run", command=[]))
    assert done.success == 1.0
    assert sorted(done.outcomes) == [(0, 3, 0), (0, 500, 0), (1, 7, 0)]
    goals = [palestra.make("textcraft:All-v0", order="agentgym").reset(seed=seed)[1]["goal"] for seed in (3, 500)]
    assert len(set(goals)) == 2


def test_items_replace_the_tasks_of_a_suite(tmp_path: Path) -> None:
    path = id_file(tmp_path, "textcraft_500", "textcraft_3", "searchqa_5", "searchqa_4000", "sciworld_31")
    suite = with_item_ids(load_suite("suite:agentgym-rl"), [path])
    assert [(one.id, one.seeds, one.turns) for one in suite.entries if one.id != "babyai:All-v0"] == [
        ("textcraft:All-v0", (500, 3), 30),
        ("sciworld:All-v0", (31,), 30),
        ("search:NQ", (5,), 30),
        ("search:TriviaQA", (390,), 30),
    ]
    crafting = next(one for one in suite.entries if one.id == "textcraft:All-v0")
    assert crafting.kwargs == {"feedback": "agentgym", "order": "agentgym", "split": None}
    assert [len(one.seeds) for one in suite.entries if one.id == "babyai:All-v0"] == [90]
    assert with_item_ids(EMPTY, [path], n=1).entries[0].seeds == (500,)


def test_invalid_files(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="cannot read the item ids"):
        read_item_ids(tmp_path / "none.json")
    for wrong in ([], [{"id": 3}], [3]):
        with pytest.raises(BadValue, match="must be a JSON list of item ids"):
            read_item_ids(id_file(tmp_path, *wrong))
    with pytest.raises(BadValue, match="lists babyai_1 more than once; use -k"):
        read_item_ids(id_file(tmp_path, "babyai_1", "babyai_2", "babyai_1"))
    with pytest.raises(BadValue, match="has 1 items, fewer than n = 2"):
        with_item_ids(EMPTY, [id_file(tmp_path, "babyai_1")], n=2)
    with pytest.raises(BadValue, match="also pass textcraft:All-v0"):
        with_item_ids(load_suite("suite:games"), [id_file(tmp_path, "textcraft_1")])


def test_the_suite_of_agentgym_rl() -> None:
    suite = load_suite("suite:agentgym-rl")
    sizes = {one.id: (len(one.seeds), one.turns) for one in suite.entries if not one.every_task}
    assert sizes == {"babyai:All-v0": (90, 20), "textcraft:All-v0": (100, 30), "sciworld:All-v0": (200, 30)}
    assert sum(one.every_task for one in suite.entries) == 7
    assert suite.published.rows[0].values["babyai:All-v0"] == 0.967


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = id_file(tmp_path, {"item_id": "textcraft_500"}, {"item_id": "textcraft_3"})
    command = ["eval", "--data-id", str(path), "--agent", "expert", "--out", str(tmp_path / "run"), "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["table"]["total"]["episodes"] == 2
