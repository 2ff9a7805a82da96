"""Test episodes with a server that rejects long prompts or returns empty replies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palestra.agents import ChatAgent
from palestra.engines import Sampling
from palestra.engines.context_errors import is_context_overflow, smaller_limit
from palestra.engines.openai import OpenAIEngine
from palestra.errors import ContextFull
from palestra.evals import EvaluatedAgent, Suite, run_evaluation, suite_entry
from palestra.evals.rescoring import rescore
from palestra.rollout import RolloutResult, collect
from palestra.types import Message
from tests.engines.stub_server import Stub, delays, rejects, responds_with

GAME = "game:GuessTheNumber-v0-easy"
CHAT = "/v1/chat/completions"
HI: list[Message] = [{"role": "user", "content": "hi"}]
REPLY = {"role": "assistant", "content": "\\boxed{5}"}
EMPTY = {"role": "assistant", "content": " \n"}
VLLM = (
    "This model's maximum context length is 4096 tokens. However, you requested {all} tokens ({prompt} in the "
    "messages, {reply} in the completion). Please reduce the length of the messages or completion."
)
VLLM_0_11 = (
    "'max_tokens' or 'max_completion_tokens' is too large: {reply}. This model's maximum context length is 4096 tokens "
    "and your request has {prompt} input tokens ({reply} > 4096 - {prompt})."
)
SGLANG = (
    "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of {all} "
    "tokens: {prompt} tokens from the input messages and {reply} tokens for the completion."
)
PROMPT_ONLY = [
    "This model's maximum context length is 4097 tokens. However, your messages resulted in 5000 tokens.",
    "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
    "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens.",
    "max_tokens must be at least 1, got -186.",
]


@pytest.fixture
def server() -> Iterator[Stub]:
    with Stub("plain", context=8192, reply=REPLY) as server:
        yield server


def play(server: Stub, **options: Any) -> RolloutResult:
    agent = ChatAgent(OpenAIEngine(server.url, retries=0), max_tokens=64)
    return asyncio.run(collect(agent, GAME, episodes=1, seed=2, retries=0, **options))


@pytest.mark.parametrize("message", PROMPT_ONLY)
def test_overflow_truncates_the_episode(server: Stub, message: str) -> None:
    first = play(server).trajectories[0]
    assert len(first.turns) > 1
    server.faults[CHAT] = [delays(0), rejects(400, message)]
    result = play(server)
    assert result.failures == []
    [trajectory] = result.trajectories
    assert (len(trajectory.turns), trajectory.success, trajectory.truncated) == (1, False, True)
    assert trajectory.turns[-1].info["ending"] == "context"


def test_overflow_in_the_first_prompt_is_an_unsuccessful_episode(server: Stub) -> None:
    server.faults[CHAT] = [rejects(400, PROMPT_ONLY[0])] * 2
    [trajectory] = play(server).trajectories
    assert (trajectory.success, trajectory.truncated, trajectory.total_reward) == (False, True, 0.0)
    assert play(server, fail_on_long_prompt=True).metrics["failures_by_boundary"] == {"agent": 1}


@pytest.mark.parametrize("form", [VLLM, VLLM_0_11, SGLANG], ids=["vllm", "vllm-0.11", "sglang"])
def test_a_long_reply_is_requested_with_a_smaller_limit(server: Stub, form: str) -> None:
    message = form.format(all=4196, prompt=3900, reply=296)
    server.faults[CHAT] = [rejects(400, message)]
    engine = OpenAIEngine(server.url, retries=0)
    assert asyncio.run(engine.chat(HI, Sampling(max_tokens=296))).text == "\\boxed{5}"
    assert [body["max_tokens"] for body in server.bodies(CHAT)] == [296, 196]
    server.faults[CHAT] = [rejects(400, form.format(all=4391, prompt=4095, reply=296))]
    with pytest.raises(ContextFull):
        asyncio.run(engine.chat(HI, Sampling(max_tokens=296)))


def test_numbers_in_messages() -> None:
    at_least = "maximum context length is 128 tokens. However, your prompt contains at least 65 input tokens"
    assert smaller_limit(at_least, 64) == 32
    assert smaller_limit(at_least, 17) is None
    assert smaller_limit("maximum context length is 128 tokens", 64) is None
    assert not is_context_overflow(400, "max_tokens is too large: 9. This model supports at most 4 completion tokens")
    assert not is_context_overflow(500, "maximum context length")
    assert is_context_overflow(413, "")


def test_an_empty_reply_is_not_played_but_counted(server: Stub, tmp_path: Path) -> None:
    server.reply = EMPTY
    suite = Suite(name="test", entries=(suite_entry(GAME, n=2, sampling={"max_tokens": 64}),))
    done = asyncio.run(run_evaluation(suite, EvaluatedAgent(server.url), tmp_path / "a", command=["palestra"]))
    row = done.summary["table"]["envs"][0]
    assert (row["episodes"], row["failed"], row["success"]) == (2, 0, 0.0)
    assert (row["empty_replies"], row["invalid_actions"], row["turns"]) == (1.0, 0.0, 1.0)
    assert row["endings"] == {"empty_reply": 2}
    assert server.count(CHAT) == 2 * 3  # two more requests per episode
    assert "empty replies" in str(done)
    again = asyncio.run(rescore(tmp_path / "a", tmp_path / "b"))
    assert again.evaluation.summary["table"] == done.summary["table"]


def test_an_empty_reply_is_requested_again(server: Stub) -> None:
    empty: dict[str, Any] = {"choices": [{"message": EMPTY, "finish_reason": "stop"}]}
    server.faults[CHAT] = [responds_with(empty), responds_with(empty)]
    engine = OpenAIEngine(server.url, retries=0)
    done = asyncio.run(engine.chat(HI, Sampling(max_tokens=64, seed=7)))
    assert (done.text, done.finish) == ("\\boxed{5}", "stop")
    assert [body["seed"] for body in server.bodies(CHAT)] == [7, 8, 9]
