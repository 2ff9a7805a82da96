"""`qa:World-v0-*`: the questions as environments, with the search tool over their own pages."""

from __future__ import annotations

from pathlib import Path

import pytest

import palestra
from palestra.core import Env
from palestra.envs.qa.world import WorldQuestions
from palestra.envs.world import Question, Solver
from palestra.errors import BadValue
from palestra.tools.search import tool as search_tool


def question_of(env: Env) -> Question:
    task = env.unwrapped
    assert isinstance(task, WorldQuestions)
    return task.question


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALESTRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(search_tool, "_opened", {})
    return tmp_path / "cache"


@pytest.mark.parametrize("kind", ["3hop", "mixed"])
def test_the_solver_solves_it_through_the_tool_of_the_environment(kind: str) -> None:
    with palestra.make(f"qa:World-v0-{kind}", tools=["search"], pages=600) as env:
        for seed in range(15):
            env.reset(seed=seed)

            def search(query: str) -> str:
                step = env.step(f"<search>{query}</search>")
                assert step.info["use_tool"]
                return str(step.observation)

            answer = Solver(search).answer(question_of(env).text)
            step = env.step(f"I looked it up: \\boxed{{{answer}}}")
            assert step.reward == 1.0
            assert step.info["success"]


def test_the_index_is_kept_for_other_processes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def searched() -> str:
        with palestra.make("qa:World-v0-1hop", tools=["search"], pages=200) as env:
            env.reset(seed=1)
            return str(env.step("<search>university founded</search>").observation)

    first = searched()
    kept = list((cache / "search").iterdir())
    assert len(kept) == 1
    monkeypatch.setattr(search_tool, "_opened", {})  # as a fresh process begins
    stamp = (kept[0] / "palestra-search.json").stat().st_mtime_ns
    assert searched() == first
    assert (kept[0] / "palestra-search.json").stat().st_mtime_ns == stamp


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PALESTRA_CACHE", str(tmp_path / "file"))
    with palestra.make("qa:World-v0-1hop", tools=["search"], pages=150) as env:
        env.reset(seed=1)
        assert "Doc 1" in str(env.step("<search>river</search>").observation)


def test_an_episode_with_its_search_moves_to_another_process() -> None:
    with palestra.make("qa:World-v0-2hop", tools=["search"], pages=150) as env:
        env.reset(seed=1)
        moved, twin = Env.restore(env.snapshot()), env.fork()
        seen = [one.step("<search>river</search>").observation for one in (env, moved, twin)]
        assert seen[0] == seen[1] == seen[2]
        assert moved.step(str(moved.expert_action())).info["success"]


def test_other_worlds_have_other_pages() -> None:
    seen = set()
    for world_seed in (0, 1):
        with palestra.make("qa:World-v0-1hop", tools=["search"], pages=150, world_seed=world_seed) as env:
            env.reset(seed=1)
            seen.add(str(env.step("<search>river</search>").observation))
    assert len(seen) == 2


def test_a_source_of_ones_own_wins_over_the_corpus(tmp_path: Path) -> None:
    from palestra.tools.search import Index, Passage

    Index.build([Passage(id="1", title="Ants", text="Ants carry leaves.")], tmp_path / "ants.index")
    with palestra.make("qa:World-v0-1hop", tools=[f"search:{tmp_path / 'ants.index'}"], pages=150) as env:
        env.reset(seed=1)
        assert "Ants carry leaves" in str(env.step("<search>ants</search>").observation)


def test_without_tools_the_question_stands_alone() -> None:
    env = palestra.make("qa:World-v0-2hop")
    prompt = str(env.reset(seed=3)[0])
    assert question_of(env).text in prompt
    assert "unknown" in prompt
    assert "search" not in prompt
    assert question_of(env).answer not in prompt.replace("3 May 1712", "")
    step = env.step(f"\\boxed{{ the {question_of(env).answer.upper()}. }}")  # as people write
    assert step.info["success"]


def test_an_index_asks_the_same_question_whatever_the_seed() -> None:
    env = palestra.make("qa:World-v0-mixed")
    by_index = {}
    for index in range(12):
        by_index[index] = env.reset(seed=index, options={"index": index})[0]
        assert env.reset(seed=99, options={"index": index})[0] == by_index[index]
    assert len(set(by_index.values())) == 12
    with pytest.raises(BadValue, match="index"):
        env.reset(options={"index": -1})


def test_saying_unknown_always_earns_half_of_the_unanswerable_ones() -> None:
    env = palestra.make("qa:World-v0-unanswerable")
    solved = 0
    for seed in range(200):
        env.reset(seed=seed)
        solved += env.step("\\boxed{Unknown}").info["success"]
    assert 70 <= solved <= 130


def test_a_kind_that_is_not_there_is_refused() -> None:
    with pytest.raises(BadValue, match="mixed"):
        palestra.make("qa:World-v0-1hop", kind="9hop")
