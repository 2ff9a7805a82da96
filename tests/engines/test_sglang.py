"""Test the requests of the SGLang engine against a server that imitates SGLang's documented interface."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from palestra.engines import Sampling
from palestra.engines.sglang import SGLangEngine
from palestra.errors import BadValue, EngineFailed
from tests.engines.stub_server import TOKENIZER, Stub, distribution, responds_with
from tests.engines.tiny import qwen3, words

CONTROL = ("/pause_generation", "/flush_cache", "/update_weights_from_disk", "/continue_generation")
PROMPT = TOKENIZER.encode("What now?")


@pytest.fixture
def server() -> Iterator[Stub]:
    with Stub("sglang") as stub:
        stub.faults |= {path: [responds_with({"success": True, "message": "ok"})] for path in CONTROL}
        stub.faults["/health"] = [responds_with(b"")]
        yield stub


def engine_of(server: Stub, folder: Path, **options: Any) -> SGLangEngine:
    engine = SGLangEngine(qwen3(), tokenizer=TOKENIZER, urls=[server.url], folder=folder, **options)
    engine.tokenizer = words()  # the tokenizer that is written beside the weights
    return engine


def publish(engine: SGLangEngine) -> Any:
    return engine.publish({"model.norm.weight": torch.ones(32)}, 1)


def test_update_pauses_the_server_and_loads_a_checkpoint(server: Stub, tmp_path: Path) -> None:
    async def run() -> None:
        async with engine_of(server, tmp_path) as engine:
            async with engine.paused():
                await publish(engine)
            reply = await engine.generate(PROMPT, Sampling(max_tokens=20, seed=3), conversation=1)
            whole = reply.prompt_ids + reply.ids
            forced = [distribution(whole[at - 1])[whole[at]] for at in range(len(PROMPT), len(whole))]
            assert reply.logprobs == pytest.approx(forced, abs=1e-9)
            assert reply.version == 1
            (body,) = server.bodies("/update_weights_from_disk")
            assert {"config.json", "model.safetensors"} <= {path.name for path in Path(body["model_path"]).iterdir()}
            assert body["weight_version"] == "1"

    asyncio.run(run())
    assert [path for path, _, _ in server.requests if path in CONTROL] == list(CONTROL)


def test_interrupted_reply_continues_from_its_tokens(server: Stub, tmp_path: Path) -> None:
    pairs = [[-1.5, 65, None], [-0.5, 66, None]]
    meta = {"prompt_tokens": len(PROMPT), "output_token_logprobs": pairs, "finish_reason": {"type": "abort"}}

    async def run() -> None:
        async with engine_of(server, tmp_path) as engine:
            await publish(engine)
            server.faults["/generate"] = [responds_with({"text": "AB", "meta_info": meta})]
            reply = await engine.generate(PROMPT, Sampling(max_tokens=12, seed=3), conversation=1)
            assert reply.ids[:2] == [65, 66]
            assert reply.logprobs[:2] == [-1.5, -0.5]
            assert server.bodies("/generate")[-1]["input_ids"] == [*PROMPT, 65, 66]
            assert server.bodies("/generate")[-1]["sampling_params"]["max_new_tokens"] == 10

    asyncio.run(run())


def test_refused_update_and_missing_url(server: Stub, tmp_path: Path) -> None:
    server.faults["/health"] *= 2
    server.faults["/update_weights_from_disk"] = [responds_with({"success": False, "message": "no such parameter"})]

    async def run() -> None:
        async with engine_of(server, tmp_path) as engine:
            with pytest.raises(EngineFailed, match="did not load the new weights: no such parameter"):
                await publish(engine)

    asyncio.run(run())
    with pytest.raises(BadValue, match="pass --engine-url http://localhost:30000/v1"):
        SGLangEngine(qwen3(), tokenizer=words())
    with pytest.raises(BadValue, match=r"starts no servers, so these settings do not apply: \['gpus'\]"):
        SGLangEngine(qwen3(), tokenizer=words(), urls=[server.url], gpus="0")
