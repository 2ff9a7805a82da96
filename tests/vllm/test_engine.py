"""Test that OpenAIEngine with a vLLM server returns the model's token ids and log-probabilities."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from transformers import AutoTokenizer, Qwen3ForCausalLM

from palestra.engines import ByteTokenizer, Completion, Sampling
from palestra.engines.openai import OpenAIEngine
from palestra.errors import BadValue, ContextFull
from tests.vllm.conftest import CONTEXT

T = TypeVar("T")
CHATS = [
    [{"role": "user", "content": "guess a number"}],
    [{"role": "system", "content": "be brief"}, {"role": "user", "content": "the answer is 42, \u4f60\u597d"}],
    [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "no"},
        {"role": "user", "content": "more " * 30},
    ],
]


@pytest.fixture(scope="module")
def tokenizer(model_folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(model_folder)


@pytest.fixture(scope="module")
def model(model_folder: Path) -> Iterator[Any]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # leaves the other CPU cores to the server
    qwen: Any = Qwen3ForCausalLM  # untyped
    yield qwen.from_pretrained(model_folder, dtype=torch.float32).eval()
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def prompts(tokenizer: Any) -> list[list[int]]:
    texts = [tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) for chat in CHATS]
    return [tokenizer.encode(text, add_special_tokens=False) for text in texts]


@pytest.fixture
def engine(server: str, tokenizer: Any) -> OpenAIEngine:
    return OpenAIEngine(server, tokenizer=tokenizer, exact=True, retries=0)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def all_of(engine: OpenAIEngine, prompts: list[list[int]], samplings: list[Sampling]) -> list[Completion]:
    async with engine:
        requests = [engine.generate(prompt, sampling) for prompt, sampling in zip(prompts, samplings, strict=True)]
        return await asyncio.gather(*requests)


def distributions(model: Any, done: Completion) -> torch.Tensor:
    """Return log-probabilities over the vocabulary at each sampled position, from one forward pass."""
    with torch.no_grad():
        logits = model(torch.tensor([done.prompt_ids + done.ids])).logits[0]
    return torch.log_softmax(logits[len(done.prompt_ids) - 1 : -1], dim=-1)


def assert_exact(model: Any, done: Completion) -> None:
    forced = distributions(model, done)[torch.arange(len(done.ids)), torch.tensor(done.ids)]
    assert torch.allclose(forced, torch.tensor(done.logprobs), atol=1e-4, rtol=0)


def test_server_capabilities(engine: OpenAIEngine) -> None:
    run(engine.ready())
    assert engine.model == "tiny"
    assert engine.max_context == CONTEXT
    assert engine.tokenizer is not None


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=24),
        Sampling(max_tokens=24, temperature=0.0),
        Sampling(max_tokens=24, temperature=0.6, top_p=0.9, top_k=20, min_p=0.02),
        Sampling(max_tokens=24, temperature=1.7, seed=5),
    ],
)
def test_ids_and_logprobs_equal_a_forward_pass(
    engine: OpenAIEngine, model: Any, prompts: list[list[int]], sampling: Sampling
) -> None:
    for prompt, done in zip(prompts, run(all_of(engine, prompts, [sampling] * len(prompts))), strict=True):
        assert done.prompt_ids == prompt
        assert 1 <= len(done.ids) <= 24
        assert_exact(model, done)


def test_multi_turn_conversation_is_exact(
    engine: OpenAIEngine, model: Any, tokenizer: Any, prompts: list[list[int]]
) -> None:
    async def talk() -> list[Completion]:
        turns, prompt = [], prompts[0]
        async with engine:
            for turn in range(5):
                turns.append(await engine.generate(prompt, Sampling(max_tokens=16, seed=turn)))
                message = f"<|im_end|>\n<|im_start|>user\nturn {turn}<|im_end|>\n<|im_start|>assistant\n"
                prompt = prompt + turns[-1].ids + tokenizer.encode(message, add_special_tokens=False)
        return turns

    for done in run(talk()):  # the server reads all but the new tokens from its prefix cache
        assert_exact(model, done)


def test_temperature_zero_is_greedy(engine: OpenAIEngine, model: Any, prompts: list[list[int]]) -> None:
    for done in run(all_of(engine, prompts, [Sampling(max_tokens=16, temperature=0.0)] * len(prompts))):
        assert distributions(model, done).argmax(dim=-1).tolist() == done.ids


def test_top_k_and_min_p(engine: OpenAIEngine, model: Any, prompts: list[list[int]]) -> None:
    for done in run(all_of(engine, prompts, [Sampling(max_tokens=32, top_k=3)] * len(prompts))):
        best = distributions(model, done).topk(3, dim=-1).indices
        assert all(token in row for token, row in zip(done.ids, best.tolist(), strict=True))
    for done in run(all_of(engine, prompts, [Sampling(max_tokens=32, min_p=0.5)] * len(prompts))):
        rows = distributions(model, done)
        gaps = rows.max(dim=-1).values - rows[torch.arange(len(done.ids)), torch.tensor(done.ids)]
        assert gaps.max() <= -torch.log(torch.tensor(0.5)) + 1e-3


def test_generation_config_is_ignored(engine: OpenAIEngine, model: Any, prompts: list[list[int]]) -> None:
    """Check that requests override top_k=2 and the other defaults in the model's generation_config.json."""
    ranks = []
    for done in run(all_of(engine, prompts, [Sampling(max_tokens=40, seed=1)] * len(prompts))):
        rows = distributions(model, done)
        ranks += (rows > rows[torch.arange(len(done.ids)), torch.tensor(done.ids)][:, None]).sum(dim=-1).tolist()
    assert sum(rank >= 2 for rank in ranks) > len(ranks) / 2


def test_seeded_reply_does_not_depend_on_other_requests(engine: OpenAIEngine, prompts: list[list[int]]) -> None:
    seeded = Sampling(max_tokens=16, seed=2**40 + 7)
    alone = run(all_of(engine, prompts[:1], [seeded]))[0]
    beside = [Sampling(max_tokens=16, seed=seed) for seed in range(31)]
    crowd = run(all_of(engine, [prompts[i % 3] for i in range(32)], [seeded, *beside]))
    assert crowd[0].ids == alone.ids
    assert len({tuple(done.ids) for done in crowd}) > 24


def test_stop_ids(engine: OpenAIEngine, model: Any, tokenizer: Any, prompts: list[list[int]]) -> None:
    free = run(all_of(engine, prompts[:1], [Sampling(max_tokens=16, seed=3)]))[0]
    stop = free.ids[5]
    done = run(all_of(engine, prompts[:1], [Sampling(max_tokens=16, seed=3, stop_ids=(stop,))]))[0]
    assert done.ids == free.ids[: free.ids.index(stop) + 1]
    assert done.finish == "stop"
    assert done.text == tokenizer.decode(done.ids[:-1])
    assert_exact(model, done)


def test_stop_strings(engine: OpenAIEngine, model: Any, tokenizer: Any, prompts: list[list[int]]) -> None:
    free = run(all_of(engine, prompts[:1], [Sampling(max_tokens=24, seed=4)]))[0]
    whole = tokenizer.decode(free.ids)
    stop = next(whole[at : at + 3] for at in range(4, len(whole) - 3) if "\ufffd" not in whole[at : at + 3])
    done = run(all_of(engine, prompts[:1], [Sampling(max_tokens=24, seed=4, stop=("never", stop))]))[0]
    assert done.finish == "stop"
    assert done.ids == free.ids[: len(done.ids)]
    assert done.text == whole[: whole.index(stop)]
    decoded = tokenizer.decode(done.ids)
    assert stop in decoded
    assert stop not in tokenizer.decode(done.ids[:-1])  # the reply ends with the token that completes the stop string
    assert_exact(model, done)


def test_end_token_is_in_the_ids_but_not_in_the_text(
    engine: OpenAIEngine, model: Any, tokenizer: Any, prompts: list[list[int]]
) -> None:
    hot = [Sampling(max_tokens=64, temperature=2.0, seed=seed) for seed in range(24)]
    ended = [done for done in run(all_of(engine, [prompts[0]] * 24, hot)) if done.finish == "stop"]
    assert ended
    for done in ended:
        assert done.ids[-1] == tokenizer.eos_token_id
        assert done.text == tokenizer.decode(done.ids[:-1])
        assert_exact(model, done)


def test_many_requests_over_few_connections(server: str, tokenizer: Any, model: Any, prompts: list[list[int]]) -> None:
    engine = OpenAIEngine(server, tokenizer=tokenizer, concurrency=8)
    samplings = [Sampling(max_tokens=1 + seed % 12, seed=seed) for seed in range(96)]
    replies = run(all_of(engine, [prompts[i % 3] for i in range(96)], samplings))
    assert all(len(done.ids) <= sampling.max_tokens for done, sampling in zip(replies, samplings, strict=True))
    for done in replies[::8]:
        assert_exact(model, done)


def test_reply_is_limited_by_the_context(engine: OpenAIEngine, prompts: list[list[int]]) -> None:
    long = (prompts[2] * 20)[: CONTEXT - 5]
    done = run(all_of(engine, [long], [Sampling(max_tokens=400, seed=0)]))[0]
    assert (len(done.ids), done.finish) == (5, "length")


def test_prompt_longer_than_the_context_raises(engine: OpenAIEngine, server: str, prompts: list[list[int]]) -> None:
    long = (prompts[2] * 20)[: CONTEXT + 88]
    with pytest.raises(ContextFull, match=f"{len(long)} tokens leaves no room for a reply in a context of {CONTEXT}"):
        run(all_of(engine, [long], [Sampling()]))

    async def rejected_by_the_server() -> None:
        await engine.ready()
        engine.max_context = None
        await engine.generate(long, Sampling())

    with pytest.raises(ContextFull, match=f"do not fit: {server} returned 400: .*{CONTEXT} tokens.*{len(long)} input"):
        run(rejected_by_the_server())


def test_out_of_vocabulary_token_raises(engine: OpenAIEngine) -> None:
    with pytest.raises(BadValue, match="out of vocabulary"):
        run(all_of(engine, [[1, 100_000]], [Sampling()]))


def test_mismatched_tokenizer_raises(server: str) -> None:
    with pytest.raises(BadValue, match="the tokenizer does not match 'tiny'"):
        run(OpenAIEngine(server, tokenizer=ByteTokenizer()).ready())


def test_misspelled_model_raises(server: str, tokenizer: Any) -> None:
    problem = "no model 'tini'. Did you mean 'tiny'"
    with pytest.raises(BadValue, match=problem):
        run(OpenAIEngine(server, "tini", tokenizer=tokenizer).ready())
    with pytest.raises(BadValue, match=problem):
        run(OpenAIEngine(server, "tini").chat([{"role": "user", "content": "x"}], Sampling()))


def test_chat_without_a_tokenizer(server: str, model: Any, tokenizer: Any, prompts: list[list[int]]) -> None:
    async def talk() -> tuple[Completion, Completion]:
        async with OpenAIEngine(server) as engine:
            messages: Any = CHATS[0]
            greedy = await engine.chat(messages, Sampling(max_tokens=10_000, temperature=0.0, stop_ids=(0,)))
            seeded = await engine.chat(messages, Sampling(max_tokens=8, seed=1, top_k=5, min_p=0.01))
            with pytest.raises(ContextFull, match="do not fit"):
                await engine.chat([{"role": "user", "content": "long " * CONTEXT}], Sampling())
            return greedy, seeded

    greedy, seeded = run(talk())
    assert (greedy.ids, greedy.logprobs, greedy.prompt_ids) == ([], [], [])
    assert seeded.finish == "length"
    with torch.no_grad():
        ids = model.generate(torch.tensor([prompts[0]]), max_new_tokens=6, do_sample=False, repetition_penalty=1.0)
    first = tokenizer.decode(ids[0, len(prompts[0]) :], skip_special_tokens=True).split("\ufffd")[0]
    assert greedy.text.startswith(first)


def test_server_aborts_cancelled_requests(server: str, tokenizer: Any, prompts: list[list[int]]) -> None:
    metrics = server.removesuffix("/v1") + "/metrics"

    def running() -> float:
        with urllib.request.urlopen(metrics, timeout=10) as page:
            lines = page.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:num_requests_running"))

    async def leave() -> None:
        async with OpenAIEngine(server, tokenizer=tokenizer) as engine:
            long = Sampling(max_tokens=CONTEXT, seed=0)
            tasks = [asyncio.create_task(engine.generate(prompts[0], long)) for _ in range(4)]
            await asyncio.sleep(0.3)
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(outcome, (asyncio.CancelledError, Completion)) for outcome in outcomes)

    run(leave())
    end = time.monotonic() + 30
    while running() and time.monotonic() < end:
        time.sleep(0.1)
    assert running() == 0
