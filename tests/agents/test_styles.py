"""Test ReAct and native tool calls: parsing of replies, and instructions for the model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.agents import ChatAgent, ReActStyle, ToolStyle
from palestra.parsing import react_action, tool_calls
from tests.agents.engine import PreparedEngine, PreparedReply, converse, prepare_reply
from tests.agents.families import FAMILIES, SPELLINGS, tokenizer_of

ADD: dict[str, Any] = {
    "name": "add",
    "description": "Adds two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}},
}
TOOL = {"use_tool": True}


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("Thought: I see.\nAction: go north", "go north"),
        ("Thought:\nhm\n\nAction:\ngo north\n", "go north"),
        ("thought - none\n  ACTION : open door", "open door"),
        ("**Thought:** x\n**Action:** \\boxed{3}", "\\boxed{3}"),
        ("Thought 1: x\nAction 1: a\nThought 2: y\nAction 2: b", "b"),
        ("Thought: x\nAction: a\nObservation: a wall\nThought: y\nAction: b", "a"),
        ("Observation: a wall\nAction: b", "b"),
        ("Action: ```\nget 2 oak\n```", "get 2 oak"),
        ("Action: craft 1 door\nusing 6 planks", "craft 1 door\nusing 6 planks"),
        ("<think>Action: x</think>Action: y", "y"),
        ("Action: a\nAction:", "a"),
        ("no label at all", None),
        ("My Action: is hidden", None),
        ("Action:", None),
        ("", None),
    ],
)
def test_react_action(reply: str, action: str | None) -> None:
    assert react_action(reply) == action
    assert ReActStyle().read(reply, ()).action == (reply if action is None else action)


def test_react_style_adds_the_instruction_and_extracts_the_action() -> None:
    tokenizer = tokenizer_of("gemma2")  # the template has no system role, so the instruction is part of the task
    engine = PreparedEngine(tokenizer, ["Thought: hm\nAction: north", "just south"])
    first, second = converse(ChatAgent(engine, style="react", system="Rules."), ["task", "a wall"])
    assert (first.text, second.text) == ("north", "just south")
    prompt = engine.prompts()[1]
    assert prompt.startswith("<bos><start_of_turn>user\nRules.\n\nAnswer every message in two parts:\nThought:")
    assert "\n\ntask<end_of_turn>" in prompt
    assert "Thought: hm\nAction: north<end_of_turn>" in prompt  # the prompt contains the whole reply


CALL = {"name": "add", "arguments": {"a": 1, "b": [2, {"c": "}"}]}}


@pytest.mark.parametrize(
    "reply",
    [
        f"I add.\n<tool_call>\n{json.dumps(CALL)}\n</tool_call>",
        f"<tool_call>{json.dumps(CALL)}",  # truncated after the call
        json.dumps({"name": CALL["name"], "parameters": CALL["arguments"]}),
        f"<|python_tag|>{json.dumps(CALL)}",
        f"<think>{{}}</think>\n{json.dumps(CALL)}",
        f"<function=add>{json.dumps(CALL['arguments'])}</function>",
        f"<tool_call>\n<function=add>\n{json.dumps(CALL['arguments'])}</function>\n</tool_call>",
        f"[TOOL_CALLS] [{json.dumps({**CALL, 'id': '123456789'})}]",
        f"[TOOL_CALLS]add[ARGS]{json.dumps(CALL['arguments'])}",
        json.dumps({"type": "function", "function": {"name": "add", "arguments": json.dumps(CALL["arguments"])}}),
    ],
)
def test_tool_call_in_every_format(reply: str) -> None:
    assert tool_calls(reply) == [CALL]
    parsed = ToolStyle().read(reply, ())
    assert parsed.action == reply
    assert parsed.tool_calls == (CALL,)


@pytest.mark.parametrize(
    ("reply", "count"),
    [
        (f"<tool_call>{json.dumps(CALL)}</tool_call> and <tool_call>{json.dumps(CALL)}</tool_call>", 2),
        (f"<tool_call>{{broken</tool_call><tool_call>{json.dumps(CALL)}</tool_call>", 1),
        (f"[TOOL_CALLS] [{json.dumps(CALL)}, {json.dumps(CALL)}]", 2),
        (f"{json.dumps(CALL)}; {json.dumps(CALL)}", 2),
        ('{"name": 7, "arguments": {}}', 0),
        ('{"name": "f", "arguments": []}', 0),
        ('{"answer": 7}', 0),
        ("[1, 2, 3]", 0),
        ('The call {"name": "f", "arguments": {}} is part of a sentence', 0),
        ("<tool_call>" + "[" * 100_000, 0),
        ("{}" * 200_000, 0),
        ("<tool_call>{" * 100_000, 0),
    ],
)
def test_number_of_tool_calls(reply: str, count: int) -> None:
    assert len(tool_calls(reply)) == count


pieces = st.sampled_from([*SPELLINGS, json.dumps(CALL), "Action:", "Observation:", "\n", "[ARGS]", "{"])


@given(st.lists(st.one_of(st.text(max_size=5), pieces)).map("".join))
def test_random_replies_can_be_parsed(reply: str) -> None:
    react_action(reply)
    for call in tool_calls(reply):
        assert isinstance(call["name"], str)
        assert isinstance(call["arguments"], dict)


@pytest.mark.parametrize("name", ["qwen2.5", "qwen3", "llama3.1"])
def test_tool_calls_and_results_extend_the_prompt(name: str) -> None:
    tokenizer = tokenizer_of(name)
    call = json.dumps(CALL)
    text = call if name == "llama3.1" else f"I add.\n<tool_call>\n{call}\n</tool_call>"
    engine = PreparedEngine(tokenizer, [text, text, "It is 3."])
    chat = ChatAgent(engine, style="tools", tools=[ADD])
    actions = converse(chat, ["What is 1 + 2?", 'the "sum" is\n3', "again 3"], [{}, TOOL, TOOL])
    assert [action.text for action in actions] == [text, text, "It is 3."]
    assert [action.tool_calls for action in actions] == [(CALL,), (CALL,), ()]
    assert [call.split for action in actions for call in action.calls] == [None] * 3
    prompt = engine.prompts()[2]
    assert '"description": "Adds two numbers."' in prompt
    assert prompt.count(text) == 2
    if name == "llama3.1":
        assert '<|start_header_id|>ipython<|end_header_id|>\n\n"the \\"sum\\" is\\n3"<|eot_id|>' in prompt
    else:
        assert '<|im_start|>user\n<tool_response>\nthe "sum" is\n3\n</tool_response><|im_end|>' in prompt


@pytest.mark.parametrize("name", ["mistral", "mistral-sentencepiece"])
def test_mistral_calls_after_a_special_token(name: str) -> None:
    """Check that prompts contain the sampled ids, although the template formats tool calls from structured messages."""
    tokenizer = tokenizer_of(name)
    body = f' [{{"arguments":{json.dumps(CALL["arguments"])},"name":"add"}}]'
    inside = tokenizer.encode(body, add_special_tokens=False)
    ids = [tokenizer.convert_tokens_to_ids("[TOOL_CALLS]"), *inside, tokenizer.eos_token_id]
    reply = PreparedReply(ids=ids, text=body)  # as returned by an engine that omits special tokens from the text
    engine = PreparedEngine(
        tokenizer, [reply, reply, prepare_reply(tokenizer, "It is 3."), prepare_reply(tokenizer, "yes")]
    )
    chat = ChatAgent(engine, style="tools", tools=[ADD])
    actions = converse(chat, ["What is 1 + 2?", "3", "3", "sure?"], [{}, TOOL, TOOL, {}])
    assert [action.tool_calls for action in actions] == [(CALL,), (CALL,), (), ()]
    assert actions[0].text == body
    calls = [call for action in actions for call in action.calls]
    # The template moves the tools to the latest user message, so the last prompt does not extend the previous one.
    assert [call.split for call in calls] == [None, None, None, "template"]
    before = calls[1].prompt_ids + calls[1].ids
    assert calls[2].prompt_ids[: len(before)] == before
    prompt = engine.prompts()[2].replace(" ", "")
    assert prompt.endswith('[TOOL_RESULTS]{"content":3,"call_id":"call00000"}[/TOOL_RESULTS]')


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_shows_tools_and_tool_results(name: str) -> None:
    tokenizer = tokenizer_of(name)
    engine = PreparedEngine(tokenizer, ["a", f"<tool_call>{json.dumps(CALL)}</tool_call>", "b"])
    chat = ChatAgent(engine, style="tools", template_options=FAMILIES[name].options)
    actions = converse(chat, ["What?", "Go on.", "Zresult"], [{"tools": [ADD]}, {}, TOOL])
    assert actions[1].tool_calls == (CALL,)
    for prompt in engine.prompts():
        assert prompt.count("Adds two numbers.") == 1
    assert engine.prompts()[2].count("Zresult") == 1
