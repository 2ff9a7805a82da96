"""Test LocalEngine with several event loops, cancellation, failures, pausing, closing and deterministic batches."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from palestra.engines import Completion, Sampling
from palestra.engines.local.engine import LocalEngine
from palestra.errors import BadValue, EngineFailed
from tests.engines.tiny import error, qwen3, text

SHORT = Sampling(max_tokens=4)


@pytest.fixture(scope="module")
def model() -> Any:
    return qwen3(max_position_embeddings=4096)


@contextmanager
def broken(model: Any, raised: BaseException) -> Iterator[None]:
    """Make one of the model's activation functions raise an exception inside the `with` block."""
    activation = model.model.layers[0].mlp.act_fn

    def forward(x: torch.Tensor) -> torch.Tensor:
        raise raised

    activation.forward = forward
    try:
        yield
    finally:
        del activation.forward


async def until_running(engine: LocalEngine) -> None:
    before = engine.stats.steps
    while engine.stats.steps < before + 2:
        await asyncio.sleep(0.001)


def test_engine_survives_the_end_of_an_event_loop(model: Any) -> None:
    engine = LocalEngine(model, threads=1)

    async def generate() -> Completion:
        return await engine.generate([1, 2, 3] * 12, SHORT, conversation="a")

    first, second = asyncio.run(generate()), asyncio.run(generate())
    assert error(model, first) < 1e-4
    assert error(model, second) < 1e-4
    assert engine.stats.reused >= 32

    async def leave() -> None:  # this loop ends while a request is running, as after Ctrl-C
        task = asyncio.create_task(engine.generate([1, 2], Sampling(max_tokens=4_000)))
        await until_running(engine)
        assert not task.done()

    for _ in range(2):
        asyncio.run(leave())
    assert len(asyncio.run(generate()).ids) == 4
    asyncio.run(engine.aclose())


def test_two_event_loops_at_once(model: Any) -> None:
    engine = LocalEngine(model, threads=1)
    replies: list[Completion] = []

    async def generate(seed: int) -> None:
        rng = random.Random(seed)
        replies.extend(await asyncio.gather(*(engine.generate(text(rng, 9), SHORT) for _ in range(10))))

    threads = [threading.Thread(target=lambda seed=seed: asyncio.run(generate(seed))) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(replies) == 20
    assert error(model, *replies) < 1e-4
    asyncio.run(engine.aclose())


def test_generation_does_not_block_the_event_loop(model: Any) -> None:
    async def run() -> None:
        async with LocalEngine(model, threads=1) as engine:
            requests = [asyncio.create_task(engine.generate([at], Sampling(max_tokens=100))) for at in range(8)]
            turns = 0
            while not all(task.done() for task in requests):
                await asyncio.sleep(0)
                turns += 1
            assert turns > 50

    asyncio.run(run())


def test_threads_option_affects_the_engine_thread_only(model: Any) -> None:
    thread_counts: list[int] = []

    def record_threads() -> None:
        thread_counts.append(torch.get_num_threads())

    async def run(threads: int | None) -> int:
        async with LocalEngine(model, threads=threads) as engine:
            await engine.generate([1], SHORT)
            return engine._worker.submit(torch.get_num_threads).result()

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert asyncio.run(run(2)) == 2
        assert asyncio.run(run(None)) == 1  # the default for a small model
        thread = threading.Thread(target=record_threads)
        thread.start()
        thread.join()
        record_threads()
        assert thread_counts == [3, 3]
    finally:
        torch.set_num_threads(before)


def test_cancelled_request_frees_its_row(model: Any) -> None:
    async def run() -> None:
        async with LocalEngine(model, max_running=1, threads=1) as engine:
            running = asyncio.create_task(engine.generate([1, 2], Sampling(max_tokens=4_000)))
            await until_running(engine)
            waiting = asyncio.create_task(engine.generate([3], Sampling(max_tokens=4_000)))
            short = asyncio.create_task(engine.generate([5, 6], SHORT))
            await asyncio.sleep(0.01)
            assert not short.done()  # the engine runs one request at a time
            waiting.cancel()
            running.cancel()
            assert error(model, await short) < 1e-4
            with pytest.raises(asyncio.CancelledError):
                await running
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(engine.generate([1], Sampling(max_tokens=4_000)), 0.05)
            assert len((await engine.generate([7], SHORT)).ids) == 4
            assert engine._scheduler.used_tokens == 0

    asyncio.run(run())


def test_finished_and_forgotten_conversations_free_their_blocks(model: Any) -> None:
    async def run() -> None:
        async with LocalEngine(model, threads=1) as engine:
            rng = random.Random(0)
            await asyncio.gather(*(engine.generate(text(rng, 50), SHORT, conversation=at) for at in range(20)))
            assert engine._scheduler.used_tokens > 0  # blocks stay cached, because conversations may continue
            for at in range(20):
                engine.forget(at)
            engine.forget("never seen")
            await engine.generate([1], SHORT)  # a request without a conversation leaves nothing in the cache
            assert engine._scheduler.used_tokens == 0
            task = asyncio.create_task(engine.generate([1], Sampling(max_tokens=50), conversation="b"))
            await until_running(engine)
            engine.forget("b")  # the last request in this conversation is still running
            await task
            assert engine._scheduler.used_tokens == 0

    asyncio.run(run())


@pytest.mark.parametrize("runner", ["native", "transformers", "recompute"])
def test_exception_in_the_model_fails_running_requests_only(runner: Any) -> None:
    model = qwen3(max_position_embeddings=4096)

    async def run() -> None:
        async with LocalEngine(model, runner=runner, max_running=4, threads=1) as engine:
            await engine.generate([1, 2, 3], SHORT, conversation="a")
            with broken(model, RuntimeError("a broken layer")):
                replies = await asyncio.gather(
                    *(engine.generate([at, 2], SHORT, conversation=at) for at in range(4)), return_exceptions=True
                )
            assert all(isinstance(err, EngineFailed) and "a broken layer" in str(err) for err in replies)
            for key in ("a", 2, "new"):
                done = await engine.generate([1, 2, 3, 4], SHORT, conversation=key)
                assert error(model, done) < 1e-4

    asyncio.run(run())


@pytest.mark.parametrize("runner", ["native", "transformers", "paged"])
def test_engine_recovers_from_non_finite_weights(runner: Any) -> None:
    model = qwen3()

    async def run() -> None:
        async with LocalEngine(model, runner=runner, threads=1) as engine:
            good = {name: value.clone() for name, value in model.state_dict().items()}
            async with engine.paused():
                with torch.no_grad():
                    model.model.layers[0].self_attn.v_proj.weight[0, 0] = float("nan")
                await engine.publish(None, engine.version + 1)
            replies = await asyncio.gather(
                *(engine.generate([at] * 40, SHORT, conversation=at) for at in range(6)), return_exceptions=True
            )
            assert all(isinstance(err, EngineFailed) and "not finite" in str(err) for err in replies)
            async with engine.paused():
                model.load_state_dict(good)
                await engine.publish(None, engine.version + 1)
            done = await asyncio.gather(*(engine.generate([at] * 3, SHORT, conversation=at) for at in range(6)))
            assert error(model, *done) < 1e-4

    asyncio.run(run())


def test_pause_waits_for_the_current_step_and_blocks_the_next(model: Any) -> None:
    async def run() -> None:
        async with LocalEngine(model, threads=1) as engine:
            requests = [asyncio.create_task(engine.generate([at], Sampling(max_tokens=60))) for at in range(4)]
            await until_running(engine)
            async with engine.paused(), engine.paused():
                steps = engine.stats.steps
                late = asyncio.create_task(engine.generate([9], SHORT))
                await asyncio.sleep(0.05)
                assert engine.stats.steps == steps
                assert not late.done()
            replies = await asyncio.gather(*requests, late)
            assert error(model, *replies) < 1e-4
            with pytest.raises(BadValue, match="without a matching pause"):
                await engine.resume()
            async with engine.paused():
                pass  # pausing without any request

    asyncio.run(run())


def test_cancelled_pause_does_not_block_the_engine(model: Any) -> None:
    async def run() -> None:
        async with LocalEngine(model, threads=1) as engine:
            task = asyncio.create_task(engine.generate([1], Sampling(max_tokens=60)))
            await until_running(engine)
            pausing = asyncio.create_task(engine.pause())
            await asyncio.sleep(0)
            pausing.cancel()
            await asyncio.gather(pausing, return_exceptions=True)
            if not pausing.cancelled():
                await engine.resume()
            assert len((await task).ids) == 60

    asyncio.run(run())


def test_closing_fails_open_requests_and_is_idempotent(model: Any) -> None:
    before = {thread.name for thread in threading.enumerate()}

    async def run() -> None:
        engine = LocalEngine(model, max_running=2, threads=1)
        requests = [asyncio.create_task(engine.generate([at], Sampling(max_tokens=4_000))) for at in range(5)]
        await until_running(engine)
        assert any("palestra" in thread.name for thread in threading.enumerate())
        await engine.aclose()
        for err in await asyncio.gather(*requests, return_exceptions=True):
            assert isinstance(err, EngineFailed)
            assert "closed" in str(err)
        with pytest.raises(EngineFailed, match="closed"):
            await engine.generate([1], SHORT)
        await engine.aclose()
        never_used = LocalEngine(model)
        await never_used.aclose()

    asyncio.run(run())
    assert {thread.name for thread in threading.enumerate()} <= before


def test_garbage_collected_engine_leaves_no_thread(model: Any) -> None:
    def threads() -> int:
        return sum("palestra" in thread.name for thread in threading.enumerate())

    before = threads()

    async def run() -> None:
        engine = LocalEngine(model, threads=1)
        await engine.generate([1], SHORT)

    asyncio.run(run())
    for _ in range(6_000):
        gc.collect()
        if threads() == before:
            break
        time.sleep(0.01)
    assert threads() == before


def test_many_queued_requests(model: Any) -> None:
    async def run() -> None:
        async with LocalEngine(model, max_running=64, threads=1) as engine:
            rng = random.Random(1)
            requests = [engine.generate(text(rng, rng.randint(1, 8)), Sampling(max_tokens=1)) for _ in range(1_000)]
            replies = await asyncio.gather(*requests)
            assert all(len(done.ids) == 1 for done in replies)
            assert engine.stats.sampled == 1_000
            assert error(model, *replies) < 1e-4

    asyncio.run(run())


@pytest.mark.parametrize("others", [0, 3])
def test_lockstep_runs_are_bitwise_equal(model: Any, others: int) -> None:
    async def converse(engine: LocalEngine, key: int) -> list[Completion]:
        rng = random.Random(key)
        ids = text(rng, rng.randint(1, 60))
        replies = []
        for turn in range(3):
            replies.append(await engine.generate(ids, Sampling(max_tokens=7, seed=key * 10 + turn), conversation=key))
            ids = ids + replies[-1].ids + text(rng, 5)
        return replies

    async def run() -> list[Any]:
        async with LocalEngine(model, lockstep=True) as engine:
            talks = await asyncio.gather(*(converse(engine, key) for key in range(1 + others)))
            assert error(model, *(done for talk in talks for done in talk)) < 1e-4
            return [(done.ids, done.logprobs) for talk in talks for done in talk]

    assert asyncio.run(run()) == asyncio.run(run())


def test_lockstep_engine_pauses_and_survives_the_end_of_a_loop(model: Any) -> None:
    engine = LocalEngine(model, lockstep=True)

    async def leave() -> None:
        asyncio.create_task(engine.generate([1, 2], Sampling(max_tokens=4_000)))  # noqa: RUF006
        await until_running(engine)

    async def generate() -> None:
        task = asyncio.create_task(engine.generate([1, 2], Sampling(max_tokens=30)))
        await until_running(engine)
        async with engine.paused():
            steps = engine.stats.steps
            await asyncio.sleep(0.01)
            assert engine.stats.steps == steps
        assert len((await task).ids) == 30

    asyncio.run(leave())
    asyncio.run(generate())
    asyncio.run(engine.aclose())


def test_a_prompt_with_unknown_ids_fails_alone(model: Any) -> None:
    async def run() -> list[Any]:
        engine = LocalEngine(model, threads=1)
        prompts = ([1, 2], [1, model.config.vocab_size], [1, -1], [1, 2**40])
        replies = await asyncio.gather(*(engine.generate(ids, SHORT) for ids in prompts), return_exceptions=True)
        await engine.aclose()
        return replies

    first, *others = asyncio.run(run())
    assert error(model, first) < 1e-4
    assert [type(other) for other in others] == [BadValue] * 3
    assert all("prompt ids must be in 0.." in str(other) for other in others)
