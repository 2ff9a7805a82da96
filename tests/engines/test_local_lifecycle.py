"""Requests come, go, fail and are cancelled; the engine goes on, and nothing is left behind when it is closed."""

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
    """Within the block an activation of the model raises."""
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


def test_event_loops_may_come_and_go(model: Any) -> None:
    engine = LocalEngine(model, threads=1)

    async def ask() -> Completion:
        return await engine.generate([1, 2, 3], SHORT, conversation="a")

    first, second = asyncio.run(ask()), asyncio.run(ask())
    assert error(model, first) < 1e-4
    assert error(model, second) < 1e-4
    assert engine.stats.reused == 2

    async def leave() -> None:  # with a request under way, as Ctrl-C would
        asked = asyncio.create_task(engine.generate([1, 2], Sampling(max_tokens=4_000)))
        await until_running(engine)
        assert not asked.done()

    for _ in range(2):
        asyncio.run(leave())
    assert len(asyncio.run(ask()).ids) == 4
    asyncio.run(engine.aclose())


def test_two_event_loops_at_once(model: Any) -> None:
    engine = LocalEngine(model, threads=1)
    said: list[Completion] = []

    async def ask(seed: int) -> None:
        rng = random.Random(seed)
        said.extend(await asyncio.gather(*(engine.generate(text(rng, 9), SHORT) for _ in range(10))))

    threads = [threading.Thread(target=lambda seed=seed: asyncio.run(ask(seed))) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 20
    assert max(error(model, done) for done in said) < 1e-4
    asyncio.run(engine.aclose())


def test_the_event_loop_stays_free(model: Any) -> None:
    async def run() -> None:
        async with LocalEngine(model, threads=1) as engine:
            asked = [asyncio.create_task(engine.generate([at], Sampling(max_tokens=100))) for at in range(8)]
            turns = 0
            while not all(task.done() for task in asked):
                await asyncio.sleep(0)
                turns += 1
            assert turns > 50

    asyncio.run(run())


def test_threads_are_set_for_the_engine_alone(model: Any) -> None:
    seen: list[int] = []

    def look() -> None:
        seen.append(torch.get_num_threads())

    async def run(threads: int | None) -> int:
        async with LocalEngine(model, threads=threads) as engine:
            await engine.generate([1], SHORT)
            return engine._worker.submit(torch.get_num_threads).result()

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert asyncio.run(run(2)) == 2
        assert asyncio.run(run(None)) == 1  # the model is small
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
        look()
        assert seen == [3, 3]
    finally:
        torch.set_num_threads(before)


def test_a_cancelled_request_frees_its_row(model: Any) -> None:
    async def run() -> None:
        async with LocalEngine(model, max_running=1, threads=1) as engine:
            endless = asyncio.create_task(engine.generate([1, 2], Sampling(max_tokens=4_000)))
            await until_running(engine)
            waiting = asyncio.create_task(engine.generate([3], Sampling(max_tokens=4_000)))
            patient = asyncio.create_task(engine.generate([5, 6], SHORT))
            await asyncio.sleep(0.01)
            assert not patient.done()  # there is one row only
            waiting.cancel()
            endless.cancel()
            assert error(model, await patient) < 1e-4
            with pytest.raises(asyncio.CancelledError):
                await endless
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(engine.generate([1], Sampling(max_tokens=4_000)), 0.05)
            assert len((await engine.generate([7], SHORT)).ids) == 4
            cache = engine._scheduler.kv_cache
            assert cache.allocator.free_tokens == cache.allocator.length

    asyncio.run(run())


def test_what_is_over_gives_its_room_back(model: Any) -> None:
    async def run() -> None:
        async with LocalEngine(model, threads=1) as engine:
            rng = random.Random(0)
            allocator = engine._scheduler.kv_cache.allocator
            await asyncio.gather(*(engine.generate(text(rng, 50), SHORT, conversation=at) for at in range(20)))
            assert allocator.free_tokens < allocator.length  # the conversations may go on
            for at in range(20):
                engine.forget(at)
            engine.forget("never seen")
            await engine.generate([1], SHORT)  # nameless, so it leaves nothing
            assert allocator.free_tokens == allocator.length
            asked = asyncio.create_task(engine.generate([1], Sampling(max_tokens=50), conversation="b"))
            await until_running(engine)
            engine.forget("b")  # before its last request is over
            await asked
            assert allocator.free_tokens == allocator.length

    asyncio.run(run())


@pytest.mark.parametrize("runner", ["native", "transformers", "recompute"])
def test_a_model_that_breaks_fails_what_runs_and_nothing_else(runner: Any) -> None:
    model = qwen3(max_position_embeddings=4096)

    async def run() -> None:
        async with LocalEngine(model, runner=runner, max_running=4, threads=1) as engine:
            await engine.generate([1, 2, 3], SHORT, conversation="a")
            with broken(model, RuntimeError("a wire came loose")):
                said = await asyncio.gather(
                    *(engine.generate([at, 2], SHORT, conversation=at) for at in range(4)), return_exceptions=True
                )
            assert all(isinstance(err, EngineFailed) and "a wire came loose" in str(err) for err in said)
            for key in ("a", 2, "new"):
                done = await engine.generate([1, 2, 3, 4], SHORT, conversation=key)
                assert error(model, done) < 1e-4

    asyncio.run(run())


@pytest.mark.parametrize("runner", ["native", "transformers"])
def test_weights_that_are_not_finite_fail_and_leave_nothing_behind(runner: Any) -> None:
    model = qwen3()

    async def run() -> None:
        async with LocalEngine(model, runner=runner, threads=1) as engine:
            good = {name: value.clone() for name, value in model.state_dict().items()}
            async with engine.paused():
                with torch.no_grad():
                    model.model.layers[0].self_attn.v_proj.weight[0, 0] = float("nan")
                await engine.publish(None, engine.version + 1)
            said = await asyncio.gather(
                *(engine.generate([at] * 40, SHORT, conversation=at) for at in range(6)), return_exceptions=True
            )
            assert all(isinstance(err, EngineFailed) and "not finite" in str(err) for err in said)
            async with engine.paused():
                model.load_state_dict(good)
                await engine.publish(None, engine.version + 1)
            done = await asyncio.gather(*(engine.generate([at] * 3, SHORT, conversation=at) for at in range(6)))
            assert max(error(model, reply) for reply in done) < 1e-4

    asyncio.run(run())


def test_pausing_waits_for_the_step_and_holds_the_next(model: Any) -> None:
    async def run() -> None:
        async with LocalEngine(model, threads=1) as engine:
            asked = [asyncio.create_task(engine.generate([at], Sampling(max_tokens=60))) for at in range(4)]
            await until_running(engine)
            async with engine.paused(), engine.paused():
                steps = engine.stats.steps
                late = asyncio.create_task(engine.generate([9], SHORT))
                await asyncio.sleep(0.05)
                assert engine.stats.steps == steps
                assert not late.done()
            said = await asyncio.gather(*asked, late)
            assert max(error(model, done) for done in said) < 1e-4
            with pytest.raises(BadValue, match="without a matching pause"):
                await engine.resume()
            async with engine.paused():
                pass  # with nothing to do

    asyncio.run(run())


def test_a_pause_that_is_given_up_does_not_last(model: Any) -> None:
    async def run() -> None:
        async with LocalEngine(model, threads=1) as engine:
            asked = asyncio.create_task(engine.generate([1], Sampling(max_tokens=60)))
            await until_running(engine)
            pausing = asyncio.create_task(engine.pause())
            await asyncio.sleep(0)
            pausing.cancel()
            await asyncio.gather(pausing, return_exceptions=True)
            if not pausing.cancelled():
                await engine.resume()
            assert len((await asked).ids) == 60

    asyncio.run(run())


def test_closing_ends_everything_and_may_be_done_twice(model: Any) -> None:
    before = {thread.name for thread in threading.enumerate()}

    async def run() -> None:
        engine = LocalEngine(model, max_running=2, threads=1)
        asked = [asyncio.create_task(engine.generate([at], Sampling(max_tokens=4_000))) for at in range(5)]
        await until_running(engine)
        assert any("palestra" in thread.name for thread in threading.enumerate())
        await engine.aclose()
        for err in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(err, EngineFailed)
            assert "closed" in str(err)
        with pytest.raises(EngineFailed, match="closed"):
            await engine.generate([1], SHORT)
        await engine.aclose()
        assert engine._scheduler.kv_cache.keys == []
        never_used = LocalEngine(model)
        await never_used.aclose()

    asyncio.run(run())
    assert {thread.name for thread in threading.enumerate()} <= before


def test_an_engine_that_is_dropped_leaves_no_thread(model: Any) -> None:
    def threads() -> int:
        return sum("palestra" in thread.name for thread in threading.enumerate())

    before = threads()

    async def run() -> None:
        engine = LocalEngine(model, threads=1)
        await engine.generate([1], SHORT)

    asyncio.run(run())
    for _ in range(200):
        gc.collect()
        if threads() == before:
            break
        time.sleep(0.01)
    assert threads() == before


def test_thousands_of_requests_may_wait(model: Any) -> None:
    async def run() -> None:
        async with LocalEngine(model, max_running=64, threads=1) as engine:
            rng = random.Random(1)
            asked = [engine.generate(text(rng, rng.randint(1, 8)), Sampling(max_tokens=1)) for _ in range(3_000)]
            said = await asyncio.gather(*asked)
            assert all(len(done.ids) == 1 for done in said)
            assert engine.stats.sampled == 3_000
            assert max(error(model, done) for done in said[::300]) < 1e-4

    asyncio.run(run())


@pytest.mark.parametrize("company", [0, 3])
def test_in_lockstep_a_run_repeats_bit_for_bit(model: Any, company: int) -> None:
    async def converse(engine: LocalEngine, key: int) -> list[Completion]:
        rng = random.Random(key)
        ids = text(rng, rng.randint(1, 60))
        said = []
        for turn in range(3):
            said.append(await engine.generate(ids, Sampling(max_tokens=7, seed=key * 10 + turn), conversation=key))
            ids = ids + said[-1].ids + text(rng, 5)
        return said

    async def run() -> list[Any]:
        async with LocalEngine(model, lockstep=True) as engine:
            talks = await asyncio.gather(*(converse(engine, key) for key in range(1 + company)))
            assert max(error(model, done) for talk in talks for done in talk) < 1e-4
            return [(done.ids, done.logprobs) for talk in talks for done in talk]

    assert asyncio.run(run()) == asyncio.run(run())


def test_in_lockstep_too_loops_end_and_engines_pause(model: Any) -> None:
    engine = LocalEngine(model, lockstep=True)

    async def leave() -> None:
        asyncio.create_task(engine.generate([1, 2], Sampling(max_tokens=4_000)))  # noqa: RUF006
        await until_running(engine)

    async def ask() -> None:
        asked = asyncio.create_task(engine.generate([1, 2], Sampling(max_tokens=30)))
        await until_running(engine)
        async with engine.paused():
            steps = engine.stats.steps
            await asyncio.sleep(0.01)
            assert engine.stats.steps == steps
        assert len((await asked).ids) == 30

    asyncio.run(leave())
    asyncio.run(ask())
    asyncio.run(engine.aclose())
