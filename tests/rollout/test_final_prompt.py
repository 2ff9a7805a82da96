"""An episode that is cut short keeps what the model would have been asked next."""

from __future__ import annotations

import asyncio

import palestra
from palestra.agents import ChatAgent
from palestra.engines.bytes_tokenizer import ByteTokenizer
from palestra.engines.scripted import ScriptedEngine
from palestra.rollout import Task, collect
from palestra.wrappers import Horizon

ENV = "game:GuessTheNumber-v0-hard"


def _played(horizon: int | None, guesses: list[str]) -> palestra.rollout.Trajectory:
    engine = ScriptedEngine(lambda _: guesses.pop(0), tokenizer=ByteTokenizer())
    wrappers = [] if horizon is None else [lambda env: Horizon(env, horizon)]
    result = asyncio.run(collect(ChatAgent(engine), [Task(env_id=ENV, seed=3)], wrappers=wrappers))
    return result.trajectories[0]


def test_truncated_episode_keeps_the_next_prompt() -> None:
    guesses = [rf"\boxed{{{n}}}" for n in (1, 2, 3)]
    longer, shorter = _played(3, list(guesses)), _played(2, list(guesses))
    assert shorter.truncated
    # What the third turn was given is what the shorter episode would have been given next, up to the words that
    # tell of the end.
    asked = longer.turns[2].action.calls[0].prompt_ids
    known = shorter.turns[1].action.calls[0]
    so_far = [*known.prompt_ids, *known.ids]
    assert list(shorter.final_prompt[: len(so_far)]) == so_far
    assert asked[: len(so_far)] == so_far
    assert len(shorter.final_prompt) > len(so_far)


def test_finished_episode_has_none() -> None:
    assert _played(None, ["no number"]).final_prompt == ()
