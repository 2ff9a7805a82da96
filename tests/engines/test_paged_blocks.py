"""Test the allocation and sharing of KV cache pages."""

from __future__ import annotations

import random

from palestra.engines.local.paged.block_manager import BlockManager, Prefix, pages_for, to_bytes
from palestra.engines.local.paged.layout import PAGE


def start(blocks: BlockManager, ids: list[int]) -> tuple[list[int], int]:
    """Place a sequence as the scheduler does; return its pages and how many of them were shared."""
    shared, content = blocks.match(to_bytes(ids), (len(ids) - 1) // PAGE)
    new = blocks.allocate(pages_for(len(ids)) - len(shared))
    assert new is not None
    full = len(ids) // PAGE
    blocks.register(content, (shared + new)[len(shared) : full], to_bytes(ids[len(shared) * PAGE : full * PAGE]))
    return shared + new, len(shared)


def test_common_prefixes_share_full_pages() -> None:
    blocks = BlockManager(20)
    rules = list(range(100, 140))
    first, shared = start(blocks, [*rules, 1, 2, 3])
    assert shared == 0
    second, shared = start(blocks, [*rules, 7])
    assert (shared, second[:2], second[2] != first[2]) == (2, first[:2], True)
    assert start(blocks, [0, *rules])[1] == 0  # the same tokens at other positions are not shared
    blocks.release(first)
    assert blocks.free_pages == 19 - 3 - 3  # two of the first sequence's pages are still used by the second one
    blocks.release(second)
    assert start(blocks, [*rules, 1, 2, 3])[0][:2] == first[:2]  # unused pages are found until they are evicted


def test_the_last_token_is_always_computed() -> None:
    blocks = BlockManager(9)
    ids = list(range(2 * PAGE))
    start(blocks, ids)
    assert start(blocks, ids)[1] == 1


def test_least_recently_used_pages_are_evicted_from_the_end_of_a_sequence() -> None:
    blocks = BlockManager(9)
    old, new = list(range(4 * PAGE)), list(range(1000, 1000 + 4 * PAGE))
    for ids in (old, new):
        blocks.release(start(blocks, ids)[0])
    assert blocks.free_pages == 8
    taken = blocks.allocate(2)
    assert taken is not None
    assert blocks.evicted == 2
    assert len(blocks.match(to_bytes(old), 4)[0]) == 2
    assert len(blocks.match(to_bytes(new), 4)[0]) == 4
    assert blocks.allocate(1) is None


def test_pages_are_not_found_after_the_weights_have_changed() -> None:
    blocks = BlockManager(9)
    ids = list(range(3 * PAGE))
    running, _ = start(blocks, ids)
    blocks.release(start(blocks, list(range(500, 500 + 2 * PAGE)))[0])
    blocks.forget_all()
    assert blocks.match(to_bytes(ids), 2) == ([], 0)
    blocks.release(running)
    assert blocks.free_pages == 8
    assert blocks.allocate(8) is not None


def test_limit_withdraws_pages_without_memory() -> None:
    blocks = BlockManager(30)
    blocks.release(start(blocks, list(range(20 * PAGE)))[0])
    blocks.limit(10)
    pages = blocks.allocate(9)
    assert pages is not None
    assert max(pages) < 10
    assert blocks.allocate(1) is None


def test_random_sequences_never_share_a_page_with_other_content() -> None:
    rng = random.Random(0)
    blocks = BlockManager(60)
    content: dict[int, tuple[int, ...]] = {}  # page -> all ids up to its end
    running: list[list[int]] = []
    shared_pages = 0
    for _ in range(2000):
        if running and (rng.random() < 0.5 or blocks.free_pages < 8):
            blocks.release(running.pop(rng.randrange(len(running))))
            continue
        repeated = [[rng.randrange(5)] * PAGE for _ in range(rng.randint(0, 4))]
        ids = [*(token for page in repeated for token in page), *([9] * rng.randint(1, PAGE))]
        pages, shared = start(blocks, ids)
        shared_pages += shared
        in_use = {page for other in running for page in other}
        for at, page in enumerate(pages):
            prefix = tuple(ids[: (at + 1) * PAGE])
            if at < shared:
                assert content[page] == prefix
            else:
                assert page not in in_use
            content[page] = prefix
        running.append(pages)
        if rng.random() < 0.01:
            blocks.forget_all()
    for pages in running:
        blocks.release(pages)
    assert shared_pages > 100
    assert blocks.evicted > 100
    assert blocks.free_pages == 59


def test_a_held_prefix_is_used_without_lookups_and_its_references_are_passed_on() -> None:
    blocks = BlockManager(9)
    ids = list(range(4 * PAGE + 1))
    pages, data = blocks.allocate(5), to_bytes(ids)
    assert pages is not None
    content = blocks.register(0, pages[:4], data[: 16 * PAGE])
    blocks.release(pages[4:])
    assert blocks.match(data, 4, Prefix(data[: 16 * PAGE], pages[:4], content)) == (pages[:4], 4)
    assert blocks.free_pages == 4
    blocks.release(pages[3:4])
    # The prefix ends with page 3; the page after it is found by its content.
    assert blocks.match(data, 4, Prefix(data[: 12 * PAGE], pages[:3], 3)) == (pages[:4], 4)
    assert blocks.match(data, 1, Prefix(data[: 16 * PAGE], pages[:4], 4)) == (pages[:1], 1)  # longer than allowed
    assert blocks.free_pages == 7
    assert blocks.match(to_bytes([7] * 40), 2, Prefix(data[: 4 * PAGE], pages[:1], 1)) == ([], 0)  # other content
    assert blocks.free_pages == 8


def test_pages_with_the_same_content_are_found_under_the_first_ones() -> None:
    blocks = BlockManager(9)
    ids = to_bytes(list(range(PAGE)))
    one, other = blocks.allocate(1), blocks.allocate(1)
    assert one is not None
    assert other is not None
    assert blocks.register(0, one, ids) == blocks.register(0, other, ids) == 1
    assert blocks.match(ids, 1) == (one, 1)
