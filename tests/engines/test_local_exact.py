"""Test that LocalEngine's log-probabilities equal a forward pass, with caching, eviction and weight updates."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
import torch

from palestra.engines import Completion, Sampling
from palestra.engines.local.engine import LocalEngine
from tests.engines.tiny import error, qwen3, text

TOLERANCE = 1e-4
RUNNERS = ["native", "transformers", "recompute", "paged"]


async def converse(
    engine: LocalEngine,
    key: Any,
    rng: random.Random,
    *,
    turns: int = 4,
    first: int = 90,
    more: int = 30,
    reply: int = 20,
) -> list[Completion]:
    """Run a conversation with turns of random length; each prompt extends the previous tokens."""
    replies = []
    ids = text(rng, rng.randint(1, first))
    for _ in range(turns):
        done = await engine.generate(ids, Sampling(max_tokens=rng.randint(1, reply)), conversation=key)
        assert done.prompt_ids == ids
        replies.append(done)
        ids = ids + done.ids + text(rng, rng.randint(1, more))
    return replies


async def many(engine: LocalEngine, count: int, **shape: int) -> list[Completion]:
    replies = await asyncio.gather(*(converse(engine, key, random.Random(key), **shape) for key in range(count)))
    return [done for conversation in replies for done in conversation]


@pytest.mark.parametrize("runner", RUNNERS)
def test_concurrent_conversations_of_different_lengths(runner: Any) -> None:
    model = qwen3()

    async def run() -> None:
        async with LocalEngine(model, runner=runner, threads=1) as engine:
            assert engine.runner == runner
            replies = await many(engine, 8, turns=3)
            assert error(model, *replies) < TOLERANCE
            assert engine.stats.reused > (400 if runner == "paged" else 500)  # only full pages are reused
            assert all(done.version == 0 and done.finish == "length" for done in replies)

    asyncio.run(run())


@pytest.mark.parametrize("runner", ["native", "transformers", "paged"])
def test_many_conversations_with_eight_running(runner: Any) -> None:
    model = qwen3()

    async def run() -> None:
        # The cache holds only a few conversations, so that most are evicted between their turns.
        async with LocalEngine(model, runner=runner, max_running=8, kv_cache_gb=0.0004, threads=1) as engine:
            replies = await many(engine, 60, turns=2, first=60, more=20, reply=4)
            assert len(replies) == 120
            assert error(model, *replies) < TOLERANCE
            assert engine.stats.evicted > 30

    asyncio.run(run())


def test_replies_preempted_by_a_full_cache_are_exact() -> None:
    model = qwen3()

    async def run() -> None:
        async with LocalEngine(model, kv_cache_gb=0.0003, threads=1) as engine:  # about 1,200 tokens
            rng = random.Random(1)
            prompts = [text(rng, 40) for _ in range(14)]
            replies = await asyncio.gather(*(engine.generate(ids, Sampling(max_tokens=100)) for ids in prompts))
            assert engine.stats.preempted > 0
            assert all(len(done.ids) == 100 for done in replies)
            assert error(model, *replies) < TOLERANCE

    asyncio.run(run())


def test_one_reply_can_fill_the_cache() -> None:
    model = qwen3()

    async def run() -> None:
        async with LocalEngine(model, kv_cache_gb=0.0001, threads=1) as engine:
            context = engine.max_context
            assert context is not None
            assert 256 <= context < 512  # less than the model's 512, because of the cache size
            ids = text(random.Random(2), 150)
            both = await asyncio.gather(*(engine.generate([*ids, at], Sampling(max_tokens=400)) for at in range(2)))
            assert all(len(done.ids) == context - 151 for done in both)
            assert error(model, *both) < TOLERANCE

    asyncio.run(run())


def test_entry_that_fills_the_cache_is_evicted_for_a_similar_prompt() -> None:
    model = qwen3()

    async def run() -> None:
        async with LocalEngine(model, kv_cache_gb=0.0001, threads=1) as engine:
            ids = text(random.Random(2), 200)
            for key in range(3):  # each prompt shares a prefix with the previous one, whose entry fills the cache
                done = await engine.generate([*ids, key], Sampling(max_tokens=5), conversation=key)
                assert error(model, done) < TOLERANCE
            assert engine.stats.evicted == 2

    asyncio.run(run())


@pytest.mark.parametrize("runner", ["native", "transformers", "paged"])
def test_changed_prompt_reuses_only_the_common_prefix(runner: Any) -> None:
    model = qwen3()

    async def run() -> None:
        async with LocalEngine(model, runner=runner, threads=1) as engine:
            rng = random.Random(3)
            ids = text(rng, 70)
            first = await engine.generate(ids, Sampling(max_tokens=12), conversation="a")
            replies = [first]
            for shared in (75, 50, 70, 1, 69, 0):  # lengths of the common prefix
                prompt = (ids + first.ids)[:shared] + text(rng, 5)
                replies.append(await engine.generate(prompt, Sampling(max_tokens=3), conversation="a"))
            same = await engine.generate(replies[-1].prompt_ids, Sampling(max_tokens=3), conversation="a")
            shorter = await engine.generate(same.prompt_ids[:2], Sampling(max_tokens=3), conversation="a")
            assert error(model, *replies, same, shorter) < TOLERANCE
            reusable = 64 + 48 + 48 if runner == "paged" else 75 + 50 + 50 + 1 + 1 + 0 + 4 + 1  # pages have 16 tokens
            assert engine.stats.reused >= reusable

    asyncio.run(run())


@pytest.mark.parametrize("runner", ["native", "transformers", "paged"])
def test_common_prefixes_are_computed_once(runner: Any) -> None:
    model = qwen3()

    async def run() -> None:
        async with LocalEngine(model, runner=runner, threads=1) as engine:
            rng = random.Random(4)
            rules = text(rng, 100)
            tasks = [rules + text(rng, 40) for _ in range(4)]
            group = [(task, f"{task[-1]}-{member}") for task in tasks for member in range(8)]
            replies = await asyncio.gather(
                *(engine.generate(ids, Sampling(max_tokens=5), conversation=key) for ids, key in group)
            )
            assert error(model, *replies) < TOLERANCE
            assert engine.stats.shared >= 3 * 96 + 28 * 128
            assert engine.stats.computed <= 140 + 3 * 44 + 28 * 12 + 32 * 5
            assert len({tuple(done.ids) for done in replies}) > 8  # each reply uses its own random numbers

    asyncio.run(run())


def test_concurrent_requests_of_one_conversation() -> None:
    model = qwen3()

    async def run() -> None:
        async with LocalEngine(model, threads=1) as engine:
            ids = text(random.Random(5), 80)
            for _ in range(2):
                replies = await asyncio.gather(
                    *(engine.generate(ids, Sampling(max_tokens=9), conversation="same") for _ in range(5))
                )
                assert error(model, *replies) < TOLERANCE
                ids = ids + replies[0].ids + [1, 2, 3]

    asyncio.run(run())


def test_long_prompts_are_prefilled_in_chunks() -> None:
    model = qwen3()

    async def run() -> None:
        async with LocalEngine(model, prefill_tokens=16, threads=1) as engine:
            rng = random.Random(6)
            prompts = [text(rng, length) for length in (200, 3, 75, 1, 33)]
            replies = await asyncio.gather(*(engine.generate(ids, Sampling(max_tokens=8)) for ids in prompts))
            assert error(model, *replies) < TOLERANCE
            assert engine.stats.steps >= 310 // 16

    asyncio.run(run())


def nudge(model: Any, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))


@pytest.mark.parametrize("runner", ["native", "transformers", "paged"])
def test_cache_is_not_reused_after_a_weight_update(runner: Any) -> None:
    model = qwen3()

    async def run() -> None:
        async with LocalEngine(model, runner=runner, threads=1) as engine:
            rng = random.Random(7)
            ids = text(rng, 50)
            for version in range(4):
                done = await engine.generate(ids, Sampling(max_tokens=6), conversation="a")
                assert done.version == version
                assert error(model, done) < TOLERANCE
                ids = ids + done.ids + text(rng, 4)
                async with engine.paused():
                    nudge(model, version)
                await engine.publish(None, engine.version + 1)
            assert engine.version == 4
            assert engine.stats.reused == 0

    asyncio.run(run())


@pytest.mark.parametrize("runner", ["native", "transformers", "paged"])
def test_replies_that_span_a_weight_update_are_recomputed(runner: Any) -> None:
    old, new = qwen3(0), qwen3(0)
    nudge(new, 1)
    model = qwen3(0)

    async def run() -> None:
        async with LocalEngine(model, runner=runner, threads=1) as engine:
            rng = random.Random(8)
            prompts = [text(rng, rng.randint(1, 60)) for _ in range(6)]
            tasks = [asyncio.create_task(engine.generate(ids, Sampling(max_tokens=120))) for ids in prompts]
            while engine.stats.sampled < 60:
                await asyncio.sleep(0.001)
            async with engine.paused():
                at = engine.stats.sampled // 6
                nudge(model, 1)
                await engine.publish(None, engine.version + 1)
            for done in await asyncio.gather(*tasks):
                assert done.version == 0  # the version that sampled the first token
                before, after = done.logprobs[: at - 5], done.logprobs[at + 5 :]
                reply = Completion(**{**_fields(done), "ids": done.ids[: at - 5], "logprobs": before})
                assert error(old, reply) < TOLERANCE
                prompt = done.prompt_ids + done.ids[: at + 5]
                fields = {"prompt_ids": prompt, "ids": done.ids[at + 5 :], "logprobs": after}
                assert error(new, Completion(**{**_fields(done), **fields})) < TOLERANCE
            later = await engine.generate(prompts[0], Sampling(max_tokens=2))
            assert later.version == 1

    asyncio.run(run())


def _fields(done: Completion) -> dict[str, Any]:
    return {name: getattr(done, name) for name in ("ids", "logprobs", "text", "finish", "version", "prompt_ids")}
