"""Test ScriptedEngine's replies, stop strings, limits, delays and failures."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.engines import ByteTokenizer, Completion, Sampling
from palestra.engines.scripted import Reply, ScriptedEngine
from palestra.errors import BadValue, EngineFailed
from palestra.types import Message

TOKENIZER = ByteTokenizer()
EOS = TOKENIZER.eos_token_id


def generate(engine: ScriptedEngine, prompt: str = "go", conversation: Any = None, **sampling: Any) -> Completion:
    ids = TOKENIZER.encode(prompt)
    return asyncio.run(engine.generate(ids, Sampling(**sampling), conversation=conversation))


def test_reply_consists_of_its_tokens_and_the_end_token() -> None:
    done = generate(ScriptedEngine("yes", tokenizer=TOKENIZER), "well?")
    assert done.ids == [*b"yes", EOS]
    assert done.logprobs == [0.0] * 4
    assert (done.text, done.finish, done.version) == ("yes", "stop", 0)
    assert done.prompt_ids == [*b"well?"]


def test_function_receives_the_decoded_prompt() -> None:
    prompt = TOKENIZER.apply_chat_template([{"role": "user", "content": "hé"}], tokenize=False)
    assert generate(ScriptedEngine(lambda text: text[-16:-11], tokenizer=TOKENIZER), prompt).text == prompt[-16:-11]


def test_a_function_may_be_async() -> None:
    async def reply(prompt: str) -> str:
        await asyncio.sleep(0)
        return prompt.upper()

    assert generate(ScriptedEngine(reply, tokenizer=TOKENIZER)).text == "GO"


def test_list_is_returned_in_order_once() -> None:
    engine = ScriptedEngine(["a", "b"], tokenizer=TOKENIZER)

    async def both() -> list[str]:
        prompt = [1]
        return [done.text for done in await asyncio.gather(*(engine.generate(prompt, Sampling()) for _ in range(2)))]

    assert asyncio.run(both()) == ["a", "b"]
    with pytest.raises(BadValue, match="has 2 replies, but request 3 arrived"):
        generate(engine)


def test_one_script_per_conversation() -> None:
    engine = ScriptedEngine({"x": ["a", "b"], "y": str.upper}, tokenizer=TOKENIZER)
    texts = [generate(engine, conversation=key).text for key in "xyxy"]
    assert texts == ["a", "GO", "b", "GO"]
    with pytest.raises(BadValue, match="no script for conversation 'z'"):
        generate(engine, conversation="z")


def test_list_restarts_in_each_conversation() -> None:
    engine = ScriptedEngine(["a", "b"], tokenizer=TOKENIZER, per_conversation=True)
    assert [generate(engine, conversation=key).text for key in (1, 2, 1, 2)] == ["a", "a", "b", "b"]
    engine.forget(1)
    assert generate(engine, conversation=1).text == "a"


def test_function_returns_the_script_of_a_conversation() -> None:
    engine = ScriptedEngine(lambda key: [f"{key}1", f"{key}2"], tokenizer=TOKENIZER, per_conversation=True)
    assert [generate(engine, conversation=key).text for key in "abab"] == ["a1", "b1", "a2", "b2"]


def test_engine_without_tokenizer_takes_messages() -> None:
    seen = []

    def reply(messages: list[Message]) -> Reply:
        seen.append(messages)
        return Reply(text="on it. STOP not this", tool_calls=({"name": "look", "arguments": {}},))

    engine = ScriptedEngine(reply)
    done = asyncio.run(engine.chat([{"role": "user", "content": "hi"}], Sampling(stop=("STOP",))))
    assert seen == [[{"role": "user", "content": "hi"}]]
    assert (done.ids, done.logprobs, done.prompt_ids, done.text) == ([], [], [], "on it. ")
    assert done.tool_calls == [{"name": "look", "arguments": {}}]


def test_wrong_method_raises_and_names_the_right_one() -> None:
    with pytest.raises(BadValue, match="call chat"):
        generate(ScriptedEngine("x"))
    with pytest.raises(BadValue, match="render the messages"):
        asyncio.run(ScriptedEngine("x", tokenizer=TOKENIZER).chat([], Sampling()))


@given(st.text(max_size=12), st.integers(1, 20))
def test_max_tokens_truncates_the_reply(text: str, limit: int) -> None:
    done = generate(ScriptedEngine(text, tokenizer=TOKENIZER), max_tokens=limit)
    whole = [*TOKENIZER.encode(text), EOS]
    assert done.ids == whole[:limit]
    assert done.finish == ("stop" if len(whole) <= limit else "length")
    assert done.text == TOKENIZER.decode([token for token in done.ids if token != EOS])


@given(st.text("abc", max_size=12), st.text("abc", min_size=1, max_size=3), st.integers(1, 20))
def test_stop_string_ends_the_reply(text: str, stop: str, limit: int) -> None:
    done = generate(ScriptedEngine(text, tokenizer=TOKENIZER), max_tokens=limit, stop=(stop,))
    decoded = TOKENIZER.decode(done.ids, skip_special_tokens=True)
    assert done.text == text[:limit].split(stop)[0]
    if stop in decoded:  # the reply ends with the token that completes the stop string
        assert decoded.endswith(stop)
        assert decoded.index(stop) == len(decoded) - len(stop)
        assert done.finish == "stop"


def test_stop_ids_end_the_reply() -> None:
    done = generate(ScriptedEngine("abcd", tokenizer=TOKENIZER), stop_ids=(ord("c"),))
    assert (done.ids, done.text, done.finish) == ([*b"abc"], "ab", "stop")
    done = generate(ScriptedEngine("a<|im_end|>b", tokenizer=TOKENIZER))
    assert (done.ids, done.text) == ([97, EOS], "a")


def test_context_limits_the_reply() -> None:
    engine = ScriptedEngine("abcdef", tokenizer=TOKENIZER, max_context=6)
    done = generate(engine, "1234")
    assert (done.text, done.finish) == ("ab", "length")
    with pytest.raises(BadValue, match="6 tokens leaves no room for a reply in a context of 6"):
        generate(engine, "123456")


def test_fail_every() -> None:
    engine = ScriptedEngine("x", tokenizer=TOKENIZER, fail_every=3)
    outcomes = []
    for _ in range(7):
        try:
            outcomes.append(generate(engine).text)
        except EngineFailed:
            outcomes.append("!")
    assert "".join(outcomes) == "xx!xx!x"
    assert engine.requests == 7


def test_delays_run_concurrently() -> None:
    waits = iter([0.02, 0.0])
    engine = ScriptedEngine(["slow", "quick"], tokenizer=TOKENIZER, delay=lambda: next(waits))
    order = []

    async def generate_one() -> None:
        order.append((await engine.generate([1], Sampling())).text)

    async def both() -> None:
        await asyncio.gather(generate_one(), generate_one())

    asyncio.run(both())
    assert order == ["quick", "slow"]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: ScriptedEngine(7), "a script must be a string"),  # type: ignore[arg-type]
        (lambda: ScriptedEngine({"x": "a"}), "chat requests do not name their conversation"),
        (lambda: ScriptedEngine("x", fail_every=0), "fail_every must be at least 1"),
        (lambda: generate(ScriptedEngine(lambda _: 5, tokenizer=TOKENIZER)), "got int"),
    ],
)
def test_invalid_scripts_raise(make: Any, problem: str) -> None:
    with pytest.raises(BadValue, match=problem):
        make()


def test_completion_has_the_version_at_the_start() -> None:
    engine = ScriptedEngine("x", tokenizer=TOKENIZER, delay=0.01)

    async def run() -> Completion:
        task = asyncio.create_task(engine.generate([1], Sampling()))
        await asyncio.sleep(0)
        engine.version = 1
        return await task

    assert asyncio.run(run()).version == 0


def test_import_loads_no_heavy_packages() -> None:
    code = (
        "import sys; from palestra.engines.scripted import ScriptedEngine; from palestra.engines import OpenAIEngine; "
        "print(*{m.split('.')[0] for m in sys.modules})"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"torch", "transformers", "aiohttp", "orjson", "jinja2"}.isdisjoint(loaded)
