"""Test the episodes, budgets, invalid actions, failures and expert of `search:World-v0-*`."""

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
from palestra.envs.deep_search.env import PART_CHARS
from palestra.envs.deep_search.world import WorldSearch
from palestra.envs.world import QUESTIONS, World, WorldCorpus, articles, facts_of
from palestra.envs.world.phrases import COUNTS
from palestra.envs.world.solver import queries
from palestra.errors import BadValue, EpisodeOver, ToolFailed, UnknownKeyword
from palestra.tools.search import Index, Passage, SearchTool
from palestra.types import Step

KINDS = [*QUESTIONS, "mixed"]


def make_env(kind: str = "2hop", **kwargs: Any) -> WorldSearch:
    env = palestra.make(f"search:World-v0-{kind}", **kwargs)
    assert isinstance(env, WorldSearch)
    return env


def play_expert(env: Env) -> list[tuple[str, Step]]:
    turns: list[tuple[str, Step]] = []
    while not turns or not turns[-1][1].done:
        action = env.expert_action()
        assert action is not None
        turns.append((action, env.step(action)))
    return turns


@pytest.fixture
def env() -> WorldSearch:
    env = make_env()
    env.reset(seed=4)
    return env


# The expert succeeds on every seed because every page can be found and read.


def test_every_page_is_found_by_its_title_and_fits_one_part() -> None:
    tool = SearchTool(WorldCorpus(seed=0, pages=2000), topk=make_env().tool.topk)
    for article in articles(World(0, 2000)):
        hits = {hit.passage.title: hit for hit in tool.hits(queries(article.title)[0])}
        assert article.title in hits
        assert len(article.text) < PART_CHARS
        if article.page % 50 == 0:
            assert [passage.text for passage in tool.page(hits[article.title])] == [article.text]


def test_budgets_suffice_for_the_longest_question() -> None:
    world = World(0, 2000)
    lists = [
        len(facts_of(world, page).get(template.items, ()))
        for template in COUNTS
        if template.test
        for page in range(world.pages)
        if world.kind(page) == template.kind
    ]
    pages = {"1hop": 1, "2hop": 2, "3hop": 3, "4hop": 4, "compare": 4, "count": 2 + max(lists), "unanswerable": 3}
    pages["mixed"] = max(pages.values())
    for kind, count in pages.items():
        spec = palestra.get_spec(f"search:World-v0-{kind}")
        assert spec.kwargs["max_searches"] >= count
        assert spec.kwargs["max_turns"] >= 2 * count + 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_expert_follows_the_pages(kind: str) -> None:
    env = make_env(kind)
    for seed in range(1000, 1020):
        env.reset(seed=seed)
        turns = play_expert(env)
        assert turns[-1][1].reward == 1.0
        assert turns[-1][1].info["exact_match"]
        assert not any(step.info.get("invalid") for _, step in turns)
        read = {action for action, _ in turns if action.startswith("<open>")}
        if env.question.answerable:
            assert {f"<open>{fact.title}</open>" for fact in env.question.proof if fact.page >= 0} >= read


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.integers(0, 12))
def test_the_expert_continues_from_any_state(seed: int, turns: int) -> None:
    env = make_env("mixed", max_searches=60, max_turns=120)
    env.reset(seed=seed)
    for _ in range(turns):
        action = env.sample_random_action()
        if not action.startswith("<answer>"):
            env.step(action)
    assert play_expert(env)[-1][1].info["success"]


def test_the_expert_of_another_world() -> None:
    env = make_env("3hop", pages=400, world_seed=9)
    for seed in range(10):
        env.reset(seed=seed)
        assert play_expert(env)[-1][1].info["success"]


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
    assert page.text not in first.observation  # a snippet is shorter than the page
    assert second.info == {"turn": 2, "action": "open", "searches": 1, "opens": 1}
    last = env.step(f"<answer>the {env.question.answer.upper()}!</answer>")
    assert (last.reward, last.terminated, last.info["ending"]) == (1.0, True, "solved")
    with pytest.raises(EpisodeOver):
        env.step("<search>more</search>")


def test_the_first_answer_ends_the_episode(env: WorldSearch) -> None:
    step = env.step("<answer>Nobody at all</answer>")
    assert (step.reward, step.terminated, step.info["success"], step.info["ending"]) == (0.0, True, False, "wrong")
    assert step.info["answer"] == env.question.answer
    assert step.info["f1"] == 0.0


def test_f1_is_in_info_and_is_the_reward_on_request() -> None:
    for reward_rule, reward in (("exact", 0.0), ("f1", 2 / 3)):
        env = make_env("1hop", reward_rule=reward_rule)
        seed = next(s for s in range(100) if env.reset(seed=s) and env.question.answer.startswith("University of "))
        env.reset(seed=seed)
        step = env.step(f"<answer>{env.question.answer.removeprefix('University of ')} of nowhere</answer>")
        assert step.info["f1"] == pytest.approx(2 / 3)
        assert step.reward == pytest.approx(reward)
        assert not step.info["success"]
        assert not step.info["exact_match"]


def test_searches_beyond_the_budget_are_rejected(env: WorldSearch) -> None:
    for _ in range(5):
        assert "invalid" not in env.step("<search>river</search>").info
    step = env.step("<search>mountain</search>")
    assert step.info["invalid"] == "rule"
    assert "All 5 searches are used" in step.observation
    assert "Doc 1" not in step.observation
    assert step.info["searches"] == 5
    assert "Doc 1" not in env.step("<search>mountain</search>").observation
    assert "invalid" not in env.step(f"<open>{next(iter(env._hits))}</open>").info  # pages can still be opened


def test_turns_run_out(env: WorldSearch) -> None:
    steps = [env.step("<search>river</search>") for _ in range(12)]
    assert [step.done for step in steps] == [False] * 11 + [True]
    assert steps[-1].info["ending"] == "out_of_turns"
    assert steps[-1].reward == 0.0


@pytest.mark.parametrize(
    ("action", "invalid", "message"),
    [
        ("I think it is a river.", "format", "<search>query</search>"),
        ("A river", "format", "<answer>"),
        ("<search> </search>", "rule", "no text between <search>"),
        ("<answer></answer>", "rule", "no text between <answer>"),
        ("<open>Nowhere</open>", "rule", "Search first"),
    ],
)
def test_bad_actions_use_a_turn_and_get_feedback(env: WorldSearch, action: str, invalid: str, message: str) -> None:
    step = env.step(action)
    assert (step.info["invalid"], step.done, step.reward) == (invalid, False, 0.0)
    assert message in step.observation
    assert env.turn == 1


def test_bad_actions_end_the_episode_on_request() -> None:
    env = make_env(error_reward=-0.1, stop_when_error=True, max_searches=1)
    prompt, _ = env.reset(seed=4)
    assert "A further search is rejected and ends the episode" in str(prompt)
    assert "at most 1 search." in str(prompt)
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
def test_unusual_queries_and_titles_get_feedback(env: WorldSearch, kind: str, text: str) -> None:
    env.step("<search>river</search>")
    step = env.step(f"<{kind}>{text}</{kind}>")
    assert str(step.observation).startswith("<information>")
    assert len(step.observation) < 10_000


# Failures, forks and asynchronous steps


def test_a_missing_server_is_an_infrastructure_error() -> None:
    env = make_env(index="http://127.0.0.1:9/retrieve")
    env.reset(seed=1)
    with pytest.raises(ToolFailed, match="search server"):
        env.step("<search>river</search>")
    with pytest.raises(ToolFailed, match="search server"):
        asyncio.run(env.astep("<search>river</search>"))
    assert (env.turn, env.searches, env.ending) == (0, 0, None)
    assert env.step(f"<answer>{env.question.answer}</answer>").reward == 1.0


def test_a_missing_index_is_an_infrastructure_error(tmp_path: Path) -> None:
    folder = tmp_path / "ants.index"
    Index.build([Passage(id="1", title="Ants", text="Ants carry leaves.")], folder)
    env = make_env(index=folder)
    env.reset(seed=1)
    shutil.rmtree(folder)
    with pytest.raises(ToolFailed, match="ants.index"):
        env.step("<search>ants</search>")
    assert (env.turn, env.searches) == (0, 0)
    Index.build([Passage(id="1", title="Ants", text="Ants carry leaves.")], folder)
    assert "Ants carry leaves." in env.step("<search>ants</search>").observation


def test_async_steps_give_the_same_results() -> None:
    one, other = make_env("3hop"), make_env("3hop")
    assert one.reset(seed=5) == asyncio.run(other.areset(seed=5))
    while one.ending is None:
        action = one.expert_action()
        assert action is not None
        assert one.step(action) == asyncio.run(other.astep(action))
    with pytest.raises(EpisodeOver):
        asyncio.run(other.astep("<search>x</search>"))


def test_forks_share_the_index_and_nothing_else(env: WorldSearch) -> None:
    env.step("<search>Battle of Guhiaburg</search>")
    fork = env.fork()
    assert fork.tool is env.tool
    before = env.render()
    assert fork.render() == before
    fork.step("<open>Guhiaburg</open>")
    fork.step("<search>river</search>")
    fork.reset(seed=77)
    assert env.render() == before
    assert play_expert(env)[-1][1].info["success"]


def test_render(env: WorldSearch) -> None:
    play_expert(env)
    view = env.render()
    assert isinstance(view, str)
    assert env.question.text in view
    assert "Searches (1 of 5): Battle of Guhiaburg" in view
    assert "Pages read: Battle of Guhiaburg; Guhiaburg" in view
    assert env.render("image") is None


# Construction


def test_seeds_options_and_first_seeds() -> None:
    env = make_env("mixed", seed=11)
    first = env.reset()
    assert first == make_env("mixed").reset(seed=11)
    assert first[1]["max_searches"] == 14
    assert env.reset(seed=1, options={"index": 3})[0] == env.reset(seed=2, options={"index": 3})[0]
    with pytest.raises(BadValue, match="nonsense"):
        env.reset(options={"nonsense": 1})


def test_whole_passages_without_snippets() -> None:
    env = make_env(snippet_words=None, topk=1)
    env.reset(seed=4)
    shown = env.step("<search>Battle of Guhiaburg</search>").observation
    assert "Its consequences were felt for a generation." in shown
    assert "Doc 2" not in shown


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_searches": -1}, "max_searches"),
        ({"max_searches": True}, "max_searches"),
        ({"max_turns": 0}, "max_turns"),
        ({"snippet_words": 0}, "snippet_words"),
        ({"topk": 0}, "topk"),
        ({"reward_rule": "bleu"}, "exact, f1"),
        ({"kind": "9hop"}, "4hop"),
    ],
)
def test_wrong_arguments_raise(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        WorldSearch(**wrong)


def test_an_unknown_keyword_raises_with_the_nearest() -> None:
    with pytest.raises(UnknownKeyword, match="max_searches"):
        make_env(max_search=3)
