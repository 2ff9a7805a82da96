"""Test ChatAgent: context policies, reflection, seeds, context length, images and engines that take chat messages."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from palestra.agents import ChatAgent, FullHistory, LastTurns, Reflection, Summary, TokenBudget
from palestra.engines.base import Sampling
from palestra.errors import BadValue, ContextFull, UnknownKeyword
from palestra.types import Action, Call
from tests.agents.engine import PreparedChatEngine, PreparedEngine, converse, start_session
from tests.agents.families import tokenizer_of

CHATML = tokenizer_of("chatml")
PNG = b"\x89PNG\r\n\x1a\n rest"
HEAD = "<|im_start|>user\ntask<|im_end|>\n<|im_start|>assistant\n"


F = {"style": "tools", "tools": [{"name": "f"}]}


def flat(actions: list[Action]) -> list[Call]:
    return [call for action in actions for call in action.calls]


def tail(prompt: str) -> str:
    return prompt.removeprefix("<|im_start|>user\ntask").removesuffix("<|im_end|>\n<|im_start|>assistant\n")


def test_action_contains_the_prompt_and_the_sampled_ids() -> None:
    engine = PreparedEngine(CHATML, ["a \\boxed{1}", "b"], version=4)
    first, second = converse(ChatAgent(engine, temperature=0.5, top_k=3, stop="END"), ["task", "seen"])
    assert first.text == "a \\boxed{1}"
    assert first.prompt_ids == engine.requests[0][0]
    assert first.action_ids == engine.replies[0].ids
    assert first.logprobs == [-(i + 1.0) for i in range(len(first.action_ids))]
    assert [call.version for call in first.calls] == [4]
    assert [call.kind for call in second.calls] == ["act"]
    assert engine.requests[0][1] == Sampling(
        temperature=0.5, top_k=3, stop=("END",), stop_ids=(CHATML.convert_tokens_to_ids("<|im_end|>"),)
    )


def test_conversation_has_one_key_and_is_forgotten_once() -> None:
    engine = PreparedEngine(CHATML, ["a", "b", "c", "d"])
    chat = ChatAgent(engine)
    converse(chat, ["task", "x"])
    converse(chat, ["task", "x"])
    first, again, second, _ = engine.conversations
    assert first is again is not second
    assert engine.forgotten == [first, second]
    session = start_session(chat)
    session.close()
    session.close()
    assert engine.forgotten == [first, second, session]


def test_seeds_are_repeatable_and_differ_between_calls() -> None:
    def seeds(seed: int | None) -> list[int | None]:
        engine = PreparedEngine(CHATML, ["a", "b", "c"])
        session = start_session(ChatAgent(engine), seed=seed)

        async def run() -> None:
            for observation in ("task", "x", "y"):
                await session.act(observation, {})

        asyncio.run(run())
        return [sampling.seed for _, sampling in engine.requests]

    assert seeds(None) == [None] * 3
    assert seeds(1) == seeds(1)
    assert len({*seeds(1), *seeds(2)}) == 6


def test_first_prompts_of_a_group_are_equal_but_separate_lists() -> None:
    engine = PreparedEngine(CHATML, ["a", "b"])
    chat = ChatAgent(engine)
    (first,), (second,) = converse(chat, ["task"]), converse(chat, ["task"])
    assert first.prompt_ids == second.prompt_ids
    assert first.prompt_ids is not second.prompt_ids


# Context


def test_last_turns_stay_and_every_cut_is_reported_as_split() -> None:
    engine = PreparedEngine(CHATML, list("abcdef"))
    actions = converse(ChatAgent(engine, context=LastTurns(2)), ["task", "1", "2", "3", "4"])
    assert [call.split for call in flat(actions)] == [None, None, None, "context", "context"]
    turn = "<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>\n<|im_start|>user\n{}"
    assert tail(engine.prompts()[2]) == turn.format("a", 1) + turn.format("b", 2)
    assert tail(engine.prompts()[4]) == turn.format("c", 3) + turn.format("d", 4)


def test_token_budget_keeps_task_and_latest_turns_and_frees_slack() -> None:
    engine = PreparedEngine(CHATML, [f"reply {n} " + "word " * 8 for n in range(12)])
    chat = ChatAgent(engine, system="Rules.", context=TokenBudget(160, slack=0.5))
    calls = flat(converse(chat, ["task", *(f"observation {n}" for n in range(11))]))
    sizes = [len(call.prompt_ids) for call in calls]
    cuts = [n for n, call in enumerate(calls) if call.split == "context"]
    assert max(sizes) <= 160
    assert len(cuts) >= 2
    assert all(sizes[n] <= 80 for n in cuts)
    assert min(later - earlier for earlier, later in itertools.pairwise(cuts)) > 1
    for n, prompt in enumerate(engine.prompts()):
        assert prompt.startswith("<|im_start|>system\nRules.<|im_end|>\n<|im_start|>user\ntask<|im_end|>")
        assert n == 0 or f"observation {n - 1}<|im_end|>" in prompt
    assert {call.split for call in calls} == {None, "context"}


def test_default_token_budget_is_the_context_minus_the_reply() -> None:
    engine = PreparedEngine(CHATML, ["x " * 10] * 12, max_context=150)
    chat = ChatAgent(engine, max_tokens=40, context=TokenBudget(slack=0))
    assert chat.context == TokenBudget(110, slack=0)
    calls = flat(converse(chat, ["task", *"123456789"]))
    assert 70 < max(len(call.prompt_ids) for call in calls) <= 110
    assert all(sampling.max_tokens == 40 for _, sampling in engine.requests)


def test_summary_replaces_removed_turns() -> None:
    engine = PreparedEngine(CHATML, ["a", "b", "c", "<think>hm</think>\nS1: walls", "d", "e", "S2: doors", "f"])
    chat = ChatAgent(engine, context=Summary(turns=2, instruction="Sum up."))
    actions = converse(chat, ["task", "1", "2", "3", "4", "5"])
    calls = flat(actions)
    assert [call.kind for call in calls] == ["act"] * 3 + ["summary", "act", "act", "summary", "act"]
    assert [call.split for call in calls] == [None] * 3 + [None, "context", None, None, "context"]
    assert [action.text for action in actions] == list("abcdef")
    prompts = engine.prompts()
    assert "2<|im_end|>\n<|im_start|>assistant\nc<|im_end|>\n<|im_start|>user\n3\n\nSum up.<|im_end|>" in prompts[3]
    note = "\n\nSummary of what has happened so far:\n"
    turn = "<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>\n<|im_start|>user\n{}"
    assert tail(prompts[4]) == note + "S1: walls" + turn.format("c", 3)
    assert tail(prompts[7]) == note + "S2: doors" + turn.format("e", 5)
    assert engine.requests[3][1].max_tokens == 256


def test_summary_is_requested_before_the_context_is_full() -> None:
    replies = ["word " * 20] * 3 + ["the summary", "word " * 20, "word " * 20]
    engine = PreparedEngine(CHATML, replies, max_context=260)
    chat = ChatAgent(engine, max_tokens=50, context=Summary(max_tokens=30, instruction="Sum up."))
    assert isinstance(chat.context, Summary)
    assert chat.context.tokens == 260 - 50 - 30 - len(CHATML.encode("Sum up."))
    kinds: list[str] = []
    for call in flat(converse(chat, ["task", "1", "2", "3"])):
        kinds.append(call.kind)
        assert len(call.prompt_ids) + (30 if call.kind == "summary" else 50) <= 260
    assert "summary" in kinds


def test_summary_request_omits_turns_that_do_not_fit() -> None:
    engine = PreparedEngine(CHATML, ["word " * 20, "word " * 20, "summary", "b"], max_context=150)
    chat = ChatAgent(engine, max_tokens=30, context=Summary(turns=1, max_tokens=30, instruction="Sum up."))
    calls = flat(converse(chat, ["task", "o " * 20, "2"]))
    assert [call.kind for call in calls] == ["act", "act", "summary", "act"]
    assert [call.split for call in calls] == [None, None, "context", "context"]
    assert len(calls[2].prompt_ids) + 30 <= 150


def test_full_context_raises_context_full() -> None:
    engine = PreparedEngine(CHATML, ["x " * 10] * 9, max_context=100)
    session = start_session(ChatAgent(engine, max_tokens=64))

    async def run() -> None:
        for observation in ("task", *"12345678"):
            await session.act(observation, {})

    with pytest.raises(ContextFull, match=r"no room for a reply in the context of 100 tokens.*TokenBudget"):
        asyncio.run(run())
    requests = [(len(ids), sampling.max_tokens) for ids, sampling in engine.requests]
    assert len(requests) > 1
    assert all(limit == min(64, 100 - used) >= 16 for used, limit in requests)


def test_max_context_limits_the_context_of_the_engine() -> None:
    assert ChatAgent(PreparedEngine(CHATML, [], max_context=100), max_context=60).window == 60
    assert ChatAgent(PreparedEngine(CHATML, [], max_context=100), max_context=600).window == 100
    assert ChatAgent(PreparedEngine(CHATML, [])).window is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"context": "everything"}, "context must be FullHistory"),
        ({"context": TokenBudget()}, "TokenBudget needs tokens="),
        ({"context": Summary()}, "Summary needs tokens=, turns= or max_context="),
        ({"style": "haiku"}, "style must be one of plain, react, tools; got 'haiku'"),
        ({"tools": [{"name": "f"}]}, 'style="tools"'),
        ({"style": "tools", "tools": [{"call": "f"}]}, "a tool must be a JSON schema"),
        ({"reflect": True}, "reflect must be a Reflection"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"template_options": {"tokenize": True}}, "must not contain tokenize"),
        (
            {"template_options": {"chat_template": "{% if tools %}{{ raise_exception('no') }}{% endif %}"}, **F},
            "cannot render this conversation: no",
        ),
    ],
)
def test_invalid_options_raise(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        ChatAgent(PreparedEngine(CHATML, []), **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LastTurns(0),
        lambda: TokenBudget(0),
        lambda: TokenBudget(9, slack=1.0),
        lambda: Summary(turns=1, recent=2),
        lambda: Summary(recent=0),
        lambda: Summary(tokens=9, max_tokens=0),
        lambda: Reflection(when=None),
        lambda: Reflection(every=0),
    ],
)
def test_invalid_policies_raise(make: Any) -> None:
    with pytest.raises(BadValue):
        make()


def test_tokenizer_without_chat_template_raises() -> None:
    class Bare:
        chat_template = None
        eos_token_id = 0

        def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
            return list(text.encode())

        def decode(self, token_ids: Any, *, skip_special_tokens: bool = False) -> str:
            return bytes(token_ids).decode()

        def apply_chat_template(self, conversation: Any, /, **options: Any) -> str:
            return "".join(f"[{m['role']}]{m['content']}" for m in conversation)

    with pytest.raises(BadValue, match="no chat template"):
        ChatAgent(PreparedEngine(Bare(), []))
    # A template that is not Jinja cannot be analyzed, so every prompt is rendered in full.
    Bare.chat_template = "not Jinja"  # type: ignore[assignment]
    engine = PreparedEngine(Bare(), [])
    chat = ChatAgent(engine)
    assert chat.renderer([]).tests is None


def test_misspelled_keywords_raise_type_error() -> None:
    with pytest.raises(TypeError):
        ChatAgent(PreparedEngine(CHATML, []), temprature=1.0)  # type: ignore[call-arg]
    assert issubclass(UnknownKeyword, TypeError)


# Reflection


def test_reflection_follows_an_invalid_action_and_stays_in_the_conversation() -> None:
    engine = PreparedEngine(CHATML, ["a", "I was hasty.", "b", "c"])
    chat = ChatAgent(engine, reflect=Reflection(max_tokens=99, instruction="Look back.", resume="Go on."))
    actions = converse(chat, ["task", "wrong", "right"], [{}, {"invalid": "rule"}, {}])
    assert [[call.kind for call in action.calls] for action in actions] == [["act"], ["reflect", "act"], ["act"]]
    assert [action.text for action in actions] == ["a", "b", "c"]
    assert [call.split for call in flat(actions)] == [None] * 4
    assert engine.requests[1][1].max_tokens == 99
    assert engine.prompts()[3] == (
        f"{HEAD}a<|im_end|>\n<|im_start|>user\nwrong\n\nLook back.<|im_end|>\n<|im_start|>assistant\n"
        "I was hasty.<|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n<|im_start|>assistant\n"
        "b<|im_end|>\n<|im_start|>user\nright<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    ("reflect", "info", "kinds"),
    [
        (Reflection(), {"error": "no such command"}, "arara"),
        (Reflection(), {"reward": -0.1}, "arara"),
        (Reflection(), {"reward": 0.0, "invalid": ""}, "aaa"),
        (Reflection(when=None, every=2), {}, "aara"),
        (Reflection(when=lambda info: info["hp"] < 3), {"hp": 2}, "arara"),
    ],
)
def test_reflection_conditions(reflect: Reflection, info: dict[str, Any], kinds: str) -> None:
    calls = flat(
        converse(ChatAgent(PreparedEngine(CHATML, ["x"] * 9), reflect=reflect), ["task", "1", "2"], [info] * 3)
    )
    assert "".join(call.kind[0] for call in calls) == kinds


def test_no_reflection_without_room_in_the_context() -> None:
    chat = ChatAgent(
        PreparedEngine(CHATML, ["x"] * 9, max_context=100), max_tokens=20, reflect=Reflection(max_tokens=50)
    )
    calls = flat(converse(chat, ["task", "1"], [{}, {"invalid": True}]))
    assert [call.kind for call in calls] == ["act", "act"]


def test_turns_are_removed_together_with_their_reflections() -> None:
    engine = PreparedEngine(CHATML, ["a", "r1", "b", "r2", "c", "r3", "d"])
    chat = ChatAgent(
        engine, context=LastTurns(1), reflect=Reflection(when=None, every=1, instruction="Look.", resume="Go.")
    )
    calls = flat(converse(chat, ["task", "1", "2", "3"]))
    assert [call.split for call in calls] == [None, None, None, "context", None, "context", None]
    assert engine.prompts()[6] == (
        f"{HEAD}c<|im_end|>\n<|im_start|>user\n3\n\nLook.<|im_end|>\n<|im_start|>assistant\n"
        "r3<|im_end|>\n<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n"
    )


# Images, and engines that take chat messages


def test_images_need_an_engine_that_takes_chat_messages() -> None:
    image = [{"type": "text", "text": "look: "}, {"type": "image", "image": PNG}]
    with pytest.raises(BadValue, match="cannot represent images"):
        converse(ChatAgent(PreparedEngine(CHATML, ["a"])), [image])
    engine = PreparedChatEngine(["a", "b"])
    (action, _) = converse(ChatAgent(engine), [image, "x"])
    sent: Any = engine.requests[0][0]["content"]
    assert sent[0] == {"type": "text", "text": "look: "}
    assert sent[1]["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")
    assert action.calls[0].prompt == [{"role": "user", "content": image}]  # the observation, not the converted request


def test_text_parts_are_joined() -> None:
    engine = PreparedEngine(CHATML, ["a"])
    converse(ChatAgent(engine), [[{"type": "text", "text": "ta"}, {"type": "text", "text": "sk"}]])
    assert engine.prompts() == [HEAD]


def test_engine_without_tokenizer_receives_messages() -> None:
    engine = PreparedChatEngine(["a", "b", "c"])
    actions = converse(ChatAgent(engine, system="Rules.", context=LastTurns(1)), ["task", "1", "2"])
    assert engine.requests[1] == [
        {"role": "system", "content": "Rules."},
        {"role": "user", "content": "task"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "1"},
    ]
    assert [m["content"] for m in engine.requests[2]] == ["Rules.", "task", "b", "2"]
    calls = flat(actions)
    assert [call.split for call in calls] == [None, None, "context"]
    assert [call.prompt for call in calls] == engine.requests
    assert all(call.prompt_ids == call.ids == [] for call in calls)


def test_engine_may_set_its_tokenizer_when_ready() -> None:
    class LateTokenizer(PreparedEngine):
        ready_calls = 0

        async def ready(self) -> None:
            self.ready_calls += 1
            self.tokenizer, self.max_context = CHATML, 200

    engine = LateTokenizer(CHATML, ["a", "b", "c"])
    engine.tokenizer = None
    chat = ChatAgent(engine, max_tokens=50, context=TokenBudget())
    actions = converse(chat, ["task", "1"])
    assert engine.prompts()[0] == HEAD
    assert actions[1].calls[0].prompt_ids
    assert chat.context == TokenBudget(150)
    converse(chat, ["task"])
    assert engine.ready_calls == 1


def test_token_limits_need_a_tokenizer() -> None:
    for context in (TokenBudget(100), Summary(tokens=100), TokenBudget(), Summary()):
        with pytest.raises(BadValue, match="token|Summary needs"):
            converse(ChatAgent(PreparedChatEngine(["a"]), context=context), ["task"])
    engine = PreparedChatEngine(["a", "summary", "b"])
    converse(ChatAgent(engine, context=Summary(turns=1)), ["task", "1"])
    assert converse(ChatAgent(PreparedChatEngine(["a"]), context=FullHistory()), ["task"])[0].text == "a"


def test_tool_calls_and_results_are_sent_in_openai_format() -> None:
    def call(name: str) -> dict[str, Any]:
        return {"id": f"id-{name}", "type": "function", "function": {"name": name, "arguments": '{"x": 1}'}}

    engine = PreparedChatEngine([("", [call("f"), call("g")]), "b", "c"])
    schema = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    chat = ChatAgent(engine, style="tools", tools=[schema])
    actions = converse(chat, ["task", "42", "more"], [{}, {"use_tool": True}, {"use_tool": True}])
    assert actions[0].tool_calls == (
        {"name": "f", "arguments": {"x": 1}, "id": "id-f"},
        {"name": "g", "arguments": {"x": 1}, "id": "id-g"},
    )
    assert engine.tools[0] == [{"type": "function", "function": schema}]
    reply, result, other = engine.requests[1][1:]
    assert reply["tool_calls"] == [call("f"), call("g")]  # type: ignore[typeddict-item]
    assert result == {"role": "tool", "content": "42", "tool_call_id": "id-f"}
    assert other["tool_call_id"] == "id-g"  # type: ignore[typeddict-item]
    assert engine.requests[2][-1] == {"role": "user", "content": "more"}  # the previous reply has no tool call
    json.dumps(engine.requests)
