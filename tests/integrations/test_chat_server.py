"""Test the chat server with an HTTP client."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from palestra.engines import LocalEngine, OpenAIEngine, Sampling
from palestra.engines.default_model import default_model
from palestra.integrations.chat_server import ChatServer


def test_replies_contain_exact_tokens_and_errors_are_reported() -> None:
    model, tokenizer = default_model("0.1M", seed=1)
    messages: list[Any] = [{"role": "user", "content": "Write."}]

    async def run() -> None:
        async with LocalEngine(model, tokenizer=tokenizer) as engine, ChatServer(engine) as server:
            body = {"model": "local", "messages": messages, "max_tokens": 6, "seed": 4, "logprobs": True, "n": 2}
            body["return_token_ids"] = True
            async with aiohttp.ClientSession() as client:
                async with client.post(f"{server.url}/chat/completions", json=body) as response:
                    reply = await response.json()
                stream = {**body, "n": 1, "stream": True, "stream_options": {"include_usage": True}}
                async with client.post(f"{server.url}/chat/completions", json=stream) as response:
                    assert response.content_type == "text/event-stream"
                    events = [line.decode().removeprefix("data: ") async for line in response.content if line.strip()]
                async with client.post(f"{server.url}/chat/completions", json={"messages": 3}) as response:
                    assert response.status == 400
            prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            expected = await engine.generate(prompt, Sampling(max_tokens=6, seed=4))
            for choice in reply["choices"]:
                content = choice["logprobs"]["content"]
                assert [int(item["token"].removeprefix("token_id:")) for item in content] == expected.ids
                assert [item["logprob"] for item in content] == pytest.approx(expected.logprobs, abs=1e-4)
                assert choice["message"]["content"] == expected.text
                assert choice["token_ids"] == expected.ids
            assert reply["prompt_token_ids"] == prompt
            assert reply["usage"] == {
                "prompt_tokens": len(prompt),
                "completion_tokens": 12,
                "total_tokens": len(prompt) + 12,
            }
            *chunks, done = (event.strip() for event in events)
            assert done == "[DONE]"
            message, end, usage = map(json.loads, chunks)
            assert message["choices"][0]["delta"] == {"role": "assistant", "content": expected.text}
            assert end["choices"][0]["finish_reason"] == "length"
            assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 6)
            async with OpenAIEngine(server.url) as remote:
                text = (await remote.chat(messages, Sampling(max_tokens=6, seed=4))).text
            assert text == expected.text

    asyncio.run(run())
