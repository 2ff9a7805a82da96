"""Test hosted models through litellm against exchanges in the format that the providers document."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from palestra.cli import main
from palestra.engines.base import Completion, Sampling
from palestra.engines.litellm import LiteLLMEngine
from palestra.errors import BadValue, ContextFull, EngineFailed
from tests.frameworks.hosted_api import HostedAPI, play_back

CLAUDE = "anthropic/claude-sonnet-4-5"
KEY = "sk-ant-secret"
CHAT: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Guess a number."}]
TOOLS = [{"type": "function", "function": {"name": "python", "parameters": {"type": "object", "properties": {}}}}]


def ask(*names: str, model: str = CLAUDE, **options: Any) -> tuple[Completion, HostedAPI, LiteLLMEngine]:
    sampling = options.pop("sampling", Sampling(max_tokens=64, temperature=0.5, seed=3))
    tools = options.pop("tools", ())
    with play_back(names) as api:
        engine = LiteLLMEngine(model, api_key=KEY, base_url=api.url, **{"retries": 3, "backoff": 0.0, **options})
        return asyncio.run(engine.chat(CHAT, sampling, tools=tools)), api, engine


def test_anthropic() -> None:
    reply, api, _ = ask("anthropic text")
    assert (reply.text, reply.finish, reply.usage) == ("My guess is \\boxed{5}.", "stop", (120, 11))
    assert (reply.ids, reply.logprobs) == ([], [])
    assert api.paths == ["/v1/messages"]
    assert api.headers[0]["x-api-key"] == KEY
    body = api.bodies[0]
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("claude-sonnet-4-5", 64, 0.5)
    assert "seed" not in body  # Anthropic has no seed
    assert "Be brief." in json.dumps(body["system"])
    assert [message["role"] for message in body["messages"]] == ["user"]


def test_gemini() -> None:
    reply, api, _ = ask("gemini text", model="gemini/gemini-2.5-flash")
    assert (reply.text, reply.finish, reply.usage) == ("\\boxed{7}", "stop", (90, 6))
    assert api.paths[0].partition("?")[0].endswith(":generateContent")
    assert api.bodies[0]["generationConfig"]["max_output_tokens"] == 64
    assert api.bodies[0]["contents"][0]["parts"][0]["text"] == "Guess a number."


def test_a_reply_that_reaches_the_limit() -> None:
    assert ask("anthropic cut")[0].finish == "length"


def test_tool_calls() -> None:
    reply, api, _ = ask("anthropic tool", tools=TOOLS)
    assert [call["function"]["name"] for call in reply.tool_calls] == ["python"]
    assert json.loads(reply.tool_calls[0]["function"]["arguments"]) == {"code": "print(6 * 7)"}
    assert api.bodies[0]["tools"][0]["name"] == "python"


def test_transient_errors_are_retried() -> None:
    reply, api, engine = ask("anthropic rate limit", "anthropic overloaded", "anthropic text")
    assert reply.finish == "stop"
    assert (len(api.paths), engine.retried) == (3, 2)
    with pytest.raises(EngineFailed, match="rate limit"):
        ask("anthropic rate limit", retries=1)


def test_other_errors_are_not_retried_and_do_not_contain_the_key() -> None:
    with pytest.raises(BadValue, match="invalid x-api-key.*Check the API key") as caught:
        ask("anthropic wrong key")
    assert KEY not in str(caught.value)
    with pytest.raises(ContextFull, match="prompt is too long"):
        ask("anthropic too long")
    with pytest.raises(BadValue, match="do not support min_p"):
        ask("anthropic text", sampling=Sampling(min_p=0.1))
    with pytest.raises(BadValue, match="write PROVIDER/MODEL"):
        LiteLLMEngine("no-such-model")


def test_requests_per_minute() -> None:
    async def three(engine: LiteLLMEngine) -> None:
        await asyncio.gather(*(engine.chat(CHAT, Sampling()) for _ in range(3)))

    with play_back(["anthropic text"]) as api:
        asyncio.run(three(LiteLLMEngine(CLAUDE, api_key=KEY, base_url=api.url, requests_per_minute=600)))
    assert api.times[-1] - api.times[0] > 0.15  # 0.1 s apart, minus the time that a request takes to arrive


def test_evaluation_with_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with play_back(["anthropic text"]) as api:
        monkeypatch.setenv("ANTHROPIC_API_BASE", api.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        command = ["eval", "game:GuessTheNumber-v0-easy", "--model", f"litellm:{CLAUDE}", "-n", "2"]
        assert main([*command, "--json", "--out", str(tmp_path / "eval")]) == 0
    total = json.loads(capsys.readouterr().out)["table"]["total"]
    calls = len(api.paths)
    read, written = LiteLLMEngine(CLAUDE).prices or (0.0, 0.0)
    assert read > 0
    assert total["cost"] == pytest.approx(calls * (120 * read + 11 * written) / 1e6)
    stored = [path.read_bytes() for path in (tmp_path / "eval").rglob("*") if path.is_file()]
    assert stored
    assert not any(KEY.encode() in data for data in stored)
