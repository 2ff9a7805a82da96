"""Test the chat server with an HTTP client."""

from __future__ import annotations

import asyncio
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
            async with aiohttp.ClientSession() as client:
                async with client.post(f"{server.url}/chat/completions", json=body) as response:
                    reply = await response.json()
                async with client.post(f"{server.url}/chat/completions", json={"messages": 3}) as response:
                    assert response.status == 400
            prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            expected = await engine.generate(prompt, Sampling(max_tokens=6, seed=4))
            for choice in reply["choices"]:
                content = choice["logprobs"]["content"]
                assert [int(item["token"].removeprefix("token_id:")) for item in content] == expected.ids
                assert [item["logprob"] for item in content] == pytest.approx(expected.logprobs, abs=1e-4)
                assert choice["message"]["content"] == expected.text
            assert reply["usage"] == {
                "prompt_tokens": len(prompt),
                "completion_tokens": 12,
                "total_tokens": len(prompt) + 12,
            }
            async with OpenAIEngine(server.url) as remote:
                text = (await remote.chat(messages, Sampling(max_tokens=6, seed=4))).text
            assert text == expected.text

    asyncio.run(run())
