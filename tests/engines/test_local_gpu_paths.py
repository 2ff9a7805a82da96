"""What the engine does differently on a GPU is right too: here it does so on the CPU."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from palestra.engines import Sampling
from palestra.engines.local import runner
from palestra.engines.local.attention import AttentionPlanner, PaddedPrefillPart
from palestra.engines.local.engine import LocalEngine
from tests.engines.test_local_exact import (  # noqa: F401  the same tests, run here with the fixture below
    test_a_prompt_that_differs_in_the_middle_cuts_the_cache_back,
    test_long_prompts_are_read_in_pieces,
    test_one_reply_may_fill_the_whole_cache,
    test_prompts_that_begin_alike_are_read_once,
    test_replies_that_outgrow_the_cache_start_over,
    test_replies_that_span_new_weights_are_read_anew,
    test_two_hundred_conversations_over_eight_slots,
)
from tests.engines.test_local_fuzz import test_every_token_is_exact  # noqa: F401
from tests.engines.test_local_lifecycle import (  # noqa: F401
    model,
    test_a_cancelled_request_frees_its_row,
    test_a_pause_that_is_given_up_does_not_last,
    test_closing_ends_everything_and_may_be_done_twice,
    test_event_loops_may_come_and_go,
    test_in_lockstep_a_run_repeats_bit_for_bit,
    test_pausing_waits_for_the_step_and_holds_the_next,
    test_the_event_loop_stays_free,
    test_thousands_of_requests_may_wait,
    test_two_event_loops_at_once,
    test_weights_that_are_not_finite_fail_and_leave_nothing_behind,
)
from tests.engines.tiny import error, make, qwen3, text


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "launch_bound", lambda device: True)


async def talk(engine: LocalEngine, key: int, turns: int) -> list[Any]:
    rng = random.Random(key)
    said, ids = [], text(rng, rng.randint(2, 90))
    for _ in range(turns):
        said.append(await engine.generate(ids, Sampling(max_tokens=rng.randint(1, 9), seed=key), conversation=key))
        ids = ids + said[-1].ids + text(rng, rng.randint(2, 40))
    engine.forget(key)
    return said


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
        {"attention_bias": True, "num_key_value_heads": 4},
    ],
)
def test_prompts_of_many_rows_are_read_in_one_call(monkeypatch: pytest.MonkeyPatch, shape: dict[str, Any]) -> None:
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
            assert max(error(tiny, done) for said in talks for done in said) < 1e-4

    asyncio.run(run())
    assert max(rows) >= 20


def test_those_who_act_at_once_share_their_steps() -> None:
    tiny = qwen3()

    async def run() -> None:
        async with LocalEngine(tiny, threads=1) as engine:
            await asyncio.gather(*(talk(engine, key, 4) for key in range(64)))
            # Four turns of nine tokens at most: had requests trickled in, there would be many more steps.
            assert engine.stats.steps <= 4 * 9 + 8

    asyncio.run(run())
