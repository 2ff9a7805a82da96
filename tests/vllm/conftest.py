"""Start a vLLM server for the tests in this folder, which run only with `make test-vllm`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

SERVER_PYTHON = os.environ.get("PALESTRA_VLLM_PYTHON")  # interpreter in the virtual environment with vLLM
collect_ignore_glob = [] if SERVER_PYTHON else ["test_*.py"]
CONTEXT = 512
START_SECONDS = 300


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.vllm.model import make_model  # imports torch, which other test runs do not need

    return make_model(tmp_path_factory.mktemp("model"), context=CONTEXT)


@pytest.fixture(scope="module")  # it is stopped before other modules start their servers
def server(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a server and yield its URL; it is stopped after the tests, even if they fail."""
    assert SERVER_PYTHON is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    command = [
        *(SERVER_PYTHON, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model_folder), "--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", str(CONTEXT), "--host", "127.0.0.1", "--port", str(port)),
    ]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            env={**os.environ, **settings},
            cwd=log.parent,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that the server's workers are stopped with it
        )
        try:
            _await_health(process, f"http://127.0.0.1:{port}/health", log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            _stop(process)


def _await_health(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise RuntimeError(f"vLLM did not start (exit {process.poll()}):\n{log.read_text(errors='replace')[-4000:]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, kind)
        except ProcessLookupError:
            break  # all processes in the group have exited
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            continue
        time.sleep(0.5)  # workers that do not end with their parent are killed in the next round
