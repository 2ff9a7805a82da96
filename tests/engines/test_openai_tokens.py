"""Test that OpenAIEngine returns exact token ids and log-probabilities, or an error if the server cannot."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palestra.engines
from palestra.engines import ByteTokenizer, Completion, Sampling
from palestra.engines.openai import OpenAIEngine
from palestra.errors import BadValue, ContextFull, EngineFailed, ParsingFailed
from tests.engines.stub_server import EOS, TOKENIZER, Stub, distribution, rejects, responds_with

T = TypeVar("T")
PROMPT = TOKENIZER.encode("What now?")
COMPLETIONS = "/v1/completions"


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@pytest.fixture(scope="module")
def vllm() -> Iterator[Stub]:
    with Stub() as server:
        yield server


@pytest.fixture(scope="module", params=["vllm", "sglang"])
def server(request: pytest.FixtureRequest) -> Iterator[Stub]:
    with Stub(request.param) as server:
        yield server


def make_engine(server: Stub, **options: Any) -> OpenAIEngine:
    return OpenAIEngine(server.url, tokenizer=TOKENIZER, **{"retries": 0, "exact": True} | options)


def generate(server: Stub, prompt: list[int] = PROMPT, options: Any = None, **sampling: Any) -> Completion:
    return run(make_engine(server, **(options or {})).generate(prompt, Sampling(**sampling)))


def assert_exact(done: Completion) -> None:
    whole = done.prompt_ids + done.ids
    start = len(done.prompt_ids)
    forced = [distribution(whole[at - 1])[whole[at]] for at in range(start, len(whole))]
    assert done.logprobs == pytest.approx(forced, abs=1e-9)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.5, "top_k": 4}, {"temperature": 0.0}, {"seed": 9}])
def test_ids_and_logprobs_equal_those_of_the_model(server: Stub, sampling: Any) -> None:
    done = generate(server, max_tokens=30, **sampling)
    assert done.prompt_ids == PROMPT
    assert done.text == TOKENIZER.decode(done.ids[:-1] if done.finish == "stop" else done.ids)
    assert_exact(done)


@settings(max_examples=15)
@given(st.integers(0, 2**64), st.floats(0.1, 2.0), st.integers(1, 40))
def test_random_replies_are_exact(vllm: Stub, seed: int, temperature: float, limit: int) -> None:
    done = generate(vllm, seed=seed, temperature=temperature, max_tokens=limit)
    assert len(done.ids) <= limit
    assert (done.finish == "stop") == (done.ids[-1] == EOS)
    assert_exact(done)


def test_seeded_replies_are_repeatable(server: Stub) -> None:
    assert generate(server, seed=2**40).ids == generate(server, seed=2**40).ids


def test_stop_ids_and_strings(server: Stub) -> None:
    free = generate(server, temperature=0.0, max_tokens=12)
    stop = free.ids[4]
    done = generate(server, temperature=0.0, stop_ids=(stop,))
    assert done.ids == free.ids[: free.ids.index(stop) + 1]
    assert (done.text, done.finish) == (TOKENIZER.decode(done.ids[:-1]), "stop")
    whole = TOKENIZER.decode(free.ids)
    done = generate(server, temperature=0.0, stop=(whole[3:5],))
    assert (done.text, done.finish) == (whole[: whole.index(whole[3:5])], "stop")


def test_requests_contain_all_sampling_parameters(server: Stub) -> None:
    """Check that all parameters are sent, because the server would take missing ones from generation_config.json."""
    generate(server)
    body = server.requests[-1][1]
    params = body.get("sampling_params", body)
    assert {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
    }.items() <= params.items()


def test_capabilities_are_probed_once() -> None:
    with Stub() as server:
        engine = make_engine(server)

        async def many() -> None:
            await asyncio.gather(*(engine.generate(PROMPT, Sampling(max_tokens=2)) for _ in range(20)))

        run(many())
        run(many())
        assert server.count("/v1/models") == 1
        assert server.count(COMPLETIONS) == 3 + 40
    assert (engine.model, engine.max_context) == ("toy", 256)


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_scaled_logprobs_are_detected(kind: Literal["vllm", "sglang"]) -> None:
    with Stub(kind, processed=True) as server:
        assert_exact(generate(server, temperature=1.0))
        assert_exact(generate(server, temperature=0.0))
        for sampling in ({"temperature": 0.7}, {"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.1}):
            with pytest.raises(BadValue, match="--logprobs-mode raw_logprobs .*SGLANG_RETURN_ORIGINAL_LOGPROB=1"):
                generate(server, **sampling)


def test_server_without_token_ids_falls_back_to_chat(caplog: pytest.LogCaptureFixture) -> None:
    async def talk(engine: OpenAIEngine) -> Completion:
        async with engine:
            assert engine.tokenizer is None
            return await engine.chat([{"role": "user", "content": "hi"}], Sampling(max_tokens=5, temperature=0.0))

    with Stub("plain") as server, caplog.at_level(logging.WARNING):
        done = run(talk(make_engine(server, exact=False)))
        assert "log-probabilities but no token ids" in caplog.text
        assert "training cannot use" in caplog.text
        assert done.ids == []
        assert done.text

        with pytest.raises(BadValue, match="accepts messages, not token ids: the server returns no token ids"):
            run(make_engine(server, exact=False).generate(PROMPT, Sampling()))
        with pytest.raises(BadValue, match="no token ids .*vLLM 0.10.2 or newer and SGLang return them"):
            run(make_engine(server, exact=True).ready())


def test_chat_on_a_token_engine_raises(vllm: Stub) -> None:
    with pytest.raises(BadValue, match="render the messages with its tokenizer"):
        run(make_engine(vllm).chat([], Sampling()))


def test_mismatched_tokenizer_raises(vllm: Stub) -> None:
    class Other(ByteTokenizer):
        def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
            return [token ^ 1 for token in super().encode(text)]

    with pytest.raises(BadValue, match="the tokenizer does not match 'toy'"):
        run(OpenAIEngine(vllm.url, tokenizer=Other()).ready())


def test_reply_is_limited_by_the_context(server: Stub) -> None:
    prompt = (PROMPT * 40)[:250]
    done = generate(server, prompt, max_tokens=1000, seed=1)
    assert len(done.ids) <= 6
    assert server.requests[-1][1].get("max_tokens", 6) == 6
    own = generate(server, PROMPT, {"max_context": len(PROMPT) + 2}, max_tokens=50, temperature=0.0)
    assert (len(own.ids), own.finish) == (2, "length")


def test_prompt_longer_than_the_context_raises(server: Stub) -> None:
    long = (PROMPT * 40)[:300]
    with pytest.raises(ContextFull, match="a prompt of 300 tokens leaves no room for a reply in a context of 256"):
        generate(server, long)

    async def rejected_by_the_server() -> None:
        engine = make_engine(server)
        await engine.ready()
        engine.max_context = None
        await engine.generate(long, Sampling(max_tokens=7))

    with pytest.raises(ContextFull, match=r"max_tokens=7 do not fit: .*returned 400: .*256 tokens.* 300 input tokens"):
        run(rejected_by_the_server())


CHOICE = {
    "text": "a",
    "finish_reason": "stop",
    "token_ids": [97, EOS],
    "prompt_token_ids": PROMPT,
    "logprobs": {"token_logprobs": [-1.0, -2.0]},
}


@pytest.mark.parametrize(
    ("response", "error", "problem"),
    [
        ([], ParsingFailed, "exactly one choice"),
        ({"choices": []}, ParsingFailed, "exactly one choice"),
        ({"choices": [CHOICE, CHOICE]}, ParsingFailed, "exactly one choice"),
        ({"choices": [{**CHOICE, "token_ids": None}]}, ParsingFailed, "log-probabilities but no token ids"),
        ({"choices": [{**CHOICE, "token_ids": []}]}, ParsingFailed, "must be a list of integers"),
        ({"choices": [{**CHOICE, "token_ids": [97, "b"]}]}, ParsingFailed, "must be a list of integers"),
        ({"choices": [{**CHOICE, "token_ids": [97]}]}, ParsingFailed, "1 token ids and 2 log-prob"),
        ({"choices": [{**CHOICE, "logprobs": None}]}, ParsingFailed, "no log-probabilities"),
        (
            {"choices": [{**CHOICE, "logprobs": {"token_logprobs": [None, -1]}}]},
            ParsingFailed,
            "must be a list of numbers",
        ),
        ({"choices": [{**CHOICE, "logprobs": {"token_logprobs": [3.5, -1]}}]}, EngineFailed, "they are logits"),
        ({"choices": [{**CHOICE, "text": 5}]}, ParsingFailed, "must be a string, got int"),
        ({"choices": [{**CHOICE, "prompt_token_ids": [1]}]}, EngineFailed, "read a different prompt"),
        ({"choices": [{**CHOICE, "finish_reason": "abort"}]}, EngineFailed, "ended the reply abnormally.*'abort'"),
        ({"choices": [{**CHOICE, "finish_reason": None}]}, EngineFailed, "ended the reply abnormally"),
    ],
)
def test_invalid_completions_raise(vllm: Stub, response: Any, error: type[Exception], problem: str) -> None:
    async def generate_once() -> None:
        engine = make_engine(vllm)
        await engine.ready()
        vllm.faults[COMPLETIONS] = [responds_with(response)]
        await engine.generate(PROMPT, Sampling())

    with pytest.raises(error, match=problem):
        run(generate_once())


@pytest.mark.parametrize(
    ("meta", "error", "problem"),
    [
        (None, ParsingFailed, "no meta_info"),
        ({}, ParsingFailed, "no output_token_logprobs"),
        ({"output_token_logprobs": [[-1.0]]}, ParsingFailed, "no output_token_logprobs"),
        (
            {"output_token_logprobs": [[-1.0, 5, None]], "prompt_tokens": 1},
            EngineFailed,
            "but 9 were sent",
        ),
        ({"output_token_logprobs": [[-1.0, 5, None]]}, EngineFailed, "ended the reply abnormally"),
        ({"output_token_logprobs": [], "finish_reason": {"type": "stop"}}, ParsingFailed, "must be a list of integers"),
    ],
)
def test_invalid_sglang_responses_raise(meta: Any, error: type[Exception], problem: str) -> None:
    async def generate_once(server: Stub) -> None:
        engine = make_engine(server)
        await engine.ready()
        server.faults["/generate"] = [responds_with({"text": "a", "meta_info": meta})]
        await engine.generate(PROMPT, Sampling())

    with Stub("sglang") as server, pytest.raises(error, match=problem):
        run(generate_once(server))


def test_failed_probe_is_repeated(vllm: Stub) -> None:
    engine = make_engine(vllm)
    vllm.faults[COMPLETIONS] = [rejects(503)]
    with pytest.raises(EngineFailed, match="503"):
        run(engine.generate(PROMPT, Sampling()))
    assert run(engine.generate(PROMPT, Sampling(max_tokens=3))).prompt_ids == PROMPT


def test_concurrent_requests_share_one_probe() -> None:
    with Stub() as server:
        server.faults["/v1/models"] = [rejects(500)] * 3
        engine = make_engine(server, retries=2, backoff=0.001)

        async def many() -> list[Any]:
            requests = [engine.generate(PROMPT, Sampling(max_tokens=1)) for _ in range(20)]
            return await asyncio.gather(*requests, return_exceptions=True)

        assert all(isinstance(outcome, EngineFailed) for outcome in run(many()))
        assert server.count("/v1/models") == 3
        assert all(isinstance(outcome, Completion) for outcome in run(many()))


def test_version_must_not_decrease(vllm: Stub) -> None:
    engine = make_engine(vllm)
    assert run(engine.generate(PROMPT, Sampling(max_tokens=1))).version == 0
    engine.set_version(5)
    assert run(engine.generate(PROMPT, Sampling(max_tokens=1))).version == 5
    with pytest.raises(BadValue, match="must not decrease: got 4"):
        engine.set_version(4)


def test_completion_has_the_version_of_its_request(vllm: Stub) -> None:
    async def change() -> Completion:
        engine = make_engine(vllm)
        await engine.ready()
        task = asyncio.create_task(engine.generate(PROMPT, Sampling(max_tokens=1)))
        await asyncio.sleep(0)
        engine.set_version(1)
        return await task

    assert run(change()).version == 0


def test_tokenizer_from_a_folder(vllm: Stub, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    bytelevel: Any = Tokenizer(
        models.BPE(vocab={char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[])
    )
    bytelevel.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytelevel.decoder = decoders.ByteLevel()
    fast: Any = PreTrainedTokenizerFast
    fast(tokenizer_object=bytelevel).save_pretrained(tmp_path)
    engine = palestra.engines.OpenAIEngine(vllm.url, tokenizer=tmp_path)
    assert engine.tokenizer is not None
    assert engine.tokenizer.decode(engine.tokenizer.encode("h\u00e9 you")) == "h\u00e9 you"
    with pytest.raises(BadValue, match="the tokenizer does not match"):  # different ids for the same bytes
        run(engine.ready())
    with pytest.raises(BadValue, match="no tokenizer at"):
        OpenAIEngine(vllm.url, tokenizer=tmp_path / "nothing")


def test_exact_needs_a_tokenizer(vllm: Stub) -> None:
    with pytest.raises(BadValue, match="exact=True needs the tokenizer of the server"):
        OpenAIEngine(vllm.url, exact=True)
