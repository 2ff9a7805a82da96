"""Test that a chat agent's settings are applied."""

from __future__ import annotations

import json
from typing import Any

import pytest

from palestra.agents import (
    AgentSettings,
    FullHistory,
    LastTurns,
    LatestObservation,
    ReActStyle,
    Summary,
    TokenBudget,
    ToolStyle,
)
from palestra.errors import BadValue
from palestra.registry import make
from palestra.wrappers import History
from tests.agents.engine import PreparedChatEngine, PreparedEngine, converse
from tests.agents.families import tokenizer_of

CHATML = tokenizer_of("chatml")
TOOL = {"name": "add", "description": "Add two numbers.", "parameters": {"type": "object", "properties": {}}}


def test_settings_are_passed_to_the_agent() -> None:
    settings = AgentSettings(
        system="Be brief.", style="react", reflect=True, reflect_every=3, reflect_tokens=9, max_context=900
    )
    agent = settings.chat_agent(PreparedEngine(CHATML, []), max_tokens=7, temperature=0.5, stop=("END",), top_k=3)
    assert (agent.system, agent.style, agent.window) == ("Be brief.", ReActStyle(), 900)
    assert (agent.sampling.max_tokens, agent.sampling.temperature) == (7, 0.5)
    assert (agent.sampling.stop, agent.sampling.top_k) == (("END",), 3)
    assert agent.reflect is not None
    assert (agent.reflect.every, agent.reflect.max_tokens) == (3, 9)
    assert agent.reflect.due(1, {"invalid": "format"})
    assert AgentSettings().chat_agent(PreparedEngine(CHATML, [])).reflect is None
    assert json.loads(json.dumps(settings.to_dict()))["max_context"] == 900


@pytest.mark.parametrize(
    ("settings", "policy"),
    [
        ({}, FullHistory()),
        ({"context": "latest"}, LatestObservation()),
        ({"context": "last_turns", "context_turns": 3}, LastTurns(3)),
        ({"context": "token_budget"}, TokenBudget()),
        ({"context": "token_budget", "context_tokens": 100}, TokenBudget(100)),
        ({"context": "summary", "context_turns": 4, "summary_tokens": 50}, Summary(turns=4, max_tokens=50)),
        ({"context": "summary", "context_tokens": 80, "summary_recent": 2}, Summary(tokens=80, recent=2)),
    ],
)
def test_context_policies_have_names(settings: dict[str, Any], policy: Any) -> None:
    assert AgentSettings(**settings).context_policy() == policy


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context": "last_turns"}, "requires the number of turns"),
        ({"context_turns": 3}, "context_turns requires"),
        ({"context": "last_turns", "context_turns": 1, "context_tokens": 5}, "context_tokens requires"),
        ({"context": "none"}, "context must be one of full, latest"),
        ({"context": "latest", "reflect": True}, "reflection needs the earlier turns"),
        ({"tool_format": "llama"}, "requires --style tools"),
        ({"template_kwargs": 3}, "template_kwargs must be a table"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        AgentSettings(**settings)


def test_only_the_latest_observation_of_a_history_wrapper_is_in_the_prompt() -> None:
    env = History(make("game:GuessTheNumber-v0-easy", max_turns=4), "actions")
    task, _ = env.reset(seed=1)
    later = env.step("\\boxed{3}").observation
    engine = PreparedEngine(CHATML, ["\\boxed{3}", "\\boxed{4}"])
    settings = AgentSettings(context="latest", system="Play.")
    actions = converse(settings.chat_agent(engine), [task, later])
    assert [action.calls[0].split for action in actions] == [None, "context"]
    head = "<|im_start|>system\nPlay.<|im_end|>\n<|im_start|>user\n"
    assert engine.prompts() == [f"{head}{text}<|im_end|>\n<|im_start|>assistant\n" for text in (task, later)]


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("auto", '<tool_call>{"name": "...", "arguments": {...}}</tool_call>'),
        ("hermes", '<tool_call>{"name": "...", "arguments": {...}}</tool_call>'),
        ("qwen_coder", "<function=NAME>\n<parameter=ARGUMENT>"),
        ("llama", 'nothing but a JSON object with its name and arguments:\n{"name": "...", "parameters": {...}}'),
        ("mistral", "[TOOL_CALLS][{"),
    ],
)
def test_the_format_of_tool_calls_is_described_in_the_system_prompt(form: Any, words: str) -> None:
    engine = PreparedEngine(CHATML, ["ok"])
    agent = AgentSettings(style="tools", tool_format=form).chat_agent(engine)
    assert agent.style == ToolStyle(format=form)
    converse(agent, ["task"], [{"tools": [TOOL]}])
    (prompt,) = engine.prompts()
    assert words in prompt
    assert "Add two numbers." in prompt


def test_a_chosen_format_replaces_the_format_of_the_template_and_of_the_server() -> None:
    engine = PreparedEngine(tokenizer_of("qwen2.5"), ["ok", "ok"])
    for form, own in (("auto", True), ("llama", False)):
        converse(AgentSettings(style="tools", tool_format=form).chat_agent(engine), ["task"], [{"tools": [TOOL]}])  # type: ignore[arg-type]
        assert ("# Tools" in engine.prompts()[-1]) == own
    server = PreparedChatEngine(["ok"])
    converse(AgentSettings(style="tools", tool_format="llama").chat_agent(server), ["task"], [{"tools": [TOOL]}])
    assert server.tools == [[]]
    assert "Add two numbers." in str(server.requests[0][0]["content"])


def test_schemas_replace_the_description_of_tools_by_the_environment() -> None:
    env = make("math:Arithmetic-v0-easy", tools=["python"])
    observation, info = env.reset(seed=1)
    plain, tools = PreparedEngine(CHATML, ["ok"]), PreparedEngine(CHATML, ["ok"])
    converse(AgentSettings().chat_agent(plain), [observation], [info])
    converse(AgentSettings(style="tools").chat_agent(tools), [observation], [info])
    assert info["tools_text"] in plain.prompts()[0]
    assert info["tools_text"] not in tools.prompts()[0]
    assert '"name": "python"' in tools.prompts()[0]
