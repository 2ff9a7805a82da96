"""Test the default model, its tokenizer and template, SmolLM2, and `palestra init-model`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

import palestra
from palestra.cli import main
from palestra.engines.default_model import SIZES, count_parameters, default_model, default_tokenizer, save
from palestra.errors import BadValue, StoreFailed
from tests import warm_process

TOKENIZER = default_tokenizer()


@pytest.mark.parametrize("size", ["0.1M", "0.2M", "0.3M", "1M", "3M", "10M"])
def test_parameter_counts_match_the_names_of_the_sizes(size: str) -> None:
    model, _ = default_model(size)
    assert abs(count_parameters(model) / (float(size[:-1]) * 1e6) - 1) < 0.08
    assert model.config.model_type == "qwen3"


def test_largest_size_has_the_named_number_of_parameters() -> None:
    shape = SIZES["100M"]
    layer = 4 * shape.hidden**2 + 3 * shape.hidden * shape.intermediate
    assert abs((shape.layers * layer + 1024 * shape.hidden) / 1e8 - 1) < 0.08


def test_weights_depend_on_the_seed_only_and_leave_the_global_generator_unchanged() -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    one, two, other = (default_model("0.1M", seed=seed)[0].state_dict() for seed in (5, 5, 6))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


@given(st.text(max_size=60))
def test_random_text_round_trip(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text, add_special_tokens=False)) == text


def test_small_numbers_and_boxed_are_single_tokens() -> None:
    for text in [*map(str, range(100)), "\\boxed{", "<|im_start|>", "<|im_end|>"]:
        assert len(TOKENIZER.encode(text, add_special_tokens=False)) == 1
    five = TOKENIZER.encode("5", add_special_tokens=False)[0]
    assert five in TOKENIZER.encode("lower than 5.", add_special_tokens=False)
    assert five in TOKENIZER.encode("\\boxed{5}", add_special_tokens=False)


def test_template_extends_its_own_prompt() -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    first = TOKENIZER.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True)
    whole = TOKENIZER.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert whole.startswith(f"{first}b<|im_end|>")
    tools = TOKENIZER.apply_chat_template(messages, tools=[{"name": "f"}], tokenize=False)
    assert '"name": "f"' in tools


def test_init_model_writes_a_usable_model_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "tiny"
    assert main(["init-model", "0.1M", "--seed", "4", "--out", str(folder)]) == 0
    assert "104,752 parameters" in capsys.readouterr().out
    model = AutoModelForCausalLM.from_pretrained(folder)
    expected, _ = default_model("0.1M", seed=4)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))
    assert AutoTokenizer.from_pretrained(folder).chat_template == TOKENIZER.chat_template

    async def play() -> palestra.rollout.RolloutResult:
        async with palestra.engines.LocalEngine(folder, device="cpu") as engine:
            agent = palestra.agents.ChatAgent(engine, max_tokens=8)
            return await palestra.rollout.collect(
                agent, "game:GuessTheNumber-v0-easy", episodes=16, group_size=4, concurrency=8, seed=1
            )

    result = asyncio.run(play())
    assert len(result.trajectories) == 16
    assert result.metrics["tokens"] > 0
    assert palestra.rollout.to_samples(result.trajectories[0])

    again = ["init-model", "0.1M", "--seed", "5", "--out", str(folder)]
    assert main(again) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert torch.equal(first_parameter(folder), next(expected.parameters()))
    assert main([*again, "--overwrite"]) == 0
    assert not torch.equal(first_parameter(folder), next(expected.parameters()))


def first_parameter(folder: Path) -> torch.Tensor:
    parameter: torch.Tensor = next(AutoModelForCausalLM.from_pretrained(folder).parameters())
    return parameter


def test_invalid_arguments_raise(tmp_path: Path) -> None:
    with pytest.raises(BadValue, match=r"size must be one of 0.1M, .*; got '2M'"):
        default_model("2M")
    model, tokenizer = default_model("0.1M")
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadValue, match="is a file, not a folder"):
        save(model, tokenizer, tmp_path / "file")
    with pytest.raises(StoreFailed, match="cannot write"):
        save(model, tokenizer, "/proc/nowhere/model")


@pytest.mark.slow
def test_smollm2_is_written_without_network(tmp_path: Path) -> None:
    folder = tmp_path / "smollm2"
    command = [sys.executable, "-m", "palestra", "init-model", "smollm2", "--out", str(folder)]
    done = warm_process.run(command, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert "134,515,008 parameters" in done.stdout

    async def generate() -> str:
        async with palestra.engines.LocalEngine(folder, device="cpu") as engine:
            assert engine.tokenizer is not None
            messages = [{"role": "user", "content": "What is the capital of France?"}]
            text = engine.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            prompt = engine.tokenizer.encode(text, add_special_tokens=False)
            reply = await engine.generate(prompt, palestra.engines.Sampling(temperature=0.0, max_tokens=12))
            return reply.text

    assert "Paris" in asyncio.run(generate())
