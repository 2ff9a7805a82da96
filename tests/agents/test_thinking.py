"""Test how thinking is detected in chat templates, turned on and off, and kept in the prompt."""

from __future__ import annotations

import pytest

from palestra.agents import AgentSettings, ChatAgent
from palestra.agents.thinking import Thinking, thinking_of
from palestra.engines import ByteTokenizer
from palestra.errors import BadValue
from palestra.types import Call
from tests.agents.engine import PreparedEngine, converse
from tests.agents.families import tokenizer_of

THOUGHTS = ["<think>\nlow?\n</think>\n\nsay 3", "<think>\nhigh\n</think>\n\nsay 5", "say 4"]
OBSERVATIONS = ["task", "too low", "too high"]


def calls_of(agent: ChatAgent) -> list[Call]:
    return [call for action in converse(agent, OBSERVATIONS) for call in action.calls]


def extends(later: Call, earlier: Call) -> bool:
    before = earlier.prompt_ids + earlier.ids
    return later.prompt_ids[: len(before)] == before


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("qwen3", Thinking("enable_thinking", True)),
        ("qwen3-always-thinking", Thinking(None, True)),
        ("chatml", Thinking(None, False)),
        ("llama3.1", Thinking(None, False)),
    ],
)
def test_thinking_is_detected_in_the_template(family: str, expected: Thinking) -> None:
    assert thinking_of(tokenizer_of(family)) == expected
    assert thinking_of(ByteTokenizer()) == Thinking(None, False)


@pytest.mark.parametrize(
    ("family", "thinking", "switch", "keep", "max_tokens"),
    [
        ("qwen3", "auto", {"enable_thinking": False}, True, 512),
        ("qwen3", "off", {"enable_thinking": False}, True, 512),
        ("qwen3", "on", {"enable_thinking": True}, False, 4096),
        ("qwen3-always-thinking", "auto", {}, False, 4096),
        ("qwen3-always-thinking", "on", {}, False, 4096),
        ("chatml", "auto", {}, False, 512),
    ],
)
def test_defaults_depend_on_the_template(
    family: str, thinking: str, switch: dict[str, bool], keep: bool, max_tokens: int
) -> None:
    settings = AgentSettings(thinking=thinking)  # type: ignore[arg-type]
    agent = settings.chat_agent(PreparedEngine(tokenizer_of(family), []))
    assert settings.template_options(tokenizer_of(family)) == switch
    assert (agent.keep_thinking, agent.sampling.max_tokens) == (keep, max_tokens)


def test_template_variables_override_the_default_and_contradictions_are_refused() -> None:
    qwen3 = tokenizer_of("qwen3")
    given = AgentSettings(template_kwargs={"enable_thinking": True})
    assert given.template_options(qwen3) == {"enable_thinking": True}
    assert given.default_max_tokens(qwen3) == 4096
    with pytest.raises(BadValue, match="not both"):
        AgentSettings(thinking="off", template_kwargs={"enable_thinking": True}).template_options(qwen3)
    with pytest.raises(BadValue, match="no switch for it, and the model always thinks"):
        AgentSettings(thinking="off").template_options(tokenizer_of("qwen3-always-thinking"))
    with pytest.raises(BadValue, match="no switch for it, and the model does not think"):
        AgentSettings(thinking="on").template_options(tokenizer_of("chatml"))
    assert AgentSettings(thinking="off").template_options(None) == {"enable_thinking": False}
    assert AgentSettings().template_options(None) == {}


@pytest.mark.parametrize("family", ["qwen3", "qwen3-always-thinking", "qwen-macro"])
def test_kept_thoughts_extend_the_prompt(family: str) -> None:
    stripped, kept = (
        calls_of(ChatAgent(PreparedEngine(tokenizer_of(family), THOUGHTS), keep_thinking=keep))
        for keep in (False, True)
    )
    assert [call.split for call in stripped] == [None, "template", "template"]
    assert [call.split for call in kept] == [None, None, None]
    assert extends(kept[1], kept[0])
    assert extends(kept[2], kept[1])
    text = tokenizer_of(family).decode(kept[2].prompt_ids)
    assert text.count("<think>") - text.endswith("<think>\n") >= 2
    assert text.index("low?") < text.index("too low") < text.index("high\n") < text.index("too high")


def test_empty_thoughts_of_a_model_that_does_not_think_stay_in_the_prompt() -> None:
    tokenizer = tokenizer_of("qwen3")
    split = ChatAgent(PreparedEngine(tokenizer, ["a", "b", "c"]), template_options={"enable_thinking": False})
    assert [call.split for call in calls_of(split)] == [None, "template", "template"]
    calls = calls_of(AgentSettings().chat_agent(PreparedEngine(tokenizer, ["a", "b", "c"])))
    assert [call.split for call in calls] == [None, None, None]
    turn = "<|im_start|>assistant\n<think>\n\n</think>\n\n{}<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n"
    expected = f"<|im_start|>user\ntask<|im_end|>\n{turn.format('a', 'too low')}{turn.format('b', 'too high')}"
    assert tokenizer.decode(calls[2].prompt_ids) == f"{expected}<|im_start|>assistant\n<think>\n\n</think>\n\n"
