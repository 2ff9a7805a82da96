"""Test deep search over the seven question sets and custom files, with an index or a server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra.envs.deep_search.data import DataSearch
from palestra.envs.deep_search.env import PART_CHARS
from palestra.errors import BadValue, DataMissing
from palestra.tools.search import Index, Passage, SearchTool
from tests.conformance.variants import PEEKS
from tests.envs.tasks.data_files import write_jsonl, write_parquet
from tests.tools.test_search_serve import start_server, stop_server

SETS = {
    "NQ": "nq",
    "TriviaQA": "tq",
    "PopQA": "popqa",
    "HotpotQA": "hotpotqa",
    "2Wiki": "2wiki",
    "Musique": "musique",
    "Bamboogle": "bamboogle",
}
ROWS = [{"question": f"Who wrote book {n}?", "answer": [f"Author {n}", f"A. {n}"]} for n in range(9)]
LONG = "The harbor of Brill has many piers, and each of them has a name. " * 40


def passages() -> Iterator[Passage]:
    """Yield pages of several consecutive passages, as in real corpora. The last passage has no title."""
    for n in range(9):
        yield Passage(id=str(10 * n), title=f"Book {n}", text=f"Book {n} has a red cover and {n} chapters.")
        yield Passage(id=str(10 * n + 1), title=f"Book {n}", text=f"It was written by Author {n}.")
    for part in range(5):
        yield Passage(id=str(100 + part), title="Brill", text=f"Chapter {part}. {LONG}")
    yield Passage(id="note", title="", text="An untitled note about zebras.")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Index.build(passages(), tmp_path_factory.mktemp("texts") / "books.index").folder


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_jsonl(tmp_path_factory.mktemp("rows") / "rows.jsonl", ROWS)


@pytest.fixture(scope="module")
def server(index: Path) -> Iterator[str]:
    process, url = start_server(str(index))
    yield url
    stop_server(process)


def make_env(**kwargs: Any) -> DataSearch:
    env = palestra.make("search:File-v0", **kwargs)
    assert isinstance(env, DataSearch)
    return env


@pytest.mark.parametrize("name", SETS)
def test_every_question_set_uses_its_rows(name: str, index: Path, tmp_path: Path) -> None:
    write_parquet(tmp_path / "axon-rl/search-eval" / "data" / f"{SETS[name]}-00000-of-00001.parquet", ROWS)
    with palestra.make(f"search:{name}", mirror=tmp_path, index=index) as env:
        prompt, info = env.reset(seed=3)
        assert f"Question: Who wrote book {info['index']}?" in str(prompt)
        assert info["epoch"] == 0
        results = str(env.step(f"<search>book {info['index']} author</search>").observation)
        assert f"It was written by Author {info['index']}." in results
        step = env.step(f"<answer>a. {info['index']}</answer>")
        assert (step.reward, step.info["exact_match"]) == (1.0, True)


def test_the_ids() -> None:
    data = [env_id for env_id in palestra.list_envs("search") if palestra.get_spec(env_id).needs_data]
    assert data == [f"search:{name}" for name in SETS] + ["search:File-v0"]


def test_conformance(index: Path, rows: Path) -> None:
    kwargs = {"path": str(rows), "index": str(index)}
    report = palestra.check_env("search:File-v0", kwargs=kwargs, episodes=9, seconds=2.0)
    assert len(report.passed) == 8
    assert report.notes == [PEEKS]
    assert report.expert is not None
    assert report.expert.value == 1.0


def test_rows_are_visited_once_per_epoch_and_repeated_by_seed_or_index(index: Path, rows: Path) -> None:
    env = make_env(path=str(rows), index=index)
    first = [env.reset(seed=seed)[1]["index"] for seed in range(9)]
    assert sorted(first) == list(range(9))
    env.reset(seed=0)
    assert [env.reset()[1]["index"] for _ in range(8)] == first[1:]
    prompt, info = env.reset(options={"index": 4})
    assert "Who wrote book 4?" in str(prompt)
    assert env.reset(seed=info["seed"])[0] == prompt


def test_an_index_is_required(index: Path, rows: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PALESTRA_SEARCH", raising=False)
    with pytest.raises(DataMissing, match="palestra search-index"):
        make_env(path=str(rows))
    with pytest.raises(BadValue):
        make_env(path=str(rows), index=tmp_path / "nowhere")
    monkeypatch.setenv("PALESTRA_SEARCH", str(index))
    env = make_env(path=str(rows))
    env.reset(seed=1)
    assert "Doc 1(Title: Book" in str(env.step("<search>red cover</search>").observation)


def test_a_threshold_accepts_similar_answers(index: Path, rows: Path) -> None:
    env = make_env(path=str(rows), index=index, threshold=0.5)
    info = env.reset(seed=1)[1]
    step = env.step(f"<answer>Author {info['index']} it was</answer>")
    assert (step.reward, step.info["success"], step.info["exact_match"]) == (1.0, True, False)
    assert 0.5 <= step.info["f1"] < 1


def opened(env: DataSearch, title: str) -> str:
    return str(env.step(f"<open>{title}</open>").observation)


def test_a_page_has_all_passages_of_its_title(index: Path, rows: Path) -> None:
    env = make_env(path=str(rows), index=index, topk=1)
    env.reset(seed=1)
    assert "Author" not in str(env.step("<search>book 3 red cover chapters</search>").observation)
    title = next(iter(env._hits))
    number = title.split()[1]
    page = opened(env, title)
    assert f"{title} has a red cover and {number} chapters.\nIt was written by Author {number}.\n" in page


def test_a_long_page_is_shown_in_parts(index: Path, rows: Path) -> None:
    env = make_env(path=str(rows), index=index)
    env.reset(seed=1)
    env.step("<search>harbor piers</search>")
    whole = "\n".join(passage.text for passage in passages() if passage.title == "Brill")
    parts = [opened(env, "Brill"), opened(env, "brill #2"), opened(env, "Brill#3"), opened(env, "Brill#99")]
    assert "[part 1 of 3; <open>Brill#2</open> shows the next part]" in parts[0]
    assert "[part 3 of 3]" in parts[2]
    assert parts[3].split("</information>")[0] == parts[2].split("</information>")[0]  # opens the last part
    for number, part in enumerate(parts[:3]):
        assert whole[number * PART_CHARS : (number + 1) * PART_CHARS] in part


def test_a_page_without_title_is_named_by_its_id(index: Path, rows: Path) -> None:
    env = make_env(path=str(rows), index=index)
    env.reset(seed=1)
    assert "Doc 1(Title: note)" in str(env.step("<search>zebras</search>").observation)
    assert "An untitled note about zebras." in opened(env, "note")


def test_a_server_gives_the_same_results_as_the_index(index: Path, rows: Path, server: str) -> None:
    here, there, loop = (make_env(path=str(rows), index=source) for source in (index, server, server))
    for env in (here, there, loop):
        env.reset(seed=2)
    for action in ("<search>book 3</search>", "<open>Book 3</open>", "<search>zebras</search>", "<open>note</open>"):
        shown = here.step(action)
        assert there.step(action) == shown
        assert asyncio.run(loop.astep(action)) == shown


def test_a_custom_search_tool(rows: Path) -> None:
    env = make_env(path=str(rows), index=SearchTool(Index.build(passages()), topk=2))
    prompt, _ = env.reset(seed=1)
    assert "up to 2 passages" in str(prompt)
    assert str(env.step("<search>book</search>").observation).count("Doc ") == 2


def test_a_wrong_answer_may_be_followed_by_another(index: Path, rows: Path) -> None:
    env = make_env(path=str(rows), index=str(index), max_answers=None, max_turns=4)
    prompt, info = env.reset(seed=0)
    assert "you may answer again" in str(prompt)
    for _ in range(2):
        step = env.step("<answer>Nobody</answer>")
        assert not step.done
        assert step.reward == 0.0
        assert "answer" not in step.info
    assert env.step(f"<answer>Author {info['index']}</answer>").info["success"]

    limited = make_env(path=str(rows), index=str(index), max_answers=2)
    assert "You have 2 attempts." in str(limited.reset(seed=0)[0])
    assert not limited.step("<answer>Nobody</answer>").done
    assert limited.step("<answer>Nobody</answer>").info["ending"] == "wrong"
    with pytest.raises(BadValue, match="`max_answers` must be"):
        make_env(path=str(rows), index=str(index), max_answers=0)
