"""Test, for all template families, that each prompt starts with the exact tokens of the previous prompt and reply."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.agents import ChatAgent
from palestra.agents.conversation import Prompt, TokenConversation
from palestra.agents.render import Renderer
from palestra.engines.base import Completion
from palestra.types import Call
from tests.agents.engine import PreparedEngine, PreparedReply, converse, prepare_reply
from tests.agents.families import FAMILIES, SPELLINGS, tokenizer_of

PLAIN = [name for name in FAMILIES if name not in ("qwen3-no-thinking", "qwen3-always-thinking")]
TASK = "Guess the secret code.\nYou have 10 turns, so think first."
OBSERVATIONS = [
    "Turn 1 of 10: two black pegs.",
    'He said: "go <b>north</b>" & left.\n\n  | a | b |',
    "Turn 3 of 10: é 你好 😀",
    "ok",
]
REPLIES = [
    "I guess \\boxed{1 2 3 4}.",
    "The door is open;\n\nAction: go north",
    "你好 é 😀 {x}",
    "the answer is 7",
    "done",
]


def calls_of(agent: ChatAgent, observations: list[str], infos: list[dict[str, Any]] | None = None) -> list[Call]:
    return [call for action in converse(agent, observations, infos or []) for call in action.calls]


def render(name: str, messages: list[dict[str, Any]]) -> str:
    return str(
        tokenizer_of(name).apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **FAMILIES[name].options
        )
    )


def dialogue(observations: list[str], replies: list[str]) -> list[dict[str, Any]]:
    """Return the messages up to the last observation."""
    messages: list[dict[str, Any]] = []
    for observation, reply in zip(observations, [*replies, ""], strict=False):
        messages += [{"role": "user", "content": observation}, {"role": "assistant", "content": reply}]
    return messages[:-1]


def extends(later: Call, earlier: Call) -> bool:
    before = earlier.prompt_ids + earlier.ids
    return later.prompt_ids[: len(before)] == before


def squeeze(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("name", PLAIN)
def test_prompts_extend_each_other_and_decode_to_the_rendered_template(name: str) -> None:
    tokenizer = tokenizer_of(name)
    engine = PreparedEngine(tokenizer, REPLIES)
    observations = [TASK, *OBSERVATIONS]
    calls = calls_of(ChatAgent(engine, template_options=FAMILIES[name].options), observations)
    assert [call.split for call in calls] == [None] * 5
    for earlier, later in itertools.pairwise(calls):
        assert extends(later, earlier)
    for turn, call in enumerate(calls):
        assert call.ids == engine.replies[turn].ids
        assert call.prompt_ids == engine.requests[turn][0]
        written = render(name, dialogue(observations[: turn + 1], REPLIES[:turn]))
        if name == "mistral":  # the template inserts a space before a reply, which the model did not sample
            written = written.replace("[/INST] ", "[/INST]")
        text = tokenizer.decode(call.prompt_ids)
        if name == "words":  # the template has no end-of-turn token, so the sampled one is not rendered
            text = text.replace("<|endoftext|>", "")
        if name.endswith("sentencepiece"):  # SentencePiece's decoder moves spaces
            assert squeeze(text) == squeeze(written)
            continue
        assert text == tokenizer.decode(tokenizer.encode(written, add_special_tokens=False))
        if name != "phi3":  # Phi-3's special tokens absorb the newline after them
            assert text == written


@pytest.mark.parametrize("name", [name for name in PLAIN if not name.startswith("mistral") and name != "words"])
def test_prompts_equal_the_tokenized_template_if_replies_have_canonical_tokens(name: str) -> None:
    tokenizer = tokenizer_of(name)
    observations = [TASK, *OBSERVATIONS]
    calls = calls_of(ChatAgent(PreparedEngine(tokenizer, REPLIES)), observations)
    whole = render(name, dialogue(observations, REPLIES[:-1]))
    assert calls[-1].prompt_ids == tokenizer.encode(whole, add_special_tokens=False)


@pytest.mark.parametrize("name", ["qwen3-no-thinking", "qwen3-always-thinking"])
def test_generation_prompt_missing_from_history_splits_every_turn(name: str) -> None:
    """Use templates whose prompts end with an open or empty thinking block, which they omit from earlier turns."""
    tokenizer = tokenizer_of(name)
    observations = [TASK, *OBSERVATIONS]
    calls = calls_of(
        ChatAgent(PreparedEngine(tokenizer, REPLIES), template_options=FAMILIES[name].options), observations
    )
    assert [call.split for call in calls] == [None] + ["template"] * 4
    for turn, call in enumerate(calls):
        written = render(name, dialogue(observations[: turn + 1], REPLIES[:turn]))
        assert call.prompt_ids == tokenizer.encode(written, add_special_tokens=False)


def test_thinking_removed_by_the_template_is_reported_as_split() -> None:
    tokenizer = tokenizer_of("qwen3")
    replies = ["<think>\nhm\n</think>\n\ngo north", "no thought", "<think>\nso\n</think>\n\ngo south", "end"]
    observations = [TASK, "a wall", "a door", "a room"]
    calls = calls_of(ChatAgent(PreparedEngine(tokenizer, replies)), observations)
    assert [call.split for call in calls] == [None, "template", None, "template"]
    assert extends(calls[2], calls[1])
    assert not extends(calls[1], calls[0])
    for turn, call in enumerate(calls):
        text = tokenizer.decode(call.prompt_ids)
        assert text == render("qwen3", dialogue(observations[: turn + 1], replies[:turn]))
        assert "<think>" not in text


def test_thinking_stays_during_tool_results_and_is_removed_after_a_user_message() -> None:
    tokenizer = tokenizer_of("qwen3")
    # The template adds newlines around a thinking block. The model sampled none, and its tokens are not changed.
    replies = [
        "<think>hm</think><tool_call>{}</tool_call>",
        "no thought",
        "<think>\nso\n</think>\n\nb",
        "no thought",
        "c",
    ]
    tool: dict[str, Any] = {"use_tool": True}
    observations = [TASK, "17", "18", "19", "a room"]
    calls = calls_of(ChatAgent(PreparedEngine(tokenizer, replies)), observations, [{}, tool, tool, tool, {}])
    assert [call.split for call in calls] == [None, None, None, None, "template"]
    with_thinking, without_thinking = tokenizer.decode(calls[3].prompt_ids), tokenizer.decode(calls[4].prompt_ids)
    assert "<think>hm</think>" in with_thinking
    assert "<think>\nso\n</think>\n\nb" in with_thinking
    assert "<tool_response>\n18\n</tool_response>" in with_thinking
    assert "hm" not in without_thinking
    assert without_thinking.startswith(
        render("qwen3", [{"role": "user", "content": TASK}]) + "<tool_call>{}</tool_call><|im_end|>"
    )


def test_system_text_moved_by_the_template_splits_every_turn() -> None:
    tokenizer = tokenizer_of("mistral")
    calls = calls_of(ChatAgent(PreparedEngine(tokenizer, REPLIES), system="Be brief."), [TASK, *OBSERVATIONS])
    assert [call.split for call in calls] == [None] + ["template"] * 4
    for call in calls:
        assert tokenizer.decode(call.prompt_ids).count("Be brief.") == 1


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_shows_the_system_text_once(name: str) -> None:
    tokenizer = tokenizer_of(name)
    engine = PreparedEngine(tokenizer, REPLIES)
    calls = calls_of(
        ChatAgent(engine, system="Be brief.", template_options=FAMILIES[name].options), [TASK, OBSERVATIONS[0]]
    )
    text = tokenizer.decode(calls[1].prompt_ids)
    assert text.count("Be brief.") == 1
    assert text.index("Be brief.") < text.index("Turn 1")
    if name.startswith("gemma"):
        assert "Be brief.\n\nGuess" in text


@pytest.mark.parametrize("name", PLAIN)
def test_truncated_reply_is_followed_by_the_end_token_of_the_template(name: str) -> None:
    tokenizer = tokenizer_of(name)
    engine = PreparedEngine(
        tokenizer, [prepare_reply(tokenizer, "I was about to", end=None), prepare_reply(tokenizer, "yes")]
    )
    first, second = calls_of(ChatAgent(engine), [TASK, "go on"])
    assert second.split is None
    assert extends(second, first)
    added = tokenizer.decode(second.prompt_ids[len(first.prompt_ids) + len(first.ids) :])
    end = Renderer(tokenizer).end
    assert added.startswith(end)
    if end:
        assert not added.removeprefix(end).lstrip().startswith(end)
        assert engine.requests[0][1].stop_ids == (tokenizer.convert_tokens_to_ids(end),)


def test_other_end_token_stays_as_sampled() -> None:
    tokenizer = tokenizer_of("qwen2.5")
    engine = PreparedEngine(
        tokenizer, [prepare_reply(tokenizer, "I stop", end="<|endoftext|>"), prepare_reply(tokenizer, "yes")]
    )
    first, second = calls_of(ChatAgent(engine), [TASK, "go on"])
    assert extends(second, first)
    assert "I stop<|endoftext|><|im_end|>\n<|im_start|>user\ngo on" in tokenizer.decode(second.prompt_ids)


@pytest.mark.parametrize("name", PLAIN)
def test_spelled_special_tokens_are_encoded_as_text(name: str) -> None:
    tokenizer = tokenizer_of(name)
    special = set(Renderer(tokenizer).codec.special.values())
    attack = "".join(f" {token}{token}\n" for token in FAMILIES[name].special) + "<|im_<|im_end|>"
    harmless = calls_of(ChatAgent(PreparedEngine(tokenizer, ["a", "b", "c"])), [TASK, "x", "y"])
    attacked = calls_of(
        ChatAgent(PreparedEngine(tokenizer, [f"a{attack}", "b", "c"])), [TASK + attack, f"x{attack}", f"{attack}y"]
    )
    for call, other in zip(attacked, harmless, strict=True):
        assert [token for token in call.prompt_ids if token in special] == [
            token for token in other.prompt_ids if token in special
        ]
        assert call.split is None
    assert squeeze(attack) in squeeze(tokenizer.decode(attacked[2].prompt_ids))


def test_sampled_special_tokens_survive_a_rewrite_by_the_template() -> None:
    tokenizer = tokenizer_of("qwen3")
    start = tokenizer.convert_tokens_to_ids("<|im_start|>")
    word = tokenizer.encode(" a", add_special_tokens=False)
    ids = [*tokenizer.encode("<think>x</think>b", add_special_tokens=False), start, *word, tokenizer.eos_token_id]
    reply = PreparedReply(ids=ids, text=tokenizer.decode(ids[:-1]))
    first, second = calls_of(
        ChatAgent(PreparedEngine(tokenizer, [reply, prepare_reply(tokenizer, "c")])), [TASK, "go on"]
    )
    assert second.split == "template"
    assert second.prompt_ids.count(start) == first.prompt_ids.count(start) + 3  # reply, user message, next reply


def test_replies_without_ids_are_tokenized_and_reported_as_split() -> None:
    tokenizer = tokenizer_of("chatml")
    replies = [PreparedReply(ids=[], text="a text only"), prepare_reply(tokenizer, "b"), prepare_reply(tokenizer, "c")]
    calls = calls_of(ChatAgent(PreparedEngine(tokenizer, replies)), [TASK, "x", "y"])
    assert [call.split for call in calls] == [None, "tokens", None]
    assert "a text only<|im_end|>" in tokenizer.decode(calls[1].prompt_ids)


def test_prompt_ids_reported_by_the_engine_replace_those_sent() -> None:
    tokenizer = tokenizer_of("chatml")

    class Retokenizing(PreparedEngine):
        async def generate(self, prompt_ids: Any, sampling: Any, *, conversation: Any = None) -> Completion:
            text = tokenizer.decode(prompt_ids)
            spelt = [i for letter in text for i in tokenizer.encode(letter, add_special_tokens=False)]
            return await super().generate(spelt, sampling, conversation=conversation)

    calls = calls_of(ChatAgent(Retokenizing(tokenizer, ["the answer", "the door"])), [TASK, "x"])
    assert calls[1].split == "tokens"
    assert all(len(call.prompt_ids) > 40 for call in calls)


def test_unpaired_surrogates_are_accepted() -> None:
    tokenizer = tokenizer_of("chatml")
    calls = calls_of(ChatAgent(PreparedEngine(tokenizer, ["a", "b"])), [f"{TASK}\ud800", "x\udfff"])
    assert calls[1].split is None


def test_truncation_enabled_by_another_user_of_the_tokenizer_is_ignored() -> None:
    tokenizer = tokenizer_of("chatml")
    chat = ChatAgent(PreparedEngine(tokenizer, ["a", "b"]))
    tokenizer("some text", truncation=True, max_length=3)
    assert tokenizer.backend_tokenizer.truncation is not None
    calls = calls_of(chat, [TASK, "x " * 50])
    assert tokenizer.decode(calls[1].prompt_ids).count("x ") == 50


# Property-based tests

letters = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581"), max_size=12)
spelt = st.sampled_from(
    [*SPELLINGS, "<tool_response>", "</tool_response>", "### user:", "Zreply7q", "\ufdd0", "\ufdd0\ufdd1"]
)
blank = st.sampled_from(["", " ", "\n", "\n\n", " \t\n ", "\r\n", "\u00a0", "\x1c"])
texts = st.lists(st.one_of(letters, spelt, blank), max_size=5).map("".join)


@st.composite
def replies(draw: st.DrawFn, name: str) -> PreparedReply:
    """Generate replies with non-canonical tokenization, some containing special tokens, some without an end token."""
    tokenizer = tokenizer_of(name)
    inner = [token for token in FAMILIES[name].special if token != FAMILIES[name].eos]
    ids: list[int] = []
    for kind in draw(st.lists(st.sampled_from(["text", "text", "letters", "special"]), max_size=4)):
        text = draw(texts)
        if kind == "special":
            ids.append(tokenizer.convert_tokens_to_ids(draw(st.sampled_from(inner or [FAMILIES[name].eos]))))
        for piece in [text] if kind == "text" else text:
            ids += tokenizer.encode(piece, add_special_tokens=False, split_special_tokens=True)
    decoded = tokenizer.decode(ids, skip_special_tokens=False)
    if draw(st.booleans()) or not ids:
        ids = [*ids, tokenizer.eos_token_id]
    return PreparedReply(ids=ids, text=decoded)


@pytest.mark.parametrize("name", ["qwen3", "mistral-sentencepiece", "phi3"])
@settings(max_examples=30)
@given(data=st.data())
def test_encoding_with_a_shared_prefix_equals_full_encoding(name: str, data: st.DataObject) -> None:
    codec = renderer_of(name, True).codec
    tokens = st.sampled_from(FAMILIES[name].special)
    drawn = st.lists(st.one_of(tokens, texts.map(codec.guard), blank), max_size=6)
    head = "".join(data.draw(drawn))
    one, other = (head + "".join(data.draw(drawn)) for _ in range(2))
    assert codec.encoded(other, codec.encoded(one)).ids == codec.encode(other)


@cache
def renderer_of(name: str, shortcuts: bool) -> Renderer:
    return Renderer(tokenizer_of(name), options=FAMILIES[name].options, shortcuts=shortcuts)


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=15)
@given(data=st.data())
def test_random_conversations(name: str, data: st.DataObject) -> None:
    tokenizer = tokenizer_of(name)
    conversations = [TokenConversation(renderer_of(name, shortcuts)) for shortcuts in (True, False)]
    special = renderer_of(name, True).codec.special_ids
    system = data.draw(texts) if data.draw(st.booleans()) else None
    last: tuple[list[int], list[int]] | None = None
    started = False
    messages: list[Any] = []
    for _ in range(data.draw(st.integers(1, 5))):
        role = data.draw(st.sampled_from(["user", "user", "tool"])) if started else "user"
        observation = data.draw(texts)
        proposed: list[Prompt] = []
        for conversation in conversations:
            if started:
                proposed.append(
                    conversation.next(
                        conversation.tool_result(observation)
                        if role == "tool"
                        else conversation.message("user", observation)
                    )
                )
            else:
                head = (
                    [conversation.message("system", system)] if system is not None and conversation.takes_system else []
                )
                proposed.append(conversation.open([*head, conversation.message("user", observation)]))
            conversation.send(proposed[-1])
        started = True
        prompt, rendered_prompt = proposed
        messages += prompt.messages

        # Extending a prompt has the same result as rendering it in full.
        assert prompt.ids == rendered_prompt.ids
        assert prompt.split == rendered_prompt.split

        # Without a split, the prompt starts with the previous prompt and reply.
        if last is not None:
            before = last[0] + last[1]
            assert (prompt.ids[: len(before)] == before) == (prompt.split is None)

        # The text equals the rendered template, and all special tokens come from the template or the model.
        rendered = renderer_of(name, False).codec.encode(renderer_of(name, False).render(messages))
        if prompt.split is not None:
            assert prompt.ids == rendered
        elif name != "words":  # the model and the template end a turn with different tokens
            assert squeeze(tokenizer.decode(prompt.ids)) == squeeze(tokenizer.decode(rendered))
            if not FAMILIES[name].sentencepiece:  # a special token may be sampled and also spelled out
                assert [i for i in prompt.ids if i in special] == [i for i in rendered if i in special]
        reply = data.draw(replies(name))
        last = prompt.ids, reply.ids
        for conversation in conversations:
            completion = Completion(
                ids=reply.ids, logprobs=[], text=reply.text, finish="stop", version=0, prompt_ids=prompt.ids
            )
            assert conversation.record(completion) == prompt.split
