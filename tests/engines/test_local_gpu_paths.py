"""Test, on the CPU, the code paths that LocalEngine uses on a GPU."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from palestra.engines import Sampling
from palestra.engines.local import runner
from palestra.engines.local.attention import AttentionPlanner, PaddedPrefillPart
from palestra.engines.local.engine import LocalEngine
from tests.engines.test_local_exact import (  # noqa: F401  # the same tests, run with the fixture below
    test_changed_prompt_reuses_only_the_common_prefix,
    test_common_prefixes_are_computed_once,
    test_long_prompts_are_prefilled_in_chunks,
    test_one_reply_can_fill_the_cache,
    test_replies_preempted_by_a_full_cache_are_exact,
    test_replies_that_span_a_weight_update_are_recomputed,
    test_two_hundred_conversations_with_eight_running,
)
from tests.engines.test_local_fuzz import check_random_requests
from tests.engines.test_local_lifecycle import (  # noqa: F401
    model,
    test_cancelled_pause_does_not_block_the_engine,
    test_cancelled_request_frees_its_row,
    test_closing_fails_open_requests_and_is_idempotent,
    test_engine_recovers_from_non_finite_weights,
    test_engine_survives_the_end_of_an_event_loop,
    test_generation_does_not_block_the_event_loop,
    test_lockstep_runs_are_bitwise_equal,
    test_pause_waits_for_the_current_step_and_blocks_the_next,
    test_thousands_of_queued_requests,
    test_two_event_loops_at_once,
)
from tests.engines.tiny import error, make, qwen3, text


@pytest.fixture(autouse=True)
def use_gpu_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "launch_bound", lambda device: True)


@pytest.mark.parametrize("seed", range(3))
def test_random_requests_are_exact(seed: int) -> None:
    """Check the native runner; of the other one, only the admission of requests differs on a GPU."""
    check_random_requests("native", seed)


async def talk(engine: LocalEngine, key: int, turns: int) -> list[Any]:
    rng = random.Random(key)
    replies, ids = [], text(rng, rng.randint(2, 90))
    for _ in range(turns):
        replies.append(await engine.generate(ids, Sampling(max_tokens=rng.randint(1, 9), seed=key), conversation=key))
        ids = ids + replies[-1].ids + text(rng, rng.randint(2, 40))
    engine.forget(key)
    return replies


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
        {"attention_bias": True, "num_key_value_heads": 4},
    ],
)
def test_prompts_of_many_rows_are_prefilled_in_one_call(monkeypatch: pytest.MonkeyPatch, shape: dict[str, Any]) -> None:
    rows: list[int] = []
    plain = AttentionPlanner.plan

    def plan(self: AttentionPlanner, *arguments: Any) -> Any:
        parts = plain(self, *arguments)
        rows.extend(part.rows for part in parts if isinstance(part, PaddedPrefillPart))
        return parts

    monkeypatch.setattr(AttentionPlanner, "plan", plan)
    tiny = make("Qwen3", head_dim=8, **shape)

    async def run() -> None:
        async with LocalEngine(tiny, threads=1) as engine:
            talks = await asyncio.gather(*(talk(engine, key, 3) for key in range(40)))
            assert max(error(tiny, done) for replies in talks for done in replies) < 1e-4

    asyncio.run(run())
    assert max(rows) >= 20


def test_simultaneous_requests_share_steps() -> None:
    tiny = qwen3()

    async def run() -> None:
        async with LocalEngine(tiny, threads=1) as engine:
            await asyncio.gather(*(talk(engine, key, 4) for key in range(64)))
            # Four turns of at most nine tokens; requests that start one by one would need many more steps.
            assert engine.stats.steps <= 4 * 9 + 8

    asyncio.run(run())
