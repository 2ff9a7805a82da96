"""Test that truncated episodes store the prompt for the turn that would have followed."""

from __future__ import annotations

import asyncio

import palestra
from palestra.agents import ChatAgent
from palestra.engines.bytes_tokenizer import ByteTokenizer
from palestra.engines.scripted import ScriptedEngine
from palestra.rollout import Task, collect
from palestra.wrappers import Horizon

ENV = "game:GuessTheNumber-v0-hard"


def _play(horizon: int | None, guesses: list[str], *, max_context: int | None = None) -> palestra.rollout.Trajectory:
    engine = ScriptedEngine(lambda _: guesses.pop(0), tokenizer=ByteTokenizer())
    wrappers = [] if horizon is None else [lambda env: Horizon(env, horizon)]
    agent = ChatAgent(engine, max_context=max_context)
    result = asyncio.run(collect(agent, [Task(env_id=ENV, seed=3)], wrappers=wrappers))
    return result.trajectories[0]


def test_truncated_episode_stores_the_next_prompt() -> None:
    guesses = [rf"\boxed{{{n}}}" for n in (1, 2, 3)]
    longer, shorter = _play(3, list(guesses)), _play(2, list(guesses))
    assert shorter.truncated
    # Both prompts start with the tokens of the first two turns. The last observation in the shorter episode also
    # reports that it was truncated.
    third_prompt = longer.turns[2].action.calls[0].prompt_ids
    last_call = shorter.turns[1].action.calls[0]
    so_far = [*last_call.prompt_ids, *last_call.ids]
    assert list(shorter.final_prompt[: len(so_far)]) == so_far
    assert third_prompt[: len(so_far)] == so_far
    assert len(shorter.final_prompt) > len(so_far)


def test_finished_episode_has_no_final_prompt() -> None:
    assert _play(None, ["no number"]).final_prompt == ()


def test_a_full_context_stores_the_next_prompt() -> None:
    """Check that a critic can estimate the value of the state in which the context was full."""
    guesses = [rf"\boxed{{{n}}}" for n in (1, 2, 3)]
    third = _play(3, list(guesses)).turns[2].action.calls[0].prompt_ids
    for room in (10, -5):  # the third prompt fits into the context without room for a reply, or not at all
        window = len(third) + room
        cut = _play(None, list(guesses), max_context=window)
        assert cut.truncated
        assert len(cut.turns) == 2
        assert cut.turns[-1].info["ending"] == "context"
        assert list(cut.final_prompt) == third[: window - 1]
