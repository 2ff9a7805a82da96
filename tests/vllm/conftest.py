"""Start a vLLM server for the tests in this folder, which run only with `make test-vllm`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVER_PYTHON = os.environ.get("PALESTRA_VLLM_PYTHON")  # interpreter in the virtual environment with vLLM
collect_ignore_glob = [] if SERVER_PYTHON else ["test_*.py"]
CONTEXT = 512


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.vllm.model import make_model  # imports torch, which other test runs do not need

    return make_model(tmp_path_factory.mktemp("model"), context=CONTEXT)


@pytest.fixture(scope="module")  # it is stopped before other modules start their servers
def server(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a server as a user would, without Palestra's extension, and yield its URL; it is stopped after the tests.

    The server applies the defaults in the model's generation_config.json to requests that do not override them.
    """
    from tests.vllm.model import make_tokenizer
    from tests.vllm.servers import serve

    folder = tmp_path_factory.mktemp("server")
    with serve(model_folder, folder, "--served-model-name", "tiny", tokenizer=make_tokenizer(), context=CONTEXT) as url:
        yield url
