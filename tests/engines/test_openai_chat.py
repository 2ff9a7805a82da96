"""Test OpenAIEngine with chat messages: requests, responses and rejected fields."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from palestra.engines import Completion, Sampling
from palestra.engines.openai import OpenAIEngine
from palestra.errors import BadValue, ContextFull, EngineFailed, ParsingFailed
from palestra.types import Message
from tests.engines.stub_server import Stub, rejects, responds_with

HI: list[Message] = [{"role": "user", "content": "hi"}]
CHAT = "/v1/chat/completions"


@pytest.fixture
def plain() -> Iterator[Stub]:
    with Stub("plain") as server:
        yield server


def chat(server: Stub, messages: list[Any] | None = None, tools: Any = (), **options: Any) -> Completion:
    sampling = options.pop("sampling", Sampling(max_tokens=8))
    engine = OpenAIEngine(server.url, **{"retries": 0} | options)
    return asyncio.run(engine.chat(messages or HI, sampling, tools=tools))


def test_reply_has_text_but_no_ids(plain: Stub) -> None:
    done = chat(plain, sampling=Sampling(max_tokens=4, temperature=0.0))
    assert done.text
    assert (done.ids, done.logprobs, done.prompt_ids, done.tool_calls) == ([], [], [], [])
    assert done.finish == "length"


def test_default_sampling_parameters_are_not_sent(plain: Stub) -> None:
    chat(plain)
    assert plain.bodies(CHAT)[-1] == {"model": "toy", "messages": HI, "max_tokens": 8, "temperature": 1.0}


def test_sampling_parameters_are_sent(plain: Stub) -> None:
    full = Sampling(
        max_tokens=3, temperature=0.3, top_p=0.8, top_k=7, min_p=0.1, stop=("x",), stop_ids=(5,), seed=2**35
    )
    chat(plain, sampling=full, extra={"chat_template_kwargs": {"enable_thinking": False}, "temperature": 9})
    body = plain.bodies(CHAT)[-1]
    assert body == {
        "model": "toy",
        "messages": HI,
        "max_tokens": 3,
        "temperature": 0.3,
        "top_p": 0.8,
        "top_k": 7,
        "min_p": 0.1,
        "stop": ["x"],
        "stop_token_ids": [5],
        "seed": 2**35 % (2**31 - 1),
        "chat_template_kwargs": {"enable_thinking": False},
    }


def test_vllm_receives_all_sampling_parameters() -> None:
    with Stub("vllm") as server:
        chat(server)
        body = server.bodies(CHAT)[-1]
        assert {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}.items() <= body.items()
        chat(server, sampling=Sampling(max_tokens=10_000))
        assert server.bodies(CHAT)[-1]["max_tokens"] == 255  # the server would reject a value beyond the context


@pytest.mark.parametrize(
    "message",
    ["Unrecognized request argument supplied: top_k", "top_k: Extra inputs are not permitted", "Unknown field top_k"],
)
def test_unsupported_field_raises(plain: Stub, message: str) -> None:
    plain.rejected_fields["top_k"] = message
    chat(plain)
    with pytest.raises(BadValue, match="the server does not support top_k; leave it at its default"):
        chat(plain, sampling=Sampling(top_k=3))


def test_max_completion_tokens_is_used_if_required(plain: Stub) -> None:
    plain.rejected_fields["max_tokens"] = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    engine = OpenAIEngine(plain.url, retries=0)

    async def twice() -> None:
        for _ in range(2):
            await engine.chat(HI, Sampling(max_tokens=5))

    asyncio.run(twice())
    names = [next(name for name in body if "max_" in name) for body in plain.bodies(CHAT)]
    assert names == ["max_tokens", "max_completion_tokens", "max_completion_tokens"]


def test_tools_and_tool_calls() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": 3}'}}
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    with Stub("plain", reply={"role": "assistant", "content": None, "tool_calls": [call]}) as server:
        done = chat(server, tools=[tool])
        assert (done.text, done.tool_calls, done.finish) == ("", [call], "stop")
        assert server.bodies(CHAT)[-1]["tools"] == [tool]
        earlier = [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "a wall"}]
        chat(server, [*HI, *earlier])
        assert server.bodies(CHAT)[-1]["messages"][1:] == earlier


def test_images_are_sent_as_data_urls(plain: Stub) -> None:
    png, jpeg = b"\x89PNG\r\n", b"\xff\xd8\xff\xe0"
    parts = [{"type": "text", "text": "see"}, {"type": "image", "image": png}, {"type": "image", "image": jpeg}]
    chat(plain, [{"role": "user", "content": parts}])
    sent = plain.bodies(CHAT)[-1]["messages"][0]["content"]
    assert sent[0] == {"type": "text", "text": "see"}
    assert sent[1] == {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0K"}}
    assert sent[2]["image_url"]["url"].startswith("data:image/jpeg;base64,")


def test_unpaired_surrogates_are_replaced(plain: Stub) -> None:
    chat(plain, [{"role": "user", "content": "odd \ud800 text \U0001f600"}])
    assert plain.bodies(CHAT)[-1]["messages"][0]["content"] == "odd \ufffd text \U0001f600"


def test_content_parts_are_joined(plain: Stub) -> None:
    plain.reply = {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert chat(plain).text == "ab"


@pytest.mark.parametrize(
    ("response", "error", "problem"),
    [
        ({"choices": []}, ParsingFailed, "exactly one choice"),
        ({"choices": [{"finish_reason": "stop"}]}, ParsingFailed, "no message"),
        ({"choices": [{"message": {"content": 5}}]}, ParsingFailed, "must be text or a list of parts, got int"),
        ({"choices": [{"message": {"tool_calls": [{"x": 1}]}}]}, ParsingFailed, "a tool call has no function name"),
        ({"choices": [{"message": {"tool_calls": 7}}]}, ParsingFailed, "a tool call has no function name"),
        ({"choices": [{"message": {}, "finish_reason": "content_filter"}]}, EngineFailed, "'content_filter'"),
        ({"choices": [{"message": {}}]}, EngineFailed, "ended the reply abnormally"),
        ("<html>busy</html>", ParsingFailed, "a body that is not JSON .*<html>busy</html>"),
        ("", ParsingFailed, "a body that is not JSON"),
        (b"\xff\xfe{}", ParsingFailed, "a body that is not JSON"),
    ],
)
def test_invalid_responses_raise(plain: Stub, response: Any, error: type[Exception], problem: str) -> None:
    plain.faults[CHAT] = [responds_with(response)]
    with pytest.raises(error, match=problem):
        chat(plain)


def test_model_is_detected(plain: Stub) -> None:
    plain.models.append({"id": "toy-lora", "parent": "toy"})
    chat(plain)
    assert plain.bodies(CHAT)[-1]["model"] == "toy"
    chat(plain, model="toy-lora")
    assert plain.bodies(CHAT)[-1]["model"] == "toy-lora"
    plain.models = [{"id": f"m{i}"} for i in range(10)]
    with pytest.raises(BadValue, match="model= is required, because .* lists 'm0', .* and 2 more"):
        chat(plain)
    plain.models = []
    with pytest.raises(BadValue, match="model= is required, because .* lists none"):
        chat(plain)


def test_unknown_model_raises(plain: Stub) -> None:
    plain.models = [{"id": "qwen3-8b"}, {"id": "qwen3-4b"}, {"id": "llama"}]
    with pytest.raises(BadValue, match="has no model 'qwen3-b'. Did you mean 'qwen3-.b' or .* It has 'qwen3-8b'"):
        chat(plain, model="qwen3-b")


@pytest.mark.parametrize("response", ["<html>", {"data": "none"}, [1]])
def test_named_model_works_without_a_model_list(plain: Stub, response: Any) -> None:
    plain.faults["/v1/models"] = [responds_with(response)]
    assert chat(plain, model="toy").finish in ("stop", "length")


@pytest.mark.parametrize("status", [401, 403, 500])
def test_named_model_works_if_the_model_list_fails(plain: Stub, status: int) -> None:
    plain.faults["/v1/models"] = [rejects(status)] * 2
    engine = OpenAIEngine(plain.url, "toy", retries=1, backoff=0.0)
    assert asyncio.run(engine.chat([{"role": "user", "content": "Hi"}], Sampling())).text


def test_server_that_accepts_no_seed_gets_none(plain: Stub, caplog: pytest.LogCaptureFixture) -> None:
    plain.faults[CHAT] = [rejects(400, "Unrecognized request argument supplied: seed")]

    async def run() -> None:
        async with OpenAIEngine(plain.url, "toy") as engine:
            for _ in range(2):
                await engine.chat([{"role": "user", "content": "Hi"}], Sampling(seed=7))

    asyncio.run(run())
    assert ["seed" in body for body in plain.bodies(CHAT)] == [True, False, False]
    assert caplog.text.count("accepts no seed") == 1


def test_conversation_longer_than_the_context_raises(plain: Stub) -> None:
    with pytest.raises(ContextFull, match=r"do not fit: .*maximum context length is 256 tokens.*contains 3\d\d input"):
        chat(plain, [{"role": "user", "content": "x" * 300}])


def test_generate_without_tokenizer_raises(plain: Stub) -> None:
    with pytest.raises(BadValue, match="accepts messages, not token ids; call chat"):
        asyncio.run(OpenAIEngine(plain.url).generate([1], Sampling()))
