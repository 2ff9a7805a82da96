"""Test that the pages prove the answer to each question and that the solver finds the answer by searching."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.envs.world import (
    QUESTIONS,
    Question,
    Solver,
    World,
    article_of,
    draw_question,
    read,
    write_jsonl,
    write_questions,
)
from palestra.envs.world.phrases import RELATIONS
from palestra.errors import BadValue
from palestra.grading.qa import grade_qa
from palestra.tools.search import Index, SearchTool
from palestra.tools.search import read as read_passages

EACH = 60


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> SearchTool:
    """Return the search tool over the JSONL file that `palestra world` writes."""
    folder = tmp_path_factory.mktemp("world")
    write_jsonl(World(2, 3000), folder / "world.jsonl")
    return SearchTool(Index.build(read_passages([folder / "world.jsonl"]), folder / "index"))


def draw_questions(world: World, kind: str, count: int) -> list[Question]:
    rng = Random(f"{world.seed} {kind}")
    return [draw_question(world, rng, kind) for _ in range(count)]


@pytest.mark.parametrize("kind", QUESTIONS)
def test_the_solver_answers_every_question_by_searching(kind: str, tool: SearchTool) -> None:
    for question in draw_questions(World(2, 3000), kind, EACH):
        solver = Solver(lambda query: str(tool.call(query).text))
        assert solver.answer(question.text) == question.answer, question


def test_a_solver_without_results_answers_unknown() -> None:
    solver = Solver(lambda query: "No passage fits. Try other words.")
    for kind in QUESTIONS:
        assert all(solver.answer(question.text) == "unknown" for question in draw_questions(World(2, 3000), kind, 10))


@given(st.integers(0, 2**32), st.integers(100, 5000), st.sampled_from(QUESTIONS))
@settings(max_examples=80, deadline=None)
def test_the_pages_confirm_every_proof(seed: int, pages: int, kind: str) -> None:
    world = World(seed % 50, pages)
    question = draw_question(world, Random(seed), kind)
    assert question.kind == kind
    assert question.proof
    for fact in question.proof:
        if fact.page < 0:
            continue  # a page that does not exist
        assert world.title(fact.page) == fact.title
        text = article_of(world, fact.page).text
        reading = read(fact.title, text)
        assert reading is not None
        if fact.relation in reading.lists:
            for title in reading.lists[fact.relation]:
                assert title in fact.value
        elif fact.value:
            assert reading.facts[fact.relation] == fact.value
        else:
            assert fact.relation not in reading.facts


@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_a_question_of_n_hops_needs_a_chain_of_n_pages(hops: int) -> None:
    world = World(1, 2000)
    for question in draw_questions(world, f"{hops}hop", 100):
        assert len(question.proof) == len({fact.page for fact in question.proof}) == hops
        for fact, following in zip(question.proof, question.proof[1:], strict=False):
            assert fact.value == following.title
        assert question.proof[0].title in question.text
        assert question.answer == question.proof[-1].value
        assert question.answer not in question.text  # the answer cannot be copied from the question


def test_comparisons_have_two_options_and_no_ties() -> None:
    for question in draw_questions(World(1, 2000), "compare", 100):
        assert question.answer in question.options
        first, second = question.proof[-2:]
        assert first.value != second.value


def test_counts_equal_the_listed_items() -> None:
    questions = draw_questions(World(1, 2000), "count", 200)
    plain = [question for question in questions if question.text.startswith(("How many children", "Into how many"))]
    assert plain
    for question in plain:
        assert int(question.answer) == len(question.proof[-1].value.replace(" and ", ", ").split(", "))
    assert any(len(question.proof) > 2 for question in questions)  # some proofs contain a fact for every list item
    assert len({question.answer for question in questions}) > 4


def test_unanswerable_questions_are_answered_by_no_page() -> None:
    world = World(1, 400)
    titles = {world.title(page) for page in range(world.pages)}
    questions = draw_questions(world, "unanswerable", 200)
    assert {question.answer for question in questions} == {"unknown"}
    missing_pages = [question for question in questions if question.proof[-1].page < 0]
    assert len(missing_pages) > 20
    texts = " ".join(article_of(world, page).text for page in range(world.pages))
    for question in missing_pages:
        assert question.proof[-1].title not in titles
        assert question.proof[-1].title.split()[-1] not in texts


def test_facts_missing_from_a_page_are_on_no_other_page() -> None:
    """Relations between two pages, such as parent and child, are stated on both pages or on neither."""
    world = World(1, 1000)
    readings = [read(a.title, a.text) for a in (article_of(world, page) for page in range(world.pages))]
    by_title = {reading.title: reading for reading in readings if reading is not None}
    for reading in by_title.values():
        for child in reading.lists.get("children", ()):
            assert reading.title in (by_title[child].facts["father"], by_title[child].facts["mother"])
        for native in reading.lists.get("natives", ()):
            assert by_title[native].facts["birth_city"] == reading.title
        if reading.kind == "organisation":
            assert by_title[reading.facts["founder"]].facts["organisation"] == reading.title
        if "spouse" in reading.facts:
            assert by_title[reading.facts["spouse"]].facts["spouse"] == reading.title
        for city in reading.lists.get("cities", ()):
            if reading.kind == "river":
                assert by_title[city].facts["river"] == reading.title
        if "twin" in reading.facts:
            assert by_title[reading.facts["twin"]].facts["twin"] == reading.title


DATES = ["{day} {month} {year}", "{month} {day}, {year}", "{year}-{m:02}-{day:02}", "the {nth} of {month} {year}"]
LENGTHS = ["{n}", "{n:,}", "{n} km", "{n:,} kilometers", "{n} kilometres."]


@pytest.mark.parametrize(("relation", "forms"), [("birth_date", DATES), ("length", LENGTHS)])
def test_common_spellings_of_answers_are_accepted(relation: str, forms: list[str]) -> None:
    from palestra.envs.world.articles import MONTHS
    from palestra.envs.world.facts import facts_of
    from palestra.envs.world.questions import spellings

    world = World(1, 300)
    kind = RELATIONS[relation].kinds[0]
    for number in range(3):
        value = facts_of(world, world.page(kind, number))[relation]
        golds = spellings(world, relation, value)
        if relation == "length":
            fields = {"n": value}
        else:
            nth = f"{value.day}" + {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd"}.get(value.day, "th")
            month = MONTHS[value.month - 1]
            fields = {"day": value.day, "month": month, "year": value.year, "m": value.month, "nth": nth}
        for form in forms:
            assert grade_qa(form.format(**fields), golds).correct, form


def test_questions_are_varied() -> None:
    world = World(1, 2000)
    for kind in ("2hop", "3hop", "4hop", "compare"):
        assert len({question.text for question in draw_questions(world, kind, 300)}) > 270


def test_questions_can_be_written_to_a_file(tmp_path: Path) -> None:
    write_questions(World(1, 200), tmp_path / "q.jsonl", each=3)
    rows = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text().splitlines()]
    assert len(rows) == 3 * len(QUESTIONS)
    assert {row["answerable"] for row in rows if row["kind"] == "unanswerable"} == {False}
    assert all(row["proof"] and row["question"].endswith("?") for row in rows)


def test_an_unknown_kind_raises() -> None:
    with pytest.raises(BadValue, match="1hop"):
        draw_question(World(0, 100), Random(0), "5hop")
