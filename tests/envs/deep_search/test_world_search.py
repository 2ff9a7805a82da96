"""`search:World-v0-*`: episodes, budgets, refusals, failures, and why the expert needs no luck."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra
from palestra.core import Env
from palestra.envs.deep_search.env import PART
from palestra.envs.deep_search.world import WorldSearch
from palestra.envs.world import QUESTIONS, World, WorldCorpus, articles, facts_of
from palestra.envs.world.phrases import COUNTS
from palestra.envs.world.solver import queries
from palestra.errors import BadValue, EpisodeOver, ToolFailed, UnknownKeyword
from palestra.tools.search import Index, Passage, SearchTool
from palestra.types import Step

KINDS = [*QUESTIONS, "mixed"]


def made(kind: str = "2hop", **kwargs: Any) -> WorldSearch:
    env = palestra.make(f"search:World-v0-{kind}", **kwargs)
    assert isinstance(env, WorldSearch)
    return env


def played(env: Env) -> list[tuple[str, Step]]:
    turns: list[tuple[str, Step]] = []
    while not turns or not turns[-1][1].done:
        action = env.expert_action()
        assert action is not None
        turns.append((action, env.step(action)))
    return turns


@pytest.fixture
def env() -> WorldSearch:
    made_env = made()
    made_env.reset(seed=4)
    return made_env


# Why the expert's rate is 1 for every seed: nothing it does can fail in this world.


def test_every_page_is_found_by_its_title_and_read_whole() -> None:
    tool = SearchTool(WorldCorpus(seed=0, pages=2000), topk=made().tool.topk)
    for article in articles(World(0, 2000)):
        found = {hit.passage.title: hit for hit in tool.hits(queries(article.title)[0])}
        assert article.title in found
        assert len(article.text) < PART
        if article.page % 50 == 0:
            assert [passage.text for passage in tool.page(found[article.title])] == [article.text]


def test_the_budgets_hold_what_the_longest_question_takes() -> None:
    world = World(0, 2000)
    lists = [
        len(facts_of(world, page).get(count.items, ()))
        for count in COUNTS
        if count.test
        for page in range(world.pages)
        if world.kind(page) == count.kind
    ]
    pages = {"1hop": 1, "2hop": 2, "3hop": 3, "4hop": 4, "compare": 4, "count": 2 + max(lists), "unanswerable": 3}
    pages["mixed"] = max(pages.values())
    for kind, many in pages.items():
        spec = palestra.get_spec(f"search:World-v0-{kind}")
        assert spec.kwargs["max_searches"] >= many
        assert spec.kwargs["max_turns"] >= 2 * many + 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_expert_follows_the_pages(kind: str) -> None:
    env = made(kind)
    for seed in range(1000, 1020):
        env.reset(seed=seed)
        turns = played(env)
        assert turns[-1][1].reward == 1.0
        assert turns[-1][1].info["exact_match"]
        assert not any(step.info.get("invalid") for _, step in turns)
        read = {action for action, _ in turns if action.startswith("<open>")}
        if env.question.answerable:
            assert {f"<open>{fact.title}</open>" for fact in env.question.proof if fact.page >= 0} >= read


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(0, 12))
def test_the_expert_goes_on_from_wherever_it_is(seed: int, turns: int) -> None:
    env = made("mixed", max_searches=60, max_turns=120)
    env.reset(seed=seed)
    for _ in range(turns):
        action = env.sample_random_action()
        if not action.startswith("<answer>"):
            env.step(action)
    assert played(env)[-1][1].info["success"]


def test_the_expert_of_another_world() -> None:
    env = made("3hop", pages=400, world_seed=9)
    for seed in range(10):
        env.reset(seed=seed)
        assert played(env)[-1][1].info["success"]


# Turns


def test_an_episode_by_hand(env: WorldSearch) -> None:
    title = env.question.proof[0].title
    first = env.step(f"<think>Its page first.</think><search>{title}</search>")
    assert str(first.observation).startswith("<information>\nDoc 1(Title: ")
    assert " ...\n" in first.observation
    assert "You have 11 turns and 4 searches left." in first.observation
    second = env.step(f"<open>  {title.upper()} </open>")
    page = next(article for article in articles(env.questions.world) if article.title == title)
    assert page.text in second.observation
    assert page.text not in first.observation  # a snippet is less than a page
    assert second.info == {"turn": 2, "action": "open", "searches": 1, "opens": 1}
    last = env.step(f"<answer>the {env.question.answer.upper()}!</answer>")
    assert (last.reward, last.terminated, last.info["ending"]) == (1.0, True, "solved")
    with pytest.raises(EpisodeOver):
        env.step("<search>more</search>")


def test_there_is_one_answer(env: WorldSearch) -> None:
    step = env.step("<answer>Nobody at all</answer>")
    assert (step.reward, step.terminated, step.info["success"], step.info["ending"]) == (0.0, True, False, "wrong")
    assert step.info["answer"] == env.question.answer
    assert step.info["f1"] == 0.0


def test_f1_is_told_and_paid_where_wanted() -> None:
    for pays, reward in (("exact", 0.0), ("f1", 2 / 3)):
        env = made("1hop", pays=pays)
        seed = next(s for s in range(100) if env.reset(seed=s) and env.question.answer.startswith("University of "))
        env.reset(seed=seed)
        step = env.step(f"<answer>{env.question.answer.removeprefix('University of ')} of nowhere</answer>")
        assert step.info["f1"] == pytest.approx(2 / 3)
        assert step.reward == pytest.approx(reward)
        assert not step.info["success"]
        assert not step.info["exact_match"]


def test_searches_beyond_the_budget_are_refused(env: WorldSearch) -> None:
    for _ in range(5):
        assert "invalid" not in env.step("<search>river</search>").info
    step = env.step("<search>mountain</search>")
    assert step.info["invalid"] == "rule"
    assert "No search is left of 5" in step.observation
    assert "Doc 1" not in step.observation
    assert step.info["searches"] == 5
    assert "Doc 1" not in env.step("<search>mountain</search>").observation
    assert "invalid" not in env.step(f"<open>{next(iter(env._found))}</open>").info  # reading goes on


def test_turns_run_out(env: WorldSearch) -> None:
    steps = [env.step("<search>river</search>") for _ in range(12)]
    assert [step.done for step in steps] == [False] * 11 + [True]
    assert steps[-1].info["ending"] == "out_of_turns"
    assert steps[-1].reward == 0.0


@pytest.mark.parametrize(
    ("action", "invalid", "said"),
    [
        ("I think it is a river.", "format", "<search>words</search>"),
        (r"\boxed{A river}", "format", "<answer>"),
        ("<search> </search>", "rule", "nothing between <search>"),
        ("<answer></answer>", "rule", "nothing between <answer>"),
        ("<open>Nowhere</open>", "rule", "Search first"),
    ],
)
def test_bad_actions_cost_a_turn_and_are_answered(env: WorldSearch, action: str, invalid: str, said: str) -> None:
    step = env.step(action)
    assert (step.info["invalid"], step.done, step.reward) == (invalid, False, 0.0)
    assert said in step.observation
    assert env.turn == 1


def test_bad_actions_end_it_where_wanted() -> None:
    env = made(error_reward=-0.1, stop_when_error=True, max_searches=1)
    prompt, _ = env.reset(seed=4)
    assert "a further search is refused and ends the episode" in str(prompt)
    assert "at most 1 search among them" in str(prompt)
    env.step("<search>river</search>")
    step = env.step("<search>river</search>")
    assert (step.done, step.reward, step.info["ending"]) == (True, -0.1, "lost")
    assert "left." not in step.observation


def test_only_pages_that_were_found_can_be_opened(env: WorldSearch) -> None:
    env.step("<search>Battle of Guhiaburg</search>")
    step = env.step("<open>Nowhere At All</open>")
    assert step.info["invalid"] == "rule"
    assert "Found so far: Battle of Guhiaburg; " in step.observation


@pytest.mark.parametrize("text", ["\ud800", "a" * 1_000_000, "\x00", "the of and", "%s{0}", "#", "#9"])
@pytest.mark.parametrize("kind", ["search", "open"])
def test_strange_queries_and_titles_are_answered(env: WorldSearch, kind: str, text: str) -> None:
    env.step("<search>river</search>")
    step = env.step(f"<{kind}>{text}</{kind}>")
    assert str(step.observation).startswith("<information>")
    assert len(step.observation) < 10_000


# Failures, forks, async


def test_a_server_that_is_gone_is_no_fault_of_the_agent() -> None:
    env = made(index="http://127.0.0.1:9/retrieve")
    env.reset(seed=1)
    with pytest.raises(ToolFailed, match="search server"):
        env.step("<search>river</search>")
    with pytest.raises(ToolFailed, match="search server"):
        asyncio.run(env.astep("<search>river</search>"))
    assert (env.turn, env.searches, env.ending) == (0, 0, None)
    assert env.step(f"<answer>{env.question.answer}</answer>").reward == 1.0


def test_an_index_that_is_gone_is_no_fault_of_the_agent(tmp_path: Path) -> None:
    folder = tmp_path / "ants.index"
    Index.build([Passage(id="1", title="Ants", text="Ants carry leaves.")], folder)
    env = made(index=folder)
    env.reset(seed=1)
    shutil.rmtree(folder)
    with pytest.raises(ToolFailed, match="ants.index"):
        env.step("<search>ants</search>")
    assert (env.turn, env.searches) == (0, 0)
    Index.build([Passage(id="1", title="Ants", text="Ants carry leaves.")], folder)
    assert "Ants carry leaves." in env.step("<search>ants</search>").observation


def test_async_steps_show_the_same() -> None:
    one, other = made("3hop"), made("3hop")
    assert one.reset(seed=5) == asyncio.run(other.areset(seed=5))
    while one.ending is None:
        action = one.expert_action()
        assert action is not None
        assert one.step(action) == asyncio.run(other.astep(action))
    with pytest.raises(EpisodeOver):
        asyncio.run(other.astep("<search>x</search>"))


def test_forks_share_the_index_and_nothing_else(env: WorldSearch) -> None:
    env.step("<search>Battle of Guhiaburg</search>")
    twin = env.fork()
    assert twin.tool is env.tool
    before = env.render()
    assert twin.render() == before
    twin.step("<open>Guhiaburg</open>")
    twin.step("<search>river</search>")
    twin.reset(seed=77)
    assert env.render() == before
    assert played(env)[-1][1].info["success"]


def test_the_view_for_people(env: WorldSearch) -> None:
    played(env)
    view = env.render()
    assert isinstance(view, str)
    assert env.question.text in view
    assert "Searches (1 of 5): Battle of Guhiaburg" in view
    assert "Pages read: Battle of Guhiaburg; Guhiaburg" in view
    assert env.render("image") is None


# Making


def test_seeds_options_and_first_seeds() -> None:
    env = made("mixed", seed=11)
    first = env.reset()
    assert first == made("mixed").reset(seed=11)
    assert first[1]["max_searches"] == 14
    assert env.reset(seed=1, options={"index": 3})[0] == env.reset(seed=2, options={"index": 3})[0]
    with pytest.raises(BadValue, match="nonsense"):
        env.reset(options={"nonsense": 1})


def test_whole_passages_where_no_snippets_are_wanted() -> None:
    env = made(snippet_words=None, topk=1)
    env.reset(seed=4)
    shown = env.step("<search>Battle of Guhiaburg</search>").observation
    assert "Its consequences were felt for a generation." in shown
    assert "Doc 2" not in shown


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"max_searches": -1}, "max_searches"),
        ({"max_searches": True}, "max_searches"),
        ({"max_turns": 0}, "max_turns"),
        ({"snippet_words": 0}, "snippet_words"),
        ({"topk": 0}, "topk"),
        ({"pays": "bleu"}, "exact, f1"),
        ({"kind": "9hop"}, "4hop"),
    ],
)
def test_wrong_values_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(BadValue, match=said):
        WorldSearch(**wrong)


def test_unknown_keywords_are_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownKeyword, match="max_searches"):
        made(max_search=3)
