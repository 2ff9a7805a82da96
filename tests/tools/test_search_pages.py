"""Test that a hit's page consists of the neighboring passages with the same title."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from palestra.tools.search import Hit, Index, Passage, SearchTool


@given(st.lists(st.sampled_from(["", "A", "B"]), min_size=1, max_size=12), st.data())
def test_a_page_is_the_run_of_passages_with_its_title(titles: list[str], data: st.DataObject) -> None:
    passages = [Passage(id=str(n), title=title, text=f"word{n} common") for n, title in enumerate(titles)]
    tool = SearchTool(Index.build(passages), topk=20)
    number = data.draw(st.integers(0, len(titles) - 1))
    [hit] = tool.hits(f"word{number}")
    page = tool.page(hit)
    assert asyncio.run(tool.apage(hit)) == page
    assert passages[number] in page
    first = int(page[0].id)
    assert page == passages[first : first + len(page)]
    if titles[number]:
        assert {passage.title for passage in page} == {titles[number]}
        around = titles[max(0, first - 1) : first] + titles[first + len(page) : first + len(page) + 1]
        assert titles[number] not in around
    else:
        assert page == [passages[number]]


def test_hits_are_the_same_for_async_callers_and_have_their_number() -> None:
    passages = [Passage(id=name, title=name, text=f"{name} lives here") for name in ("ant", "bee", "cat")]
    tool = SearchTool(Index.build(passages), topk=2)
    hits = tool.hits("cat bee")
    assert asyncio.run(tool.ahits("cat bee")) == hits
    assert sorted(hit.number or 0 for hit in hits) == [1, 2]
    assert [Hit(passage=hit.passage, score=hit.score) for hit in hits] == hits  # hits from a server have no number
