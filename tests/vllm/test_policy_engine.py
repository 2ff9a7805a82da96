"""Test VLLMEngine with real servers: exact tokens, weight updates and their check, and servers that are killed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config, Qwen3ForCausalLM

from palestra.engines import Completion, Sampling
from palestra.engines.default_model import default_tokenizer
from palestra.engines.vllm.engine import VLLMEngine
from palestra.engines.vllm.transfer import FileTransfer, ReloadTransfer
from palestra.errors import EngineFailed

CONTEXT = 512
PROMPT = list(range(20, 60))


def make(*, tied: bool) -> tuple[Any, Any]:
    """Return an untrained model like default:0.1M, but with heads of a size that vLLM supports on a CPU."""
    tokenizer = default_tokenizer()
    config = Qwen3Config(
        vocab_size=-(-len(tokenizer) // 64) * 64,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=tied,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    qwen: Any = Qwen3ForCausalLM  # untyped
    model = qwen(config).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=generator)
    return model, tokenizer


def nudge(model: Any, seed: int, scale: float = 0.05) -> None:
    """Change every weight, as an optimizer step would."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


@torch.no_grad()
def forced(model: Any, prompt: list[int], ids: list[int]) -> torch.Tensor:
    """Return the log-probability of each id in one forward pass."""
    rows: torch.Tensor = model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    return rows[torch.arange(len(ids)), torch.tensor(ids)]


def error(model: Any, reply: Completion) -> float:
    return float((forced(model, reply.prompt_ids, reply.ids) - torch.tensor(reply.logprobs)).abs().max())


def probes(model: Any) -> list[tuple[list[int], list[float]]]:
    sequences = [[(7 * n + 3 * at * at) % 300 for at in range(32)] for n in range(3)]
    return [(ids, [0.0, *forced(model, ids[:1], ids[1:]).tolist()]) for ids in sequences]


@asynccontextmanager
async def started(model: Any, tokenizer: Any, folder: Path, **options: Any) -> AsyncIterator[VLLMEngine]:
    torch.set_num_threads(1)  # leaves the other CPU cores to the servers
    options = {"max_context": CONTEXT, "max_running": 32, "folder": folder, "start_timeout": 600.0, **options}
    async with VLLMEngine(model, tokenizer=tokenizer, **options) as engine:
        yield engine


async def check_updates(engine: VLLMEngine, model: Any) -> None:
    """Check that replies and probes use the new weights after each of three updates."""
    for version in range(1, 4):
        nudge(model, version)
        async with engine.paused():
            await engine.publish(weights(model), version)
        metrics = await engine.verify(probes(model), weights(model))
        assert metrics["probe_difference"] < 1e-4
        replies = await asyncio.gather(
            *(engine.generate(PROMPT, Sampling(max_tokens=12, seed=n), conversation=n) for n in range(6))
        )
        assert {reply.version for reply in replies} == {version}
        assert max(error(model, reply) for reply in replies) < 1e-4


async def check_interrupted_replies(engine: VLLMEngine, model: Any) -> None:
    """Check that a reply in progress during an update continues under the new weights from its exact tokens."""
    before = {name: tensor.clone() for name, tensor in weights(model).items()}
    task = asyncio.create_task(engine.generate(PROMPT, Sampling(max_tokens=400, seed=1, stop_ids=()), conversation="x"))
    while not engine._router.running:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    nudge(model, 9)
    async with engine.paused():
        await engine.publish(weights(model), engine.version + 1)
    reply = await task
    assert reply.version == engine.version - 1
    assert len(reply.ids) == len(reply.logprobs)
    actual = torch.tensor(reply.logprobs)
    new = (forced(model, PROMPT, reply.ids) - actual).abs() < 1e-3
    now = {name: tensor.clone() for name, tensor in weights(model).items()}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(before[name])
    old = (forced(model, PROMPT, reply.ids) - actual).abs() < 1e-3
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(now[name])
    split = int(new.int().argmax())  # the first token under the new weights
    assert 0 < split < len(reply.ids)
    assert bool(old[:split].all())
    assert bool(new[split:].all())


async def check_corruption(engine: VLLMEngine, model: Any) -> None:
    """Check that one corrupted tensor in an update is detected and named."""
    name = "model.layers.1.mlp.down_proj.weight"

    class Corrupted(FileTransfer):
        def prepare(self, weights: Any, version: int) -> None:
            super().prepare(weights, version)
            path = self.path(version) / "model.safetensors"
            tensors = load_file(path)
            tensors[name] = tensors[name].flip(0)
            save_file(tensors, path)

    await publish_with(engine, Corrupted(engine.folder / "weights"), model)
    with pytest.raises(EngineFailed, match=rf"Parameters that differ: {name.replace('.', '[.]')}\. The last"):
        await engine.verify(probes(model), weights(model))


async def check_tied_reload(engine: VLLMEngine, model: Any) -> None:
    """Check that an outdated tied output layer, which vLLM's reload_weights leaves on a CPU, is detected and named."""
    nudge(model, 11)
    await publish_with(engine, ReloadTransfer(engine.folder / "weights"), model)
    with pytest.raises(EngineFailed, match=r"lm_head[.]weight \(tied to model[.]embed_tokens[.]weight\)\. The last"):
        await engine.verify(probes(model), weights(model))


async def check_reload(engine: VLLMEngine, model: Any) -> None:
    """Check that vLLM's reload_weights updates a model with a separate output layer."""
    nudge(model, 12)
    await publish_with(engine, ReloadTransfer(engine.folder / "weights"), model)
    assert (await engine.verify(probes(model), weights(model)))["probe_difference"] < 1e-4


async def publish_with(engine: VLLMEngine, transfer: Any, model: Any) -> None:
    ours, engine._transfer = engine._transfer, transfer
    try:
        await engine.publish(weights(model), engine.version + 1)
    finally:
        engine._transfer = ours


async def check_repair(engine: VLLMEngine, model: Any) -> None:
    """Check that the next update repairs the server."""
    await engine.publish(weights(model), engine.version + 1)
    assert (await engine.verify(probes(model), weights(model)))["probe_difference"] < 1e-4


Check = Callable[[VLLMEngine, Any], Awaitable[None]]


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_updates_are_exact_and_checked(tmp_path: Path, tied: bool) -> None:
    model, tokenizer = make(tied=tied)
    checks: list[Check] = [check_updates, check_interrupted_replies, check_corruption, check_repair]
    model.save_pretrained(tmp_path / "model")  # vLLM's reload_weights needs a server that has loaded a checkpoint
    checks += [check_tied_reload, check_repair] if tied else [check_reload]

    async def run() -> None:
        async with started(model, tokenizer, tmp_path, arguments=["--load-format", "auto"]) as engine:
            for check in checks:
                await check(engine, model)

    asyncio.run(run())
    assert not list((tmp_path / "weights").glob("*"))


def test_killed_server_is_restarted_and_its_conversations_continue(tmp_path: Path) -> None:
    model, tokenizer = make(tied=False)

    async def run() -> None:
        async with started(model, tokenizer, tmp_path, servers=2) as engine:
            nudge(model, 1)
            await engine.publish(weights(model), 1)
            talks = [
                asyncio.create_task(engine.generate(PROMPT, Sampling(max_tokens=300, seed=n), conversation=n))
                for n in range(8)
            ]
            await asyncio.sleep(1.0)
            victim = engine.servers[0]
            assert victim.pid is not None
            os.killpg(victim.pid, signal.SIGKILL)
            replies = await asyncio.gather(*talks)
            assert max(error(model, reply) for reply in replies) < 1e-3
            nudge(model, 2)
            await engine.publish(weights(model), 2)  # the other server is updated now, this one when it has started
            assert (await engine.verify(probes(model), weights(model)))["probe_difference"] < 1e-4
            await asyncio.wait_for(engine._revivals[victim.url], 600)
            assert victim.up
            assert victim.restarts == 1
            assert (await engine.verify(probes(model), weights(model)))["probe_difference"] < 1e-4
            back = await engine.generate(PROMPT, Sampling(max_tokens=8, seed=1), conversation="new")
            assert back.version == 2
            assert error(model, back) < 1e-4

    asyncio.run(run())
