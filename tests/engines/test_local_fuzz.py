"""Send random requests to LocalEngine, and check that every log-probability is exact and every block is freed."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
import torch

from palestra.engines import Completion, Sampling
from palestra.engines.local.engine import LocalEngine
from tests.engines.tiny import error, qwen3, text


async def random_conversation(
    engine: LocalEngine, key: int, rng: random.Random, rules: list[list[int]]
) -> list[Completion]:
    """Run a conversation with random extensions, truncations, restarts, repetitions, cancellations and `forget`."""
    replies: list[Completion] = []
    history = rng.choice(rules) + text(rng, rng.randint(1, 60))
    for _ in range(rng.randint(1, 5)):
        sampling = Sampling(
            max_tokens=rng.randint(1, 20), temperature=rng.choice([0.0, 0.7, 1.0]), top_k=rng.choice([0, 5])
        )
        move = rng.random()
        if move < 0.1:
            history = history[: rng.randint(1, len(history))]
        elif move < 0.15:
            history = rng.choice(rules) + text(rng, rng.randint(1, 20))
        elif move < 0.25:
            task = asyncio.create_task(engine.generate(history, sampling, conversation=key))
            await asyncio.sleep(rng.random() * 0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            continue
        elif move < 0.3:
            engine.forget(key)
        if move > 0.9:
            both = await asyncio.gather(*(engine.generate(history, sampling, conversation=key) for _ in range(2)))
            replies += both
        else:
            replies.append(await engine.generate(history, sampling, conversation=rng.choice([key, key, key, None])))
        history = (history + replies[-1].ids + text(rng, rng.randint(1, 30)))[:200]
        if rng.random() < 0.2:
            await asyncio.sleep(rng.random() * 0.01)
    return replies


@pytest.mark.parametrize("runner", ["native", "transformers", "paged"])
@pytest.mark.parametrize("seed", range(3))
def test_random_requests_are_exact(runner: Any, seed: int) -> None:
    model = qwen3(seed)
    rng = random.Random(seed)
    # Caches from large to barely sufficient, so that entries are reused, evicted and preempted.
    options: dict[str, Any] = {
        "kv_cache_gb": [0.01, 0.00025, 0.00015][seed],
        "max_running": [64, 12, 7][seed],
        "prefill_tokens": 37,
    }

    async def run() -> None:
        async with LocalEngine(model, runner=runner, threads=1, **options) as engine:
            rules = [text(rng, length) for length in (3, 40, 90)]
            keys = range(16)
            talks = await asyncio.gather(
                *(random_conversation(engine, key, random.Random(f"{seed}-{key}"), rules) for key in keys)
            )
            replies = [done for talk in talks for done in talk]
            assert error(model, *replies) < 1e-4
            for key in keys:
                engine.forget(key)
            await engine.generate([1], Sampling(max_tokens=1))
            assert engine._scheduler.used_tokens == 0
            assert engine.stats.reused > 0
            assert engine.stats.shared > 0
            assert seed == 0 or engine.stats.evicted > 0

    asyncio.run(run())


@pytest.mark.parametrize("runner", ["native", "transformers", "paged"])
def test_random_requests_between_weight_updates_are_exact(runner: Any) -> None:
    """Check that replies between two updates have the exact log-probabilities of the weights that sampled them."""
    model = qwen3()

    async def run() -> None:
        async with LocalEngine(model, runner=runner, max_running=6, kv_cache_gb=0.0004, threads=1) as engine:
            rng = random.Random(0)
            for version in range(3):
                spanning = [
                    asyncio.create_task(
                        engine.generate(text(rng, 9), Sampling(max_tokens=60), conversation=(version, at))
                    )
                    for at in range(4)
                ]
                rules = [text(rng, length) for length in (3, 60)]
                talks = await asyncio.gather(
                    *(random_conversation(engine, key, random.Random(key), rules) for key in range(6))
                )
                replies = [done for talk in talks for done in talk]
                assert {done.version for done in replies} == {version}
                assert error(model, *replies) < 1e-4
                async with engine.paused():
                    with torch.no_grad():
                        for parameter in model.parameters():
                            parameter.mul_(1.03)
                    await engine.publish(None, engine.version + 1)
                for done in await asyncio.gather(*spanning):
                    assert len(done.ids) == 60

    asyncio.run(run())
