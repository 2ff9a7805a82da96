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
GEMINI = "gemini/gemini-2.5-flash"
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
    reply, api, _ = ask("gemini text", model=GEMINI)
    assert (reply.text, reply.finish, reply.usage) == ("\\boxed{7}", "stop", (90, 6))
    assert api.paths[0].partition("?")[0].endswith(":generateContent")
    assert api.bodies[0]["generationConfig"]["max_output_tokens"] == 64
    assert api.bodies[0]["contents"][0]["parts"][0]["text"] == "Guess a number."


PROVIDERS = pytest.mark.parametrize("model", [CLAUDE, GEMINI], ids=["anthropic", "gemini"])


def name_of(model: str, exchange: str) -> str:
    return f"{model.partition('/')[0]} {exchange}"


@PROVIDERS
def test_a_reply_that_reaches_the_limit(model: str) -> None:
    reply, _, _ = ask(name_of(model, "cut"), model=model)
    assert (reply.finish, reply.usage) == ("length", {CLAUDE: (120, 4), GEMINI: (90, 64)}[model])


@PROVIDERS
def test_tool_calls(model: str) -> None:
    reply, api, _ = ask(name_of(model, "tool"), model=model, tools=TOOLS)
    assert [call["function"]["name"] for call in reply.tool_calls] == ["python"]
    assert json.loads(reply.tool_calls[0]["function"]["arguments"]) == {"code": "print(6 * 7)"}
    sent = api.bodies[0]["tools"][0]
    assert (sent["function_declarations"][0] if model == GEMINI else sent)["name"] == "python"


@pytest.mark.parametrize(
    ("model", "waits"),
    [(CLAUDE, ["0.1", "0.2"]), (GEMINI, ["0.2", "0.0"])],  # "gemini overloaded" requests no time
    ids=["anthropic", "gemini"],
)
def test_transient_errors_are_retried_after_the_requested_time(
    model: str, waits: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "palestra.engines.litellm")
    names = [name_of(model, exchange) for exchange in ("rate limit", "overloaded", "text")]
    reply, api, engine = ask(*names, model=model)
    assert reply.finish == "stop"
    assert (len(api.paths), engine.retried) == (3, 2)
    logged = [record.getMessage() for record in caplog.records if record.name == "palestra.engines.litellm"]
    assert [text.partition("retrying in ")[2] for text in logged] == [f"{wait} s" for wait in waits]
    with pytest.raises(EngineFailed, match="exceed"):
        ask(name_of(model, "rate limit"), model=model, retries=0)


@PROVIDERS
def test_other_errors_are_not_retried_and_do_not_contain_the_key(model: str) -> None:
    with pytest.raises(BadValue, match="(invalid x-api-key|API key not valid).*Check the API key") as caught:
        ask(name_of(model, "wrong key"), model=model)
    assert KEY not in str(caught.value)
    with pytest.raises(ContextFull, match=r"prompt is too long|input token count \(1200000\) exceeds"):
        ask(name_of(model, "too long"), model=model)


def test_unsupported_settings_are_rejected() -> None:
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


@PROVIDERS
def test_evaluation_with_cost(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    provider = model.partition("/")[0].upper()
    with play_back([name_of(model, "text")]) as api:
        monkeypatch.setenv(f"{provider}_API_BASE", api.url)
        monkeypatch.setenv(f"{provider}_API_KEY", KEY)
        command = ["eval", "game:GuessTheNumber-v0-easy", "--model", f"litellm:{model}", "-n", "2"]
        assert main([*command, "--json", "--out", str(tmp_path / "eval")]) == 0
    total = json.loads(capsys.readouterr().out)["table"]["total"]
    calls = len(api.paths)
    read, written = LiteLLMEngine(model).prices or (0.0, 0.0)
    assert read > 0
    tokens = {CLAUDE: (120, 11), GEMINI: (90, 6)}[model]
    assert total["cost"] == pytest.approx(calls * (tokens[0] * read + tokens[1] * written) / 1e6)
    stored = [path.read_bytes() for path in (tmp_path / "eval").rglob("*") if path.is_file()]
    assert stored
    assert not any(KEY.encode() in data for data in stored)
