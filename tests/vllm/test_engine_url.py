"""Test servers that the user starts (`--engine-url`): training with weight updates, and hits in their prefix caches."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from palestra.engines import Sampling
from palestra.engines.vllm.engine import VLLMEngine
from palestra.engines.vllm.worker import BACKEND
from tests.vllm.servers import serve
from tests.vllm.test_policy_engine import make, started, weights
from tests.vllm.test_training import ENV, check_steps, rows_of, save_model

ROOT = Path(__file__).parents[2]
BLOCK = 32  # tokens per block of the prefix caches
STEPS = 3


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(save_model(tmp_path_factory.mktemp("model"), tied=True))


@pytest.fixture(scope="module")
def urls(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Start two servers with the arguments in docs/vllm.md, and those that a CPU needs."""
    arguments = [
        *("--worker-extension-cls", "palestra.engines.vllm.worker.PolicyWorker"),
        *("--weight-transfer-config", f'{{"backend": "{BACKEND}"}}'),
        *("--logprobs-mode", "raw_logprobs", "--generation-config", "vllm"),
        *("--block-size", str(BLOCK), "--no-enable-chunked-prefill", "--max-num-batched-tokens", "4096"),
    ]
    tokenizer = make(tied=True)[1]
    with ExitStack() as stack:
        folders = [tmp_path_factory.mktemp("server") for _ in range(2)]
        servers = (
            serve(model_folder, folder, *arguments, tokenizer=tokenizer, context=1024, count=2) for folder in folders
        )
        yield [stack.enter_context(server) for server in servers]


def prefix_cache(url: str) -> tuple[int, int]:
    """Return how many tokens of all prompts a server looked up in its prefix cache, and how many it found there."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    counts = [
        sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:prefix_cache_{name}_total"))
        for name in ("queries", "hits")
    ]
    return int(counts[0]), int(counts[1])


def counts_since(url: str, before: tuple[int, int]) -> tuple[int, int]:
    queries, hits = prefix_cache(url)
    return queries - before[0], hits - before[1]


def test_every_turn_finds_the_previous_ones_in_the_prefix_cache(urls: list[str], tmp_path: Path) -> None:
    """Check the servers' own counters: with other routing, half of the conversations would change servers per turn."""
    model, tokenizer = make(tied=True)
    expected = [0, 0]  # tokens in prompts, and in the complete blocks of the previous turn

    async def talk(engine: VLLMEngine, number: int) -> None:
        prompt = [20 + (number * 31 + at * (number + 1)) % 200 for at in range(80)]
        cached = 0
        for turn in range(4):
            reply = await engine.generate(prompt, Sampling(max_tokens=24, seed=turn), conversation=number)
            expected[0] += len(prompt)
            expected[1] += cached
            cached = (len(prompt) + len(reply.ids) - 1) // BLOCK * BLOCK  # the last token is read in the next turn
            prompt = prompt + reply.ids + [(turn + 5 * at) % 200 for at in range(8)]

    async def run() -> list[tuple[int, int]]:
        async with started(model, tokenizer, tmp_path, urls=urls, max_context=1024) as engine:
            await engine.publish(weights(model), 1)
            before = [prefix_cache(url) for url in urls]
            await asyncio.gather(*(talk(engine, number) for number in range(7)))
            return [counts_since(url, old) for url, old in zip(urls, before, strict=True)]

    counts = asyncio.run(run())
    assert all(queries > 0 for queries, _ in counts)  # both servers were used
    assert expected[1] > expected[0] / 2
    assert [sum(column) for column in zip(*counts, strict=True)] == expected


def test_training_with_servers_of_the_user(urls: list[str], model_folder: Path, tmp_path: Path) -> None:
    before = [prefix_cache(url) for url in urls]
    command = [
        *(sys.executable, "-m", "palestra", "train", "--env", ENV, "--model", str(model_folder), "--out", "run"),
        *("--engine", "vllm", *(part for url in urls for part in ("--engine-url", url))),
        *("--steps", str(STEPS), "--episodes", "32", "--group-size", "8", "--concurrency", "32", "--algorithm", "grpo"),
        *("--max-tokens", "16", "--optimizer", "muon", "--lr", "1e-3", "--warm-start", "320"),
        *("--warm-player", "expert", "--eval-episodes", "8", "--threads", "1", "--seed", "1"),
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    check_steps(tmp_path / "run", STEPS)
    assert not list((tmp_path / "run" / "engine" / "weights").glob("*"))
    turns = [row["turns_per_episode"] for row in rows_of(tmp_path / "run") if row["step"] >= 0]
    counts = [counts_since(url, old) for url, old in zip(urls, before, strict=True)]  # the servers still run
    shares = [hits / queries for queries, hits in counts]
    print(f"turns per episode: {turns}, share of prompt tokens found in the prefix caches: {shares}")
    assert min(shares) > 0.5
