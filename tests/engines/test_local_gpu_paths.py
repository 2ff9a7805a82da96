"""Test, on the CPU, the paged path that LocalEngine uses on a GPU, with a torch version of each Triton kernel."""

from __future__ import annotations

import asyncio
import copy
import logging
import random
from collections.abc import Callable
from typing import Any

import peft
import pytest
import torch

from palestra.engines import Completion, Sampling
from palestra.engines.local import rounding, runner
from palestra.engines.local.engine import LocalEngine
from palestra.engines.local.paged import reference
from palestra.engines.local.paged.reference import add_rms_norm, apply_updates, decode_attention
from palestra.errors import EngineFailed
from tests.engines.test_local_architectures import (
    ARCHITECTURES,
    converse,
    test_models_with_hooks_or_adapters_use_the_transformers_runner,  # noqa: F401  # also run with the fixture below
)
from tests.engines.test_local_exact import (  # noqa: F401  # the same tests, run with the fixture below
    test_concurrent_requests_of_one_conversation,
    test_long_prompts_are_prefilled_in_chunks,
    test_one_reply_can_fill_the_cache,
    test_replies_preempted_by_a_full_cache_are_exact,
)
from tests.engines.test_local_lifecycle import (  # noqa: F401
    model,
    test_cancelled_pause_does_not_block_the_engine,
    test_cancelled_request_frees_its_row,
    test_closing_fails_open_requests_and_is_idempotent,
    test_engine_survives_the_end_of_an_event_loop,
    test_lockstep_runs_are_bitwise_equal,
    test_many_queued_requests,
    test_pause_waits_for_the_current_step_and_blocks_the_next,
    test_two_event_loops_at_once,
)
from tests.engines.test_local_sampling import (  # noqa: F401
    test_stop_id_ends_the_reply_and_is_included,
    test_stop_string_may_span_several_tokens,
)
from tests.engines.tiny import Twice, error, make, qwen3, text

PAGED = {"Llama", "Mistral", "Qwen2", "Qwen3", "Gemma3Text", "Qwen3Moe"}
MOE = {"head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
CASES = [(name, changes) for name, changes, _ in ARCHITECTURES if name in PAGED] + [("Qwen3Moe", MOE)]


@pytest.fixture(autouse=True)
def use_gpu_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "launch_bound", lambda device: True)


@pytest.mark.parametrize(("name", "changes"), CASES, ids=[f"{at}-{row[0]}" for at, row in enumerate(CASES)])
def test_logprobs_equal_a_forward_pass_of_the_model(name: str, changes: dict[str, Any]) -> None:
    tiny = make(name, **changes)

    async def run() -> list[Completion]:
        async with LocalEngine(tiny, eos_ids=(), threads=1, prefill_tokens=60) as engine:
            assert engine.runner == "paged"
            talks = await asyncio.gather(*(converse(engine, key) for key in range(3)))
            assert engine.stats.reused > 0
            return [done for talk in talks for done in talk]

    assert error(tiny, *asyncio.run(run())) < 1e-4


def test_unsupported_models_fall_back_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    tiny = make("Gemma", head_dim=8)

    async def run() -> None:
        async with LocalEngine(tiny, eos_ids=(), threads=1) as engine:
            assert engine.runner == "transformers"

    with caplog.at_level(logging.WARNING, "palestra"):
        asyncio.run(run())
    (message,) = [record.getMessage() for record in caplog.records]
    assert "GemmaForCausalLM does not use the paged runner" in message


def scaled_attention(*arguments: Any) -> torch.Tensor:
    return decode_attention(*arguments) * 1.1


def lost_block_tables(updates: torch.Tensor, pages: int, tables: torch.Tensor, state: torch.Tensor) -> None:
    apply_updates(updates, pages, tables, state)
    tables.zero_()


@pytest.mark.parametrize(
    ("kernel", "wrong"), [("decode_attention", scaled_attention), ("apply_updates", lost_block_tables)]
)
def test_self_check_rejects_wrong_kernels(
    kernel: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reference, kernel, wrong)

    async def run() -> None:
        async with LocalEngine(qwen3(), threads=1) as engine:
            assert engine.runner == "native"

    with caplog.at_level(logging.WARNING, "palestra"):
        asyncio.run(run())
    assert "nats" in caplog.text


def rounded_norm(*arguments: Any) -> torch.Tensor:
    return add_rms_norm(*arguments).bfloat16().float()


def selected_runner(tiny: Any) -> str:
    async def run() -> str:
        async with LocalEngine(tiny, threads=1) as engine:
            return engine.runner

    return asyncio.run(run())


def test_self_check_rejects_rounding_that_the_model_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a deep model with large weights, in which rounding errors grow, and kernels that round to bfloat16."""
    monkeypatch.setattr(reference, "add_rms_norm", rounded_norm)
    assert selected_runner(qwen3(num_hidden_layers=24, initializer_range=0.8)) == "native"


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # on CPUs without bfloat16 instructions
def test_self_check_accepts_as_much_rounding_as_the_model_has(monkeypatch: pytest.MonkeyPatch) -> None:
    low_precision = qwen3(num_hidden_layers=1, initializer_range=2.0).bfloat16()
    monkeypatch.setattr(rounding, "MAX_KL_LOW_PRECISION", 1e-5)  # so that only the measured divergence matters
    assert selected_runner(low_precision) == "paged"
    monkeypatch.setattr(reference, "apply_updates", lost_block_tables)
    assert selected_runner(low_precision) == "native"


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # on CPUs without bfloat16 instructions
@pytest.mark.parametrize(
    ("name", "lora"), [("Qwen3", False), ("Qwen3", True), ("Gemma3Text", False), ("Qwen3Moe", False)]
)
def test_rounding_is_measured_against_float32(name: str, lora: bool) -> None:
    changes = next(changes for case, changes in CASES if case == name)
    exact = make(name, **changes)
    if lora:
        torch.manual_seed(0)
        peft.inject_adapter_in_model(peft.LoraConfig(r=4, target_modules=["q_proj"], init_lora_weights=False), exact)
        exact.eval()
    ids = torch.randint(40, (3, 20), generator=torch.Generator().manual_seed(0))
    rounded = copy.deepcopy(exact).bfloat16()
    weights = {key: weight.clone() for key, weight in rounded.state_dict().items()}
    same_weights = copy.deepcopy(rounded).float()
    batches = [ids[:2], ids[2:]]  # rounding may depend on the shape of a batch
    with torch.no_grad():
        expected, actual = (
            torch.cat([m(input_ids=batch).logits.float().log_softmax(-1) for batch in batches])
            for m in (same_weights, rounded)
        )
    kl = (expected.exp() * (expected - actual)).sum(-1).mean().item()
    assert rounding.kl_of_rounding(rounded, batches) == pytest.approx(kl, rel=1e-4)
    assert rounding.kl_of_rounding(exact, [ids]) == 0.0 < kl
    assert all(torch.equal(weights[key], weight) for key, weight in rounded.state_dict().items())


def test_adapter_added_by_an_update_moves_running_requests_to_another_runner() -> None:
    tiny = qwen3(max_position_embeddings=4096)

    async def run() -> None:
        async with LocalEngine(tiny, eos_ids=(), threads=1) as engine:
            task = asyncio.create_task(engine.generate([1, 2, 3], Sampling(max_tokens=100)))
            while engine.stats.sampled < 5:
                await asyncio.sleep(0.001)
            async with engine.paused():
                mlp = tiny.model.layers[0].mlp
                mlp.up_proj = Twice(mlp.up_proj)
                await engine.publish(None, engine.version + 1)
            assert len((await task).ids) == 100
            assert engine.runner == "transformers"
            assert error(tiny, await engine.generate([4, 5], Sampling(max_tokens=5))) < 1e-4

    asyncio.run(run())


def test_lora_adapters_are_sampled_unmerged_and_reloaded() -> None:
    tiny = qwen3()
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False)
    peft.inject_adapter_in_model(config, tiny)
    tiny.eval()

    async def run() -> None:
        async with LocalEngine(tiny, eos_ids=(), threads=1) as engine:
            for _ in range(2):
                assert error(tiny, await engine.generate([1, 2, 3], Sampling(max_tokens=9))) < 1e-4
                async with engine.paused():
                    with torch.no_grad():
                        for name, parameter in tiny.named_parameters():
                            if "lora_B" in name:
                                parameter.mul_(-2)
                    await engine.publish(None, engine.version + 1)
            assert engine.runner == "paged"

    asyncio.run(run())


def test_exception_in_the_model_fails_running_requests_only(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = qwen3()

    def broken(gate_up: torch.Tensor, activation: str) -> torch.Tensor:
        raise RuntimeError("a broken layer")

    async def run() -> None:
        async with LocalEngine(tiny, max_running=4, threads=1) as engine:
            with monkeypatch.context() as patch:
                patch.setattr(reference, "gate", broken)
                requests = (engine.generate([at, 2], Sampling(max_tokens=4), conversation=at) for at in range(4))
                replies = await asyncio.gather(*requests, return_exceptions=True)
            assert all(isinstance(err, EngineFailed) and "a broken layer" in str(err) for err in replies)
            assert error(tiny, await engine.generate([1, 2, 3], Sampling(max_tokens=4))) < 1e-4
            assert engine._scheduler.used_tokens == 0

    asyncio.run(run())


def test_simultaneous_requests_share_steps() -> None:
    tiny = qwen3()

    async def talk(engine: LocalEngine, key: int) -> None:
        rng = random.Random(key)
        ids = text(rng, rng.randint(2, 90))
        for _ in range(3):
            reply = await engine.generate(ids, Sampling(max_tokens=rng.randint(1, 9), seed=key), conversation=key)
            ids = ids + reply.ids + text(rng, rng.randint(2, 40))
        engine.forget(key)

    async def run() -> None:
        async with LocalEngine(tiny, threads=1) as engine:
            await asyncio.gather(*(talk(engine, key) for key in range(48)))
            # Three turns of at most nine tokens; requests that start one by one would need many more steps.
            assert engine.stats.steps <= 3 * 9 + 24

    asyncio.run(run())


def test_released_memory_grows_again() -> None:
    tiny = qwen3()

    async def run() -> None:
        async with LocalEngine(tiny, threads=1) as engine:
            ids = text(random.Random(0), 60)
            await engine.generate(ids, Sampling(max_tokens=4), conversation="a")
            async with engine.paused():
                engine._scheduler.release_memory()
            done = await engine.generate(ids, Sampling(max_tokens=4), conversation="a")
            assert error(tiny, done) < 1e-4
            assert engine.stats.reused == 0

    asyncio.run(run())
