"""Test an engine client and its channel in one process: replies, errors and the end of conversations."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from palestra.engines import Completion, LocalEngine, Sampling
from palestra.engines.client import EngineClient
from palestra.engines.local.channel import EngineChannel
from palestra.errors import BadValue, EngineFailed
from tests.engines import tiny

SAMPLING = Sampling(max_tokens=6, seed=5, stop=("w3",))


class Connection:
    """A client and a channel that exchange pickled batches in the event loop."""

    def __init__(self, engine: LocalEngine) -> None:
        self.loop = asyncio.get_running_loop()
        self.sent: list[int] = []  # number of new tokens in every request
        self.channel = EngineChannel(engine, lambda: self._soon(self._to_client))
        self.client = EngineClient(self.channel.info, lambda: self._soon(self._to_channel))

    def _soon(self, call: Callable[[], None]) -> None:
        self.loop.call_soon(call)

    def _to_channel(self) -> None:
        batch = pickle.loads(pickle.dumps(self.client.take_batch()))
        self.sent += [len(request[3]) // 4 for request in batch.requests]
        self.channel.receive(batch)

    def _to_client(self) -> None:
        self.client.receive(pickle.loads(pickle.dumps(self.channel.take_batch())))


def close(one: Completion, other: Completion) -> bool:
    pairs = zip(one.logprobs, other.logprobs, strict=True)
    same = (one.ids, one.text, one.finish, one.prompt_ids) == (other.ids, other.text, other.finish, other.prompt_ids)
    return same and all(abs(a - b) < 1e-4 for a, b in pairs)


def run(test: Any, **options: Any) -> None:
    async def connected() -> None:
        async with LocalEngine(tiny.qwen3(), tokenizer=tiny.words(), device="cpu", eos_ids=(7,), **options) as engine:
            await test(engine, Connection(engine))

    asyncio.run(connected())


def test_replies_equal_those_of_the_engine_and_requests_contain_only_new_tokens() -> None:
    async def test(engine: LocalEngine, connection: Connection) -> None:
        prompt = [1, 2, 3, 4, 5]
        for turn in range(3):
            sampling = Sampling(max_tokens=6, seed=turn, stop=("w3",), tempered_logprobs=True, temperature=0.7)
            expected = await engine.generate(prompt, sampling)
            reply = await connection.client.generate(prompt, sampling, conversation="a")
            assert close(reply, expected)
            prompt = [*prompt, *reply.ids, 9, 8]
        assert connection.sent == [5, 2, 2]
        other = await connection.client.generate([4, 4, 4], SAMPLING, conversation="a")  # does not extend the last one
        assert close(other, await engine.generate([4, 4, 4], SAMPLING))
        assert connection.sent[-1] == 3
        connection.client.forget("a")
        await asyncio.sleep(0)
        assert not connection.channel._conversations

    run(test)


def test_concurrent_requests_in_one_conversation() -> None:
    async def test(engine: LocalEngine, connection: Connection) -> None:
        prompts = [[1, 2, 3], [4, 5], [6, 1, 2, 3]]
        replies = await asyncio.gather(
            *(connection.client.generate(prompt, SAMPLING, conversation="a") for prompt in prompts)
        )
        after = [*prompts[0], *replies[0].ids, 1]
        replies.append(await connection.client.generate(after, SAMPLING, conversation="a"))
        for prompt, reply in zip([*prompts, after], replies, strict=True):
            assert close(reply, await engine.generate(prompt, SAMPLING))

    run(test)


def test_errors_and_cancellations() -> None:
    async def test(engine: LocalEngine, connection: Connection) -> None:
        client = connection.client
        with pytest.raises(BadValue, match="prompt ids must be in 0"):
            await client.generate([1, 500], SAMPLING)
        with pytest.raises(BadValue, match="may have at most 64"):
            await client.generate([1] * 80, SAMPLING)
        async with engine.paused():
            request = asyncio.ensure_future(client.generate([1, 2], SAMPLING, conversation="a"))
            await asyncio.sleep(0.01)
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
            async with asyncio.timeout(60):
                while connection.channel._running or client._futures:
                    await asyncio.sleep(0.001)
        assert close(await client.generate([1, 2], SAMPLING, conversation="a"), await engine.generate([1, 2], SAMPLING))
        waiting = asyncio.ensure_future(client.generate([1, 2], Sampling(max_tokens=60)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await engine.aclose()
        with pytest.raises(EngineFailed, match="closed"):
            await waiting
        with pytest.raises(EngineFailed, match="closed"):
            await client.generate([1, 2], SAMPLING)

    run(test, max_context=64)
