"""The chat agent: context policies, reflection, seeds, windows, pictures, servers that take messages."""

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
from tests.agents.engine import ChatServer, Replies, begin, converse
from tests.agents.families import tokenizer_of

CHATML = tokenizer_of("chatml")
PNG = b"\x89PNG\r\n\x1a\n rest"
HEAD = "<|im_start|>user\ntask<|im_end|>\n<|im_start|>assistant\n"


F = {"style": "tools", "tools": [{"name": "f"}]}


def flat(actions: list[Action]) -> list[Call]:
    return [call for action in actions for call in action.calls]


def tail(prompt: str) -> str:
    return prompt.removeprefix("<|im_start|>user\ntask").removesuffix("<|im_end|>\n<|im_start|>assistant\n")


def test_an_action_carries_what_was_asked_and_sampled() -> None:
    engine = Replies(CHATML, ["a \\boxed{1}", "b"], version=4)
    first, second = converse(ChatAgent(engine, temperature=0.5, top_k=3, stop="END"), ["task", "seen"])
    assert first.text == "a \\boxed{1}"
    assert first.prompt_ids == engine.asked[0][0]
    assert first.action_ids == engine.replies[0].ids
    assert first.logprobs == [-(i + 1.0) for i in range(len(first.action_ids))]
    assert [call.version for call in first.calls] == [4]
    assert [call.kind for call in second.calls] == ["act"]
    assert engine.asked[0][1] == Sampling(
        temperature=0.5, top_k=3, stop=("END",), stop_ids=(CHATML.convert_tokens_to_ids("<|im_end|>"),)
    )


def test_a_conversation_has_one_key_and_is_forgotten_once() -> None:
    engine = Replies(CHATML, ["a", "b", "c", "d"])
    chat = ChatAgent(engine)
    converse(chat, ["task", "x"])
    converse(chat, ["task", "x"])
    first, again, second, _ = engine.conversations
    assert first is again is not second
    assert engine.forgotten == [first, second]
    session = begin(chat)
    session.close()
    session.close()
    assert engine.forgotten == [first, second, session]


def test_seeds_make_every_call_repeatable_and_different() -> None:
    def seeds(seed: int | None) -> list[int | None]:
        engine = Replies(CHATML, ["a", "b", "c"])
        session = begin(ChatAgent(engine), seed=seed)

        async def run() -> None:
            for observation in ("task", "x", "y"):
                await session.act(observation, {})

        asyncio.run(run())
        return [sampling.seed for _, sampling in engine.asked]

    assert seeds(None) == [None] * 3
    assert seeds(1) == seeds(1)
    assert len({*seeds(1), *seeds(2)}) == 6


def test_members_of_a_group_share_a_first_prompt_but_no_list() -> None:
    engine = Replies(CHATML, ["a", "b"])
    chat = ChatAgent(engine)
    (first,), (second,) = converse(chat, ["task"]), converse(chat, ["task"])
    assert first.prompt_ids == second.prompt_ids
    assert first.prompt_ids is not second.prompt_ids


# Context


def test_the_last_turns_stay_and_every_cut_is_counted() -> None:
    engine = Replies(CHATML, list("abcdef"))
    actions = converse(ChatAgent(engine, context=LastTurns(2)), ["task", "1", "2", "3", "4"])
    assert [call.split for call in flat(actions)] == [None, None, None, "context", "context"]
    turn = "<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>\n<|im_start|>user\n{}"
    assert tail(engine.prompts()[2]) == turn.format("a", 1) + turn.format("b", 2)
    assert tail(engine.prompts()[4]) == turn.format("c", 3) + turn.format("d", 4)


def test_a_token_budget_keeps_task_and_latest_turns_and_frees_some_room() -> None:
    engine = Replies(CHATML, [f"reply {n} " + "word " * 8 for n in range(12)])
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


def test_an_open_budget_is_the_window_less_the_reply() -> None:
    engine = Replies(CHATML, ["x " * 10] * 12, max_context=150)
    chat = ChatAgent(engine, max_tokens=40, context=TokenBudget(slack=0))
    assert chat.context == TokenBudget(110, slack=0)
    calls = flat(converse(chat, ["task", *"123456789"]))
    assert 70 < max(len(call.prompt_ids) for call in calls) <= 110
    assert all(sampling.max_tokens == 40 for _, sampling in engine.asked)


def test_a_summary_replaces_what_was_cut() -> None:
    engine = Replies(CHATML, ["a", "b", "c", "<think>hm</think>\nS1: walls", "d", "e", "S2: doors", "f"])
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
    assert engine.asked[3][1].max_tokens == 256


def test_a_summary_is_asked_for_before_the_window_is_full() -> None:
    replies = ["word " * 20] * 3 + ["the gist", "word " * 20, "word " * 20]
    engine = Replies(CHATML, replies, max_context=260)
    chat = ChatAgent(engine, max_tokens=50, context=Summary(max_tokens=30, instruction="Sum up."))
    assert isinstance(chat.context, Summary)
    assert chat.context.tokens == 260 - 50 - 30 - len(CHATML.encode("Sum up."))
    kinds: list[str] = []
    for call in flat(converse(chat, ["task", "1", "2", "3"])):
        kinds.append(call.kind)
        assert len(call.prompt_ids) + (30 if call.kind == "summary" else 50) <= 260
    assert "summary" in kinds


def test_what_does_not_fit_a_summary_request_is_dropped_from_it() -> None:
    engine = Replies(CHATML, ["word " * 20, "word " * 20, "gist", "b"], max_context=150)
    chat = ChatAgent(engine, max_tokens=30, context=Summary(turns=1, max_tokens=30, instruction="Sum up."))
    calls = flat(converse(chat, ["task", "o " * 20, "2"]))
    assert [call.kind for call in calls] == ["act", "act", "summary", "act"]
    assert [call.split for call in calls] == [None, None, "context", "context"]
    assert len(calls[2].prompt_ids) + 30 <= 150


def test_a_full_window_cuts_the_episode_short() -> None:
    engine = Replies(CHATML, ["x " * 10] * 9, max_context=100)
    session = begin(ChatAgent(engine, max_tokens=64))

    async def run() -> None:
        for observation in ("task", *"12345678"):
            await session.act(observation, {})

    with pytest.raises(ContextFull, match=r"no room for a reply in the context of 100 tokens.*TokenBudget"):
        asyncio.run(run())
    rooms = [(len(ids), sampling.max_tokens) for ids, sampling in engine.asked]
    assert len(rooms) > 1
    assert all(room == min(64, 100 - used) >= 16 for used, room in rooms)


def test_a_smaller_window_can_be_asked_for() -> None:
    assert ChatAgent(Replies(CHATML, [], max_context=100), max_context=60).window == 60
    assert ChatAgent(Replies(CHATML, [], max_context=100), max_context=600).window == 100
    assert ChatAgent(Replies(CHATML, [])).window is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"context": "all of it"}, "context must be FullHistory"),
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
def test_bad_options_are_refused_at_once(options: dict[str, Any], why: str) -> None:
    with pytest.raises(BadValue, match=why):
        ChatAgent(Replies(CHATML, []), **options)


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
def test_policies_that_cannot_work_are_refused(make: Any) -> None:
    with pytest.raises(BadValue):
        make()


def test_a_model_without_a_template_is_refused() -> None:
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
        ChatAgent(Replies(Bare(), []))
    # A template that is no Jinja is a black box: every prompt is rendered in full, and extends all the same.
    Bare.chat_template = "of my own"  # type: ignore[assignment]
    engine = Replies(Bare(), [])
    chat = ChatAgent(engine)
    assert chat.renderer([]).tests is None


def test_misspelt_keywords_are_type_errors() -> None:
    with pytest.raises(TypeError):
        ChatAgent(Replies(CHATML, []), temprature=1.0)  # type: ignore[call-arg]
    assert issubclass(UnknownKeyword, TypeError)


# Reflection


def test_reflection_follows_a_bad_outcome_and_stays_in_the_conversation() -> None:
    engine = Replies(CHATML, ["a", "I was hasty.", "b", "c"])
    chat = ChatAgent(engine, reflect=Reflection(max_tokens=99, instruction="Look back.", resume="Go on."))
    actions = converse(chat, ["task", "wrong", "right"], [{}, {"invalid": "rule"}, {}])
    assert [[call.kind for call in action.calls] for action in actions] == [["act"], ["reflect", "act"], ["act"]]
    assert [action.text for action in actions] == ["a", "b", "c"]
    assert [call.split for call in flat(actions)] == [None] * 4
    assert engine.asked[1][1].max_tokens == 99
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
def test_when_reflection_is_due(reflect: Reflection, info: dict[str, Any], kinds: str) -> None:
    calls = flat(converse(ChatAgent(Replies(CHATML, ["x"] * 9), reflect=reflect), ["task", "1", "2"], [info] * 3))
    assert "".join(call.kind[0] for call in calls) == kinds


def test_no_reflection_where_the_window_has_no_room_for_it() -> None:
    chat = ChatAgent(Replies(CHATML, ["x"] * 9, max_context=100), max_tokens=20, reflect=Reflection(max_tokens=50))
    calls = flat(converse(chat, ["task", "1"], [{}, {"invalid": True}]))
    assert [call.kind for call in calls] == ["act", "act"]


def test_turns_with_reflections_are_cut_whole() -> None:
    engine = Replies(CHATML, ["a", "r1", "b", "r2", "c", "r3", "d"])
    chat = ChatAgent(
        engine, context=LastTurns(1), reflect=Reflection(when=None, every=1, instruction="Look.", resume="Go.")
    )
    calls = flat(converse(chat, ["task", "1", "2", "3"]))
    assert [call.split for call in calls] == [None, None, None, "context", None, "context", None]
    assert engine.prompts()[6] == (
        f"{HEAD}c<|im_end|>\n<|im_start|>user\n3\n\nLook.<|im_end|>\n<|im_start|>assistant\n"
        "r3<|im_end|>\n<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n"
    )


# Pictures, and servers that take messages


def test_pictures_need_an_engine_that_takes_messages() -> None:
    picture = [{"type": "text", "text": "look: "}, {"type": "image", "image": PNG}]
    with pytest.raises(BadValue, match="carry no images"):
        converse(ChatAgent(Replies(CHATML, ["a"])), [picture])
    engine = ChatServer(["a", "b"])
    (action, _) = converse(ChatAgent(engine), [picture, "x"])
    sent: Any = engine.asked[0][0]["content"]
    assert sent[0] == {"type": "text", "text": "look: "}
    assert sent[1]["image_url"]["url"].startswith("data:image/png;base64,iVBORw0KGgo")
    assert action.calls[0].prompt == [{"role": "user", "content": picture}]  # as seen, not as sent


def test_text_parts_are_text() -> None:
    engine = Replies(CHATML, ["a"])
    converse(ChatAgent(engine), [[{"type": "text", "text": "ta"}, {"type": "text", "text": "sk"}]])
    assert engine.prompts() == [HEAD]


def test_an_engine_without_a_tokenizer_gets_messages() -> None:
    engine = ChatServer(["a", "b", "c"])
    actions = converse(ChatAgent(engine, system="Rules.", context=LastTurns(1)), ["task", "1", "2"])
    assert engine.asked[1] == [
        {"role": "system", "content": "Rules."},
        {"role": "user", "content": "task"},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "1"},
    ]
    assert [m["content"] for m in engine.asked[2]] == ["Rules.", "task", "b", "2"]
    calls = flat(actions)
    assert [call.split for call in calls] == [None, None, "context"]
    assert [call.prompt for call in calls] == engine.asked
    assert all(call.prompt_ids == call.ids == [] for call in calls)


def test_an_engine_may_find_out_about_its_tokens_first() -> None:
    class Late(Replies):
        asked_if_ready = 0

        async def ready(self) -> None:
            self.asked_if_ready += 1
            self.tokenizer, self.max_context = CHATML, 200

    engine = Late(CHATML, ["a", "b", "c"])
    engine.tokenizer = None
    chat = ChatAgent(engine, max_tokens=50, context=TokenBudget())
    actions = converse(chat, ["task", "1"])
    assert engine.prompts()[0] == HEAD
    assert actions[1].calls[0].prompt_ids
    assert chat.context == TokenBudget(150)
    converse(chat, ["task"])
    assert engine.asked_if_ready == 1


def test_a_server_shows_no_tokens_to_count() -> None:
    for context in (TokenBudget(100), Summary(tokens=100), TokenBudget(), Summary()):
        with pytest.raises(BadValue, match="token|Summary needs"):
            converse(ChatAgent(ChatServer(["a"]), context=context), ["task"])
    engine = ChatServer(["a", "gist", "b"])
    converse(ChatAgent(engine, context=Summary(turns=1)), ["task", "1"])
    assert converse(ChatAgent(ChatServer(["a"]), context=FullHistory()), ["task"])[0].text == "a"


def test_a_server_gets_tool_calls_and_their_answers_in_its_own_form() -> None:
    def call(name: str) -> dict[str, Any]:
        return {"id": f"id-{name}", "type": "function", "function": {"name": name, "arguments": '{"x": 1}'}}

    engine = ChatServer([("", [call("f"), call("g")]), "b", "c"])
    schema = {"name": "f", "parameters": {"type": "object", "properties": {}}}
    chat = ChatAgent(engine, style="tools", tools=[schema])
    actions = converse(chat, ["task", "42", "more"], [{}, {"use_tool": True}, {"use_tool": True}])
    assert actions[0].tool_calls == (
        {"name": "f", "arguments": {"x": 1}, "id": "id-f"},
        {"name": "g", "arguments": {"x": 1}, "id": "id-g"},
    )
    assert engine.tools[0] == [{"type": "function", "function": schema}]
    said, answer, other = engine.asked[1][1:]
    assert said["tool_calls"] == [call("f"), call("g")]  # type: ignore[typeddict-item]
    assert answer == {"role": "tool", "content": "42", "tool_call_id": "id-f"}
    assert other["tool_call_id"] == "id-g"  # type: ignore[typeddict-item]
    assert engine.asked[2][-1] == {"role": "user", "content": "more"}  # no call was made, so there is none to answer
    json.dumps(engine.asked)
