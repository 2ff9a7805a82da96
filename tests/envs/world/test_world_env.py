"""Test the `qa:World-v0-*` environments, which ask questions about a world and offer a search over its pages."""

from __future__ import annotations

from collections import Counter
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
    monkeypatch.setattr(search_tool, "_indexes", {})
    return tmp_path / "cache"


@pytest.mark.parametrize("kind", ["3hop", "mixed"])
def test_the_solver_succeeds_with_the_environments_search_tool(kind: str) -> None:
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


def test_the_index_is_cached_for_other_processes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def searched() -> str:
        with palestra.make("qa:World-v0-1hop", tools=["search"], pages=200) as env:
            env.reset(seed=1)
            return str(env.step("<search>university founded</search>").observation)

    first = searched()
    indexes = list((cache / "search").iterdir())
    assert len(indexes) == 1
    monkeypatch.setattr(search_tool, "_indexes", {})  # a new process has no index in memory
    stamp = (indexes[0] / "palestra-search.json").stat().st_mtime_ns
    assert searched() == first
    assert (indexes[0] / "palestra-search.json").stat().st_mtime_ns == stamp


def test_an_unwritable_cache_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PALESTRA_CACHE", str(tmp_path / "file"))
    with palestra.make("qa:World-v0-1hop", tools=["search"], pages=150) as env:
        env.reset(seed=1)
        assert "Doc 1" in str(env.step("<search>river</search>").observation)


def test_an_episode_with_search_can_be_restored() -> None:
    with palestra.make("qa:World-v0-2hop", tools=["search"], pages=150) as env:
        env.reset(seed=1)
        restored, fork = Env.restore(env.snapshot()), env.fork()
        seen = [copy.step("<search>river</search>").observation for copy in (env, restored, fork)]
        assert seen[0] == seen[1] == seen[2]
        assert restored.step(str(restored.expert_action())).info["success"]


def test_different_worlds_have_different_pages() -> None:
    seen = set()
    for world_seed in (0, 1):
        with palestra.make("qa:World-v0-1hop", tools=["search"], pages=150, world_seed=world_seed) as env:
            env.reset(seed=1)
            seen.add(str(env.step("<search>river</search>").observation))
    assert len(seen) == 2


def test_an_explicit_index_replaces_the_corpus(tmp_path: Path) -> None:
    from palestra.tools.search import Index, Passage

    Index.build([Passage(id="1", title="Ants", text="Ants carry leaves.")], tmp_path / "ants.index")
    with palestra.make("qa:World-v0-1hop", tools=[f"search:{tmp_path / 'ants.index'}"], pages=150) as env:
        env.reset(seed=1)
        assert "Ants carry leaves" in str(env.step("<search>ants</search>").observation)


def test_without_tools_the_prompt_is_the_question_only() -> None:
    env = palestra.make("qa:World-v0-2hop")
    prompt = str(env.reset(seed=3)[0])
    assert question_of(env).text in prompt
    assert "unknown" in prompt
    assert "search" not in prompt
    assert question_of(env).answer not in prompt.replace("3 May 1712", "")
    step = env.step(f"\\boxed{{ the {question_of(env).answer.upper()}. }}")  # spelled differently
    assert step.info["success"]


def test_an_index_selects_a_question_for_any_seed() -> None:
    env = palestra.make("qa:World-v0-mixed")
    by_index = {}
    for index in range(12):
        by_index[index] = env.reset(seed=index, options={"index": index})[0]
        assert env.reset(seed=99, options={"index": index})[0] == by_index[index]
    assert len(set(by_index.values())) == 12
    with pytest.raises(BadValue, match="index"):
        env.reset(options={"index": -1})


def test_always_answering_unknown_solves_less_than_a_third_of_the_unanswerable_questions() -> None:
    env = palestra.make("qa:World-v0-unanswerable")
    solved = 0
    for seed in range(200):
        env.reset(seed=seed)
        solved += env.step("\\boxed{Unknown}").info["success"]
    assert 40 <= solved <= 80


def test_relation_and_hops_do_not_reveal_unanswerable_questions() -> None:
    env = WorldQuestions(kind="unanswerable")
    forms: dict[tuple[str, int], list[bool]] = {}
    for seed in range(1500):
        env.reset(seed=seed)
        proof = env.question.proof
        forms.setdefault((proof[-1].relation, len(proof)), []).append(env.question.answerable)
    frequent = [answerable for answerable in forms.values() if len(answerable) >= 30]
    assert len(frequent) > 5
    assert all(0.4 < sum(answerable) / len(answerable) < 0.95 for answerable in frequent)


def test_no_count_is_the_answer_to_most_counting_questions() -> None:
    env = WorldQuestions(kind="count")
    answers: Counter[str] = Counter()
    for seed in range(300):
        env.reset(seed=seed)
        answers[env.item.answer] += 1
    assert answers.most_common(1)[0][1] < 90


def test_an_unknown_kind_raises() -> None:
    with pytest.raises(BadValue, match="mixed"):
        palestra.make("qa:World-v0-1hop", kind="9hop")
