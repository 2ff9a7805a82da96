"""Start a vLLM server for the tests in this folder, which run only with `make test-vllm`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVER_PYTHON = os.environ.get("PALESTRA_VLLM_PYTHON")  # interpreter in the virtual environment with vLLM
collect_ignore_glob = [] if SERVER_PYTHON else ["test_*.py"]
CONTEXT = 512
START_SECONDS = 300.0


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.vllm.model import make_model  # imports torch, which other test runs do not need

    return make_model(tmp_path_factory.mktemp("model"), context=CONTEXT)


@pytest.fixture(scope="module")  # it is stopped before other modules start their servers
def server(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a server as a user would, without Palestra's extension, and yield its URL; it is stopped after the tests.

    The server applies the defaults in the model's generation_config.json to requests that do not override them.
    """
    from palestra.engines.vllm.client import VLLMClient
    from palestra.engines.vllm.commands import ServerSettings, link_package
    from palestra.engines.vllm.process import LocalProcess, free_port
    from palestra.engines.vllm.server import VLLMServer
    from tests.vllm.model import make_tokenizer

    folder = tmp_path_factory.mktemp("server")
    settings = ServerSettings(max_context=CONTEXT)
    port = free_port()
    command = [
        *(settings.interpreter, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model_folder), "--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", str(CONTEXT), "--kv-cache-memory-bytes", str(2**30)),
        *("--host", "127.0.0.1", "--port", str(port)),
    ]
    process = LocalProcess(command, settings.environment(link_package(folder / "package"), 0), folder / "vllm.log")

    async def start() -> VLLMServer:
        client = VLLMClient(f"http://127.0.0.1:{port}/v1", tokenizer=make_tokenizer(), concurrency=1)
        started = VLLMServer(client, process=process, start_timeout=START_SECONDS)
        try:
            await started.start()
        finally:
            await client.aclose()
        return started

    try:
        yield asyncio.run(start()).url
    finally:
        process.stop()
