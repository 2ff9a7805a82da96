"""Test that LocalEngine returns the model's log-probabilities for every supported architecture and runner."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import peft
import pytest
import torch

from palestra.engines import Completion, LocalEngine, Sampling
from tests.engines.tiny import Twice, error, make, text

TOLERANCE = 1e-4

# name, changes to the config, expected runner
ARCHITECTURES: list[tuple[str, dict[str, Any], str]] = [
    ("Llama", {}, "native"),
    ("Llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 4}, "native"),
    ("Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}, "native"),
    (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 1e4,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
        "native",
    ),
    ("Mistral", {"sliding_window": None}, "native"),
    ("Mistral", {"sliding_window": 20}, "native"),
    ("Qwen2", {}, "native"),
    ("Qwen2", {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1}, "native"),
    ("Qwen3", {"head_dim": 16, "tie_word_embeddings": True}, "native"),
    ("Qwen3", {"head_dim": 8, "use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1}, "native"),
    ("Gemma", {"head_dim": 8}, "transformers"),
    (
        "Gemma2",
        {"head_dim": 8, "sliding_window": 20, "layer_types": ["sliding_attention", "full_attention"]},
        "transformers",
    ),
    (
        "Gemma3Text",
        {"head_dim": 8, "sliding_window": 20, "layer_types": ["sliding_attention", "full_attention"]},
        "transformers",
    ),
    ("Phi3", {"sliding_window": None}, "transformers"),
    ("Phi3", {"sliding_window": 20}, "transformers"),
    ("GPTNeoX", {}, "transformers"),
    ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256}, "transformers"),
    ("OPT", {"ffn_dim": 48, "word_embed_proj_dim": 32}, "transformers"),
    ("Mamba", {"state_size": 4, "num_hidden_layers": 1}, "recompute"),
    ("Bloom", {"n_head": 4}, "recompute"),
    ("Lfm2", {"layer_types": ["conv", "full_attention"]}, "recompute"),
]


async def converse(engine: Any, key: int) -> list[Completion]:
    rng = random.Random(key)
    ids = text(rng, rng.randint(1, 50))
    replies = []
    for _ in range(3):
        replies.append(await engine.generate(ids, Sampling(max_tokens=rng.randint(1, 9)), conversation=key))
        ids = ids + replies[-1].ids + text(rng, rng.randint(1, 12))
    return replies


@pytest.mark.parametrize(
    ("name", "changes", "runner"), ARCHITECTURES, ids=[f"{at}-{row[0]}" for at, row in enumerate(ARCHITECTURES)]
)
def test_logprobs_equal_a_forward_pass_of_the_model(
    name: str, changes: dict[str, Any], runner: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = make(name, **changes)

    async def run() -> list[Completion]:
        async with LocalEngine(model, eos_ids=(), threads=1) as engine:
            assert engine.runner == runner
            talks = await asyncio.gather(*(converse(engine, key) for key in range(3)))
            assert engine.stats.reused > 0
            return [done for talk in talks for done in talk]

    with caplog.at_level(logging.WARNING, "palestra"):
        replies = asyncio.run(run())
    assert error(model, *replies) < TOLERANCE
    warnings = [record.getMessage() for record in caplog.records if record.name.startswith("palestra")]
    assert len(warnings) == (runner == "recompute")
    assert all("slow" in message and type(model).__name__ in message for message in warnings)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_eager_and_sdpa_attention(attention: str) -> None:
    model = make("Gemma3Text", head_dim=8, sliding_window=9, attn_implementation=attention)
    assert model.config._attn_implementation == attention

    async def run() -> list[Completion]:
        async with LocalEngine(model, eos_ids=(), threads=1) as engine:
            assert engine.runner == "transformers"
            return await converse(engine, 1)

    assert error(model, *asyncio.run(run())) < TOLERANCE


def test_models_with_hooks_or_adapters_use_the_transformers_runner() -> None:
    class Adapter(torch.nn.Module):  # stands in for a LoRA adapter
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner
            self.extra = torch.nn.Parameter(0.1 * torch.randn(inner.weight.shape))

        def forward(self, x: torch.Tensor) -> Any:
            return self.inner(x) + x @ self.extra.T

    wrapped = make("Qwen3", head_dim=8)
    attention = wrapped.model.layers[0].self_attn
    attention.q_proj = Adapter(attention.q_proj)
    hooked = make("Llama")
    hooked.model.layers[1].mlp.register_forward_hook(lambda module, inputs, out: out * 1.5)
    embedded = make("Llama")
    config = peft.LoraConfig(r=4, target_modules=["embed_tokens"], init_lora_weights=False)
    peft.inject_adapter_in_model(config, embedded)
    embedded.eval()
    for model in (wrapped, hooked, embedded):

        async def run(model: Any = model) -> list[Completion]:
            async with LocalEngine(model, eos_ids=(), threads=1) as engine:
                assert engine.runner == "transformers"
                return await converse(engine, 2)

        assert error(model, *asyncio.run(run())) < TOLERANCE


def test_adapter_added_by_an_update_switches_the_runner() -> None:
    model = make("Qwen3", head_dim=8)

    async def run() -> None:
        async with LocalEngine(model, eos_ids=(), threads=1) as engine:
            assert error(model, (await converse(engine, 3))[0]) < TOLERANCE
            assert engine.runner == "native"
            async with engine.paused():
                mlp = model.model.layers[0].mlp
                mlp.up_proj = Twice(mlp.up_proj)
                await engine.publish(None, engine.version + 1)
            replies = await converse(engine, 4)
            assert engine.runner == "transformers"
            assert error(model, *replies) < TOLERANCE

    asyncio.run(run())


def test_bfloat16_is_close() -> None:
    model = make("Llama").to(torch.bfloat16)

    async def run() -> list[Completion]:
        async with LocalEngine(model, eos_ids=(), threads=1) as engine:
            assert engine.runner == "native"
            return await converse(engine, 5)

    assert error(model, *asyncio.run(run())) < 0.5
