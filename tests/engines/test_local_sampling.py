"""Test LocalEngine's sampling: greedy decoding, seeds, distribution, stop ids and stop strings."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
import torch

from palestra.engines import Completion, LocalEngine, Sampling
from palestra.errors import BadValue
from tests.engines.tiny import VOCABULARY, bytewise, error, qwen3, text, words

TOLERANCE = 1e-4
RUNNERS = ["native", "transformers", "recompute"]


@pytest.mark.parametrize("runner", RUNNERS)
def test_greedy_replies_equal_transformers_generate(runner: Any) -> None:
    model = qwen3()
    rng = random.Random(9)
    prompts = [text(rng, length) for length in (1, 7, 30, 64)]

    async def run() -> list[Completion]:
        async with LocalEngine(model, runner=runner, threads=1) as engine:
            greedy = Sampling(max_tokens=25, temperature=0.0)
            return list(await asyncio.gather(*(engine.generate(ids, greedy) for ids in prompts)))

    for ids, done in zip(prompts, asyncio.run(run()), strict=True):
        alone = model.generate(
            input_ids=torch.tensor([ids]),
            attention_mask=torch.ones((1, len(ids)), dtype=torch.long),
            do_sample=False,
            max_new_tokens=25,
            pad_token_id=0,
        )
        assert done.ids == alone[0, len(ids) :].tolist()
        assert error(model, done) < TOLERANCE


def test_seeded_reply_does_not_depend_on_other_requests() -> None:
    model = qwen3()
    rng = random.Random(10)
    ids = text(rng, 30)
    sampling = Sampling(max_tokens=40, seed=123, temperature=0.9, top_p=0.95)

    async def run(others_count: int) -> list[int]:
        async with LocalEngine(model, threads=1) as engine:
            others = [
                engine.generate(text(rng, rng.randint(1, 80)), Sampling(max_tokens=rng.randint(1, 60), top_k=at % 3))
                for at in range(others_count)
            ]
            first, *_ = await asyncio.gather(engine.generate(ids, sampling), *others)
            return first.ids

    alone = asyncio.run(run(0))
    assert asyncio.run(run(1)) == alone
    assert asyncio.run(run(25)) == alone
    other = Sampling(max_tokens=40, seed=124, temperature=0.9, top_p=0.95)

    async def two() -> None:
        async with LocalEngine(model, threads=1) as engine:
            a, b, c = await asyncio.gather(*(engine.generate(ids, item) for item in (sampling, other, sampling)))
            assert a.ids == c.ids == alone
            assert b.ids != alone

    asyncio.run(two())


def test_samples_follow_the_distribution_of_the_model() -> None:
    model = qwen3(vocab_size=11)
    ids = [3, 1, 4, 1, 5]
    draws = 3_000

    async def run(sampling: Sampling) -> list[int]:
        async with LocalEngine(model, max_running=512, threads=1) as engine:
            replies = await asyncio.gather(
                *(engine.generate(ids, Sampling(**{**_options(sampling), "seed": at})) for at in range(draws))
            )
            return [done.ids[0] for done in replies]

    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids])).logits[0, -1].double()
    for sampling in (Sampling(max_tokens=1), Sampling(max_tokens=1, temperature=2.0, top_k=4)):
        weights = (logits / sampling.temperature).softmax(-1)
        if sampling.top_k:
            weights[weights < weights.sort().values[-sampling.top_k]] = 0
            weights /= weights.sum()
        drawn = asyncio.run(run(sampling))
        counts = [drawn.count(token) for token in range(11)]
        expected = (weights * draws).tolist()
        assert all(count == 0 for count, e in zip(counts, expected, strict=True) if e == 0)
        chi = sum((count - e) ** 2 / e for count, e in zip(counts, expected, strict=True) if e > 0.5)
        assert chi < 32  # fails with probability < 0.001 (chi-squared, ten degrees of freedom); the seeds are fixed


def _options(sampling: Sampling) -> dict[str, Any]:
    return {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature, "top_k": sampling.top_k}


def test_dropout_is_disabled_during_generation() -> None:
    model = qwen3(attention_dropout=0.5).train()

    async def run(runner: Any) -> None:
        async with LocalEngine(model, runner=runner, threads=1) as engine:
            assert engine.runner == runner
            done = await engine.generate([1, 2, 3], Sampling(max_tokens=9))
            assert model.training  # sampling does not change the mode
            model.eval()
            assert error(model, done) < TOLERANCE
            model.train()

    for runner in RUNNERS:
        asyncio.run(run(runner))


def test_text_is_the_decoded_ids() -> None:
    model = qwen3()

    async def run() -> None:
        async with LocalEngine(model, tokenizer=words(), threads=1) as engine:
            done = await engine.generate([5, 6], Sampling(max_tokens=4))
            assert done.text.split() == [f"w{token}" for token in done.ids]
        async with LocalEngine(model, threads=1) as engine:
            assert engine.tokenizer is None
            assert (await engine.generate([5, 6], Sampling(max_tokens=4))).text == ""

    asyncio.run(run())


def reply(model: Any, tokenizer: Any, prompt: list[int], sampling: Sampling, **options: Any) -> Completion:
    async def run() -> Completion:
        async with LocalEngine(model, tokenizer=tokenizer, threads=1, **options) as engine:
            return await engine.generate(prompt, sampling)

    return asyncio.run(run())


def test_stop_id_ends_the_reply_and_is_included() -> None:
    model = qwen3()
    free = reply(model, words(), [1, 2, 3], Sampling(max_tokens=30, seed=5))
    stop = free.ids[12]
    cut_at = free.ids.index(stop)
    for done in (
        reply(model, words(), [1, 2, 3], Sampling(max_tokens=30, seed=5, stop_ids=(stop,))),
        reply(model, words(), [1, 2, 3], Sampling(max_tokens=30, seed=5), eos_ids=[stop]),
    ):
        assert done.ids == free.ids[: cut_at + 1]
        assert len(done.logprobs) == cut_at + 1
        assert done.finish == "stop"
        assert done.text.split() == [f"w{token}" for token in done.ids[:-1]]
    assert free.finish == "length"


def test_stop_ids_come_from_tokenizer_config_and_generation_config() -> None:
    tokenizer = words()
    tokenizer.eos_token = "w7"
    model = qwen3(eos_token_id=5)
    model.generation_config.eos_token_id = [5, 6]

    async def run() -> None:
        async with LocalEngine(model, tokenizer=tokenizer, threads=1) as engine:
            replies = await asyncio.gather(
                *(engine.generate([at], Sampling(max_tokens=400, seed=at)) for at in range(12))
            )
            ended = [done for done in replies if done.finish == "stop"]
            assert {done.ids[-1] for done in ended} == {5, 6, 7}
            assert not any({5, 6, 7} & set(done.ids[:-1]) for done in replies)

    asyncio.run(run())


def test_stop_string_is_removed_from_the_text() -> None:
    model = qwen3()
    free = reply(model, words(), [1, 2, 3], Sampling(max_tokens=30, seed=5))
    words_of_reply = free.text.split()
    stop = " ".join(words_of_reply[9:11])  # spans two tokens
    done = reply(model, words(), [1, 2, 3], Sampling(max_tokens=30, seed=5, stop=("not in the text", stop)))
    assert done.finish == "stop"
    assert done.ids == free.ids[: len(done.ids)]
    assert stop in " ".join(words_of_reply[: len(done.ids)])
    assert stop not in " ".join(words_of_reply[: len(done.ids) - 1])
    assert done.text + stop == " ".join(words_of_reply[: len(done.ids)])[: len(done.text + stop)]


def test_stop_string_may_span_several_tokens() -> None:
    tokenizer = bytewise()
    model = qwen3(vocab_size=256)
    wanted = "né→🏛x"
    ids = tokenizer.encode("ab" + wanted + "yz")
    assert len(ids) == 2 + len(wanted.encode()) + 2

    class Scripted(torch.nn.Module):  # predicts the next token of `ids` with certainty
        def __init__(self) -> None:
            super().__init__()
            self.weight = model.lm_head.weight

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            self.position = getattr(self, "position", -1) + 1
            logits = torch.full((*hidden.shape[:-1], 256), -50.0)
            logits[..., ids[self.position]] = 50.0
            return logits

    async def run(stop: str) -> Completion:
        async with LocalEngine(model, tokenizer=tokenizer, runner="transformers", threads=1) as engine:
            model.lm_head = Scripted()
            return await engine.generate([0], Sampling(max_tokens=len(ids), stop=(stop,)))

    head = model.lm_head
    for stop, before in (("🏛", "abné→"), ("é→🏛x", "abn"), ("y", "ab" + wanted)):
        model.lm_head = head
        done = asyncio.run(run(stop))
        assert (done.text, done.finish) == (before, "stop")
        assert done.ids == ids[: len((before + stop).encode())]
    model.lm_head = head
    done = asyncio.run(run("→🏛→"))
    assert (done.text, done.finish) == ("ab" + wanted + "yz", "length")


def test_invalid_requests_and_options_raise() -> None:
    model = qwen3()

    async def run() -> None:
        async with LocalEngine(model, max_context=40, threads=1) as engine:
            assert engine.max_context == 40
            with pytest.raises(BadValue, match="empty"):
                await engine.generate([], Sampling())
            with pytest.raises(BadValue, match="has 40 tokens.* at most 40"):
                await engine.generate([1] * 40, Sampling())
            with pytest.raises(BadValue, match=f"0..{VOCABULARY - 1}"):
                await engine.generate([1, VOCABULARY], Sampling())
            with pytest.raises(BadValue, match=f"0..{VOCABULARY - 1}"):
                await engine.generate([-1], Sampling())
            with pytest.raises(BadValue, match="tokenizer"):
                await engine.generate([1], Sampling(stop=("x",)))
            full = await engine.generate([1] * 39, Sampling())
            assert (len(full.ids), full.finish) == (1, "length")
            cut_short = await engine.generate([1] * 30, Sampling(max_tokens=20))
            assert (len(cut_short.ids), cut_short.finish) == (10, "length")

    asyncio.run(run())
    for options, message in (
        ({"max_running": 0}, "max_running"),
        ({"prefill_tokens": 0}, "prefill_tokens"),
        ({"threads": 0}, "threads"),
        ({"kv_cache_gb": 0}, "kv_cache_gb"),
        ({"kv_cache_gb": 1e-9}, "raise kv_cache_gb"),
        ({"max_context": 1}, "max_context"),
        ({"max_context": 513}, "at most 512"),
        ({"runner": "nativ"}, "runner"),
        ({"device": "gpu"}, "device"),
        ({"dtype": "int8"}, "dtype"),
    ):
        with pytest.raises(BadValue, match=message):
            LocalEngine(model, **options)
