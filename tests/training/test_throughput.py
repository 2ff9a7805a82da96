"""Test the throughput metrics of a training step."""

from __future__ import annotations

import asyncio

import pytest

from palestra.agents import ChatAgent, FullHistory, LastTurns
from palestra.agents.context import Context
from palestra.engines import ByteTokenizer, ScriptedEngine
from palestra.rollout import collect, to_samples
from palestra.training.throughput import learned_tokens, throughput_metrics


@pytest.mark.parametrize("context", [FullHistory(), LastTurns(1)])
def test_learned_tokens_are_the_tokens_in_the_samples(context: Context) -> None:
    agent = ChatAgent(ScriptedEngine(r"\boxed{5}", tokenizer=ByteTokenizer()), max_tokens=16, context=context)
    result = asyncio.run(collect(agent, "game:GuessTheNumber-v0-hard", episodes=3, seed=1))
    samples = [sample for trajectory in result.trajectories for sample in to_samples(trajectory)]
    assert (len(samples) > 3) == (context == LastTurns(1))
    assert learned_tokens(result.trajectories) == sum(map(len, samples)) > 0


def test_the_largest_memory_is_reported() -> None:
    assert throughput_metrics([], 2, 1.0, [None]) == {"learned_tokens_per_second": 0.0}
    assert throughput_metrics([], 0, 1.0, [3.0, 5.0]) == {"gpu_memory_gb": 5.0}  # without an update, nothing is learned
