"""Test built-in suites, suite files and command-line overrides."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.engines import Sampling
from palestra.errors import BadValue, UnknownEnv
from palestra.evals import EvalSettings, EvaluatedAgent, run_evaluation
from palestra.evals.suite import (
    Suite,
    SuiteEntry,
    builtin_suites,
    load_suite,
    resolve_tasks,
    suite_entry,
    with_overrides,
    with_sampling,
)
from palestra.registry import get_spec, unregister
from tests.envs.tasks.data_files import math_rows, write_jsonl

GAME = "game:GuessTheNumber-v0-easy"


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("name", sorted(set(builtin_suites()) - {"agentgym-rl", "gem"}))
def test_shipped_suites_need_no_download(name: str) -> None:
    suite = load_suite(f"suite:{name}")
    assert suite.summary
    for one in suite.entries:
        assert not get_spec(one.id).needs_data
        assert get_spec(one.id).seeded
        assert one.category
    assert len({one.name for one in suite.entries}) == len(suite.entries)


@pytest.mark.parametrize("name", ["code", "math", "qa", "reasoning", "worlds"])
def test_the_expert_solves_a_task_of_every_environment(name: str, tmp_path: Path) -> None:
    suite = with_overrides(load_suite(f"suite:{name}"), kwargs={}, n=1, k=None, seed=5, turns=None)
    done = asyncio.run(
        run_evaluation(suite, EvaluatedAgent("expert"), tmp_path, settings=EvalSettings(concurrency=4), command=[])
    )
    for row in done.summary["table"]["envs"]:
        assert row["failed"] == 0, row
        assert row["success"] == 1.0 or row["expert_success"] < 1.0, row


def test_builtin_suites() -> None:
    assert {"code", "games", "math", "qa", "reasoning", "worlds"} <= set(builtin_suites())
    families = {get_spec(one.id).parts.name for one in load_suite("suite:games").entries}
    assert len(families) == 13
    worlds = {get_spec(one.id).parts.family for one in load_suite("suite:worlds").entries}
    assert worlds == {
        "babyai",
        "search",
        "sql",
        "textcraft",
        "webshop",
    }  # ScienceWorld needs Java and has its own suite
    assert {get_spec(one.id).parts.family for one in load_suite("suite:science").entries} == {"sciworld"}


def test_suite_file(tmp_path: Path) -> None:
    suite = load_suite(
        written(
            tmp_path,
            f"""
            summary = "mine"
            n = 5
            k = 2
            seed = 100
            turns = 7
            [sampling]
            temperature = 0.5
            max_tokens = 9
            [[env]]
            id = "{GAME}"
            [[env]]
            id = "game:Sudoku-v0-hard"
            kwargs = {{ max_turns = 3 }}
            seeds = [3, 1, 4]
            k = 1
            category = "puzzles"
            level = "brutal"
            sampling = {{ temperature = 0.0 }}
            """,
        )
    )
    one, two = suite.entries
    assert (suite.name, suite.summary, suite.episodes) == ("mine", "mine", 13)
    assert (one.seeds, one.k, one.turns, one.category, one.level) == ((100, 101, 102, 103, 104), 2, 7, "game", "easy")
    assert dict(one.sampling) == {"temperature": 0.5, "max_tokens": 9}
    assert (two.seeds, two.k, two.category, two.level) == ((3, 1, 4), 1, "puzzles", "brutal")
    assert dict(two.sampling) == {"temperature": 0.0, "max_tokens": 9}
    assert two.name == "game:Sudoku-v0-hard(max_turns=3)"
    assert with_sampling(Sampling(top_p=0.9), two.sampling) == Sampling(top_p=0.9, temperature=0.0, max_tokens=9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n = 5", "list the environments"),
        ("nn = 5\n[[env]]\nid = 'x'", "unknown setting 'nn'"),
        (f"[[env]]\nid = '{GAME}'\nsed = 3", "Did you mean seed"),
        (f"[[env]]\nid = '{GAME}'\nn = 0", "n must be an integer of at least 1"),
        (f"[[env]]\nid = '{GAME}'\nk = 1.5", "k must be an integer of at least 1"),
        (f"[[env]]\nid = '{GAME}'\nseeds = [1, 1]", "seeds must be distinct"),
        (f"[[env]]\nid = '{GAME}'\nsampling = {{ temprature = 1 }}", "Did you mean temperature"),
        ("[[env]\n", "is not TOML"),
    ],
)
def test_invalid_suite_files(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=words):
        load_suite(written(tmp_path, text))


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match="Did you mean suite:games"):
        load_suite("suite:gamse")
    with pytest.raises(BadValue, match="cannot read the suite"):
        load_suite(str(tmp_path / "none.toml"))
    with pytest.raises(UnknownEnv, match="Did you mean game:Sudoku-v0-easy"):
        load_suite(written(tmp_path, "[[env]]\nid = 'game:Sudokku-v0-easy'"))


def test_command_line_overrides_the_suite() -> None:
    suite = with_overrides(load_suite("suite:games"), kwargs={"max_turns": 4}, n=3, k=2, seed=50, turns=None)
    for one in suite.entries:
        assert (one.seeds, one.k, one.turns) == ((50, 51, 52), 2, None)
        assert one.kwargs["max_turns"] == 4


def test_explicit_seeds_are_truncated_not_replaced() -> None:
    suite = load_suite("suite:games")
    listed = suite_entry(GAME, seeds=[9, 4, 7])
    cut = with_overrides(type(suite)(name="x", entries=(listed,)), kwargs={}, n=2, k=None, seed=None, turns=None)
    assert cut.entries[0].seeds == (9, 4)


@given(
    st.lists(st.integers(0, 2**40), min_size=1, max_size=5, unique=True),
    st.integers(1, 4),
    st.none() | st.integers(1, 9),
)
def test_json_and_back(seeds: list[int], k: int, turns: int | None) -> None:
    one = suite_entry(GAME, seeds=seeds, k=k, turns=turns, kwargs={"max_turns": 3}, sampling={"temperature": 0.5})
    assert SuiteEntry.from_json(one.to_json()) == one


def test_attempts_share_only_the_seed_of_their_task() -> None:
    tasks = suite_entry(GAME, n=3, k=2, seed=10, turns=5).tasks(4)
    assert [(t.seed, t.group, t.member) for t in tasks] == [
        (10, 0, 0), (10, 0, 1), (11, 1, 0), (11, 1, 1), (12, 2, 0), (12, 2, 1),
    ]  # fmt: skip
    assert {t.options["horizon"] for t in tasks} == {5}
    assert {t.meta["entry"] for t in tasks} == {4}


def test_every_row_of_a_data_set_is_played_once(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "data.jsonl", math_rows(12))
    entry = suite_entry("math:File-v0", kwargs={"path": str(path), "question": "problem"}, k=2)
    assert entry.every_task
    done = asyncio.run(
        run_evaluation(Suite(name="rows", entries=(entry,)), EvaluatedAgent("expert"), tmp_path / "run", command=[])
    )
    [row] = done.summary["table"]["envs"]
    assert row["episodes"] == 24
    assert sorted(done.outcomes) == [(0, seed, member) for seed in range(12) for member in range(2)]
    with palestra.make("math:File-v0", **entry.kwargs) as env:
        assert sorted(env.reset(seed=seed)[1]["index"] for seed in range(12)) == list(range(12))


@pytest.mark.parametrize(
    ("settings", "seeds"),
    [({"n": 5}, range(5)), ({"n": 12}, range(12)), ({"n": "all", "seed": 30}, range(24, 36)), ({}, range(12))],
)
def test_number_of_tasks_of_a_data_set(settings: dict[str, Any], seeds: range, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "data.jsonl", math_rows(12))
    kwargs = {"path": str(path), "question": "problem"}
    plain = Suite(name="x", entries=(suite_entry("math:File-v0", kwargs=kwargs),))
    none = {"n": None, "k": None, "seed": None, "turns": None}
    for suite in (
        Suite(name="x", entries=(suite_entry("math:File-v0", kwargs=kwargs, **settings),)),
        with_overrides(plain, kwargs={}, **{**none, **settings}),
    ):
        assert resolve_tasks(suite).entries[0].seeds == tuple(seeds)


@pytest.mark.parametrize(
    ("env", "settings", "words"),
    [
        ("math:File-v0", {"n": 13}, "has 12 tasks, fewer than n = 13. To play each task once, use -n all"),
        ("math:File-v0", {"n": 5, "seed": 10}, "may select a task twice.* Use --seed 0, or -n all"),
        ("math:File-v0", {"seeds": [30], "kwargs": {"shuffle": False}}, "has rows 0 to 11, but row 30 is requested"),
        (GAME, {"n": "all"}, "a new task for every seed.* -n 100"),
        ("webshop:test-text", {"n": 501}, "has 500 tasks, fewer than n = 501"),
    ],
)
def test_no_task_is_played_twice(env: str, settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "data.jsonl", math_rows(12))
    kwargs = {"path": str(path), "question": "problem"} if env == "math:File-v0" else {}
    settings = {**settings, "kwargs": {**kwargs, **settings.get("kwargs", {})}}
    with pytest.raises(BadValue, match=words):
        resolve_tasks(Suite(name="x", entries=(suite_entry(env, **settings),)))


def test_seeds_of_a_data_set_without_a_known_size_are_kept(request: pytest.FixtureRequest) -> None:
    class Endless(palestra.Env):
        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return "?", {"seed": self.start_episode(seed)}

        def step(self, action: str) -> Any:
            return "!", 1.0, True, False, {"success": True}

    palestra.register("test:Endless-v0", Endless, needs_data=True)
    request.addfinalizer(lambda: unregister("test:Endless-v0"))
    explicit = Suite(name="x", entries=(suite_entry("test:Endless-v0", n=7, seed=3),))
    assert resolve_tasks(explicit).entries[0].seeds == tuple(range(3, 10))
    default = Suite(name="x", entries=(suite_entry("test:Endless-v0"),))
    assert resolve_tasks(default).entries[0].seeds == tuple(range(100))
