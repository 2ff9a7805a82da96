"""Test that facts are consistent for every seed and size, and that articles state exactly these facts."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.envs.world import Article, World, article_of, articles, facts_of, read, write_jsonl
from palestra.envs.world.articles import format_value
from palestra.envs.world.facts import Dated, Ref
from palestra.envs.world.kinds import KINDS
from palestra.envs.world.world import NOW, Date
from palestra.errors import BadValue

worlds = st.builds(World, st.integers(0, 2**40), st.integers(100, 600))


def of_kind(world: World, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number in range(world.counts[kind]):
        page = world.page(kind, number)
        yield page, dict(facts_of(world, page))


def fact(world: World, ref: Ref, name: str) -> Any:
    return facts_of(world, ref.page).get(name)


@given(worlds)
@settings(max_examples=12, deadline=None)
def test_titles_are_unique_and_every_page_has_a_kind(world: World) -> None:
    titles = [world.title(page) for page in range(world.pages)]
    assert len(set(titles)) == world.pages == sum(world.counts.values())
    assert {world.kind(page) for page in range(world.pages)} == set(KINDS)
    assert not any(set("[]{}\n|#") & set(title) for title in titles)


@given(worlds)
@settings(max_examples=12, deadline=None)
def test_lives_are_consistent(world: World) -> None:
    for page, facts in of_kind(world, "person"):
        born, died = facts["birth_date"], facts.get("death_date")
        assert died is None or born.year + 50 <= died.year < NOW
        assert died is not None or born.year + 50 < NOW + 50
        for parent in ("father", "mother"):
            if parent in facts:
                age = born.year - fact(world, facts[parent], "birth_date").year
                assert 18 <= age <= 45
                ended = fact(world, facts[parent], "death_date")
                assert ended is None or ended > born
                assert Ref(page) in fact(world, facts[parent], "children")
                assert fact(world, facts[parent], "woman") == (parent == "mother")
        if "spouse" in facts:
            assert fact(world, facts["spouse"], "spouse") == Ref(page)
            assert fact(world, facts["spouse"], "woman") != facts["woman"]
            assert fact(world, facts["spouse"], "children") == facts.get("children")
        if "children" in facts:
            births = [fact(world, child, "birth_date") for child in facts["children"]]
            assert births == sorted(births)
            assert len({birth.year for birth in births}) == len(births)
        if "teacher" in facts:
            assert 10 <= born.year - fact(world, facts["teacher"], "birth_date").year <= 33
        if "university" in facts:
            assert fact(world, facts["university"], "type") == "university"
            assert fact(world, facts["university"], "founded_year") <= born.year + 17
        years = [work.year for work in facts.get("works", ())]
        assert years == sorted(years)
        assert all(fact(world, Ref(work.page), "creator") == Ref(page) for work in facts.get("works", ()))


def alive_and_grown(world: World, person: Ref, year: int) -> bool:
    born, died = fact(world, person, "birth_date"), fact(world, person, "death_date")
    return bool(born.year + 18 <= year and (died is None or year <= died.year))


@given(worlds)
@settings(max_examples=12, deadline=None)
def test_deeds_happen_within_a_lifetime(world: World) -> None:
    for page, facts in of_kind(world, "work"):
        assert alive_and_grown(world, facts["creator"], facts["year"])
        assert facts["year"] < NOW
        assert Dated(page, facts["year"]) in fact(world, facts["creator"], "works")
        assert "patron" not in facts or fact(world, facts["patron"], "founded_year") < facts["year"]
    for page, facts in of_kind(world, "organisation"):
        assert alive_and_grown(world, facts["founder"], facts["founded_year"])
        assert fact(world, facts["founder"], "organisation") == Ref(page)
        assert Ref(page) in fact(world, facts["seat"], "organisations")
        assert fact(world, facts["seat"], "founded_year") < facts["founded_year"]
    for _, facts in of_kind(world, "event"):
        assert "leader" not in facts or alive_and_grown(world, facts["leader"], facts["date"].year)
        assert fact(world, facts["place"], "founded_year") < facts["date"].year
    for _, facts in of_kind(world, "mountain"):
        assert alive_and_grown(world, facts["first_climber"], facts["first_climbed"])


@given(worlds)
@settings(max_examples=12, deadline=None)
def test_places_are_nested(world: World) -> None:
    for page, facts in of_kind(world, "country"):
        assert fact(world, fact(world, facts["capital"], "province"), "country") == Ref(page)
        assert facts["area"] == sum(fact(world, province, "area") for province in facts["provinces"])
        assert all(fact(world, province, "country") == Ref(page) for province in facts["provinces"])
        assert all(Ref(page) in fact(world, other, "neighbours") for other in facts.get("neighbours", ()))
        rivers = [river["length"] for _, river in of_kind(world, "river") if river["country"] == Ref(page)]
        assert max(rivers) == fact(world, facts["longest_river"], "length")
        peaks = [peak["height"] for _, peak in of_kind(world, "mountain") if peak["country"] == Ref(page)]
        assert max(peaks) == fact(world, facts["highest_mountain"], "height")
    for page, facts in of_kind(world, "province"):
        assert facts["capital"] in facts["cities"]
        assert all(fact(world, city, "province") == Ref(page) for city in facts["cities"])
    for page, facts in of_kind(world, "city"):
        if "river" in facts:
            assert Ref(page) in fact(world, facts["river"], "cities")
            assert fact(world, facts["river"], "country") == fact(world, facts["province"], "country")
        if "twin" in facts:
            assert fact(world, facts["twin"], "twin") == Ref(page)
            assert facts["twin"] != Ref(page)
        if "event" in facts:
            assert fact(world, facts["event"], "place") == Ref(page)
        assert all(fact(world, person, "birth_city") == Ref(page) for person in facts.get("natives", ()))
    for page, facts in of_kind(world, "river"):
        assert all(fact(world, city, "river") == Ref(page) for city in facts.get("cities", ()))
        assert "source" not in facts or fact(world, facts["source"], "country") == facts["country"]


@given(worlds)
@settings(max_examples=8, deadline=None)
def test_an_article_states_exactly_the_facts(world: World) -> None:
    for article in articles(world):
        reading = read(article.title, article.text)
        assert reading is not None
        assert reading.kind == article.kind
        facts = dict(facts_of(world, article.page))
        parsed = {**reading.facts, **reading.lists}
        for hidden in ("woman", "surname"):
            facts.pop(hidden, None)
        assert parsed.keys() == facts.keys(), article.text
        for name, value in facts.items():
            if isinstance(value, tuple) and not isinstance(value, Ref | Dated | Date):
                assert parsed[name] == tuple(world.title(item.page) for item in value)
            else:
                assert parsed[name] == format_value(world, name, value)
        assert all(reading.years[world.title(work.page)] == str(work.year) for work in facts.get("works", ()))


def refs(value: Any) -> Iterator[int]:
    if isinstance(value, Ref | Dated):
        yield value.page
    elif isinstance(value, tuple):
        for item in value:
            yield from refs(item)


def test_links_are_the_pages_named_by_facts() -> None:
    world = World(3, 400)
    every = {world.title(page) for page in range(world.pages)}
    for article in articles(world):
        named = {world.title(page) for value in facts_of(world, article.page).values() for page in refs(value)}
        assert set(article.links) == named <= every
        assert article.title not in article.links
        assert all(title in article.text for title in article.links)
        assert "[[" not in article.text


def test_articles_are_varied() -> None:
    world = World(5, 2000)
    people = [article_of(world, world.page("person", number)) for number in range(400)]

    def shape(article: Article) -> str:
        text = re.sub(r"\[\[.*?\]\]", "_", article.markup)
        for name in sorted(article.title.split(), key=len):
            text = text.replace(name, "_")
        return re.sub(r"[0-9]+", "0", text)

    assert len({shape(article) for article in people}) > 390


def test_seeds_and_sizes_give_different_worlds() -> None:
    titles = {tuple(map(World(seed, pages).title, range(20))) for seed in range(5) for pages in (100, 101)}
    assert len(titles) == 10


def test_pages_do_not_depend_on_order() -> None:
    forward = {article.page: article.markup for article in articles(World(8, 300))}
    world = World(8, 300)
    assert all(article_of(world, page).markup == forward[page] for page in reversed(range(300)))
    assert article_of(World(8, 300), 123).markup == forward[123]


def test_a_page_of_a_million_is_generated_at_once() -> None:
    world = World(1, 1_000_000)
    reading = read(world.title(987_654), article_of(world, 987_654).text)
    assert reading is not None
    assert reading.kind == "person"


@pytest.mark.parametrize("pages", [0, 99, 1_000_001, True, 1e3])
def test_invalid_sizes_raise(pages: Any) -> None:
    with pytest.raises(BadValue, match="100 to 1,000,000"):
        World(0, pages)


def test_bytes_are_the_same_in_every_process(tmp_path: Path) -> None:
    write_jsonl(World(6, 1500), tmp_path / "here.jsonl")
    code = "import sys; from palestra.envs.world import *; write_jsonl(World(6, 1500), sys.argv[1])"
    for hash_seed in ("0", "4242"):
        there = tmp_path / f"there{hash_seed}.jsonl"
        subprocess.run([sys.executable, "-c", code, str(there)], env={"PYTHONHASHSEED": hash_seed}, check=True)
        assert there.read_bytes() == (tmp_path / "here.jsonl").read_bytes()


def test_bytes_are_the_same_on_every_machine(tmp_path: Path) -> None:
    """If this digest changes, every world has changed, and with it all indexes, questions and results."""
    write_jsonl(World(1, 500), tmp_path / "world.jsonl")
    digest = sha256((tmp_path / "world.jsonl").read_bytes()).hexdigest()
    assert digest == "585a83b93677b5e2d801f6c82abc2fec877b208cd62bcbc0b49f036065149279"


def test_files_are_written_atomically(tmp_path: Path) -> None:
    target = tmp_path / "world.jsonl"
    target.write_text("old")

    def stop(pages: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_jsonl(World(1, 2000), target, progress=stop)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["world.jsonl"]
