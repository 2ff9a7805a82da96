"""Test the parts of the vLLM engine that do not need vLLM; tests/vllm runs the engine with real servers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from palestra.engines.vllm.client import VLLMClient
from palestra.engines.vllm.commands import PYTHON, ServerSettings, link_package, parse_gpus
from palestra.engines.vllm.fingerprints import TIED, differences, learner_fingerprints
from palestra.engines.vllm.process import LocalProcess, free_port
from palestra.engines.vllm.routing import Router
from palestra.engines.vllm.server import VLLMServer
from palestra.engines.vllm.transfer import FileTransfer, base_weights, max_lora_rank
from palestra.errors import BadValue, EngineFailed
from tests.engines.tiny import qwen3, words


@dataclass(eq=False)
class Box:
    up: bool = True


def test_conversations_stay_on_their_server_and_move_if_it_stops() -> None:
    servers = [Box(), Box()]
    router = Router(servers)
    first = [router.choose(f"talk {n}") for n in range(6)]
    assert [servers.index(box) for box in first if box is not None] == [0, 1, 0, 1, 0, 1]
    assert [router.choose(f"talk {n}") for n in range(6)] == first
    servers[0].up = False
    assert all(router.choose(f"talk {n}") is servers[1] for n in range(6))
    servers[0].up = True
    assert all(router.choose(f"talk {n}") is servers[1] for n in range(6))  # this server now has the cached prefix
    assert router.choose("new") is servers[0]
    servers[0].up = servers[1].up = False
    assert router.choose("talk 0") is None


def test_finished_conversations_leave_room_and_single_requests_go_to_the_idle_server() -> None:
    servers = [Box(), Box()]
    router = Router(servers)
    for n in range(4):
        router.choose(n)
    router.forget(0)
    router.forget(2)
    assert [router.choose(n) for n in (4, 5)] == [servers[0], servers[0]]
    router.started(servers[0])
    assert router.choose(None) is servers[1]
    assert router.running == 1
    router.finished(servers[0])
    assert router.running == 0


def test_fingerprints_name_a_corrupted_parameter() -> None:
    weights = {name: tensor.detach().clone() for name, tensor in qwen3(seed=3).named_parameters()}
    expected = learner_fingerprints(weights, tied=None)
    assert differences(expected, learner_fingerprints(weights, tied=None), torch.float32) == []
    broken = "model.layers.1.mlp.up_proj.weight"
    weights[broken][3] += 0.5
    weights["model.norm.weight"][0] = float("nan")
    changed = differences(expected, learner_fingerprints(weights, tied=None), torch.float32)
    assert sorted(changed) == ["model.layers.1.mlp.up_proj.weight", "model.norm.weight"]


def test_fingerprints_of_tied_embeddings_cover_the_output_layer() -> None:
    weights = {name: tensor.detach() for name, tensor in qwen3(seed=3, tie_word_embeddings=True).named_parameters()}
    learner = learner_fingerprints(weights, tied="model.embed_tokens.weight")
    stale = {**learner, TIED: learner_fingerprints({TIED: weights["model.embed_tokens.weight"] * 0.9}, tied=None)[TIED]}
    assert differences(learner, stale, torch.float32) == [TIED]


def test_command_for_gpus() -> None:
    settings = ServerSettings(python="/opt/vllm/python", gpus=parse_gpus("2,3, 4,5"), servers=2, max_context=4096)
    command = settings.command(Path("/m"), port=8001, model=qwen3(), backend="nccl")
    assert command[:3] == ["/opt/vllm/python", "-m", "vllm.entrypoints.openai.api_server"]
    assert command[command.index("--tensor-parallel-size") + 1] == "2"
    assert command[command.index("--weight-transfer-config") + 1] == '{"backend": "nccl"}'
    assert command[command.index("--load-format") + 1] == "dummy"
    assert "--enforce-eager" not in command
    assert [settings.environment(Path("/p"), n)["CUDA_VISIBLE_DEVICES"] for n in range(2)] == ["2,3", "4,5"]
    assert (
        int(settings.environment(Path("/p"), 0)["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"]) > 60
    )  # idle while the learner updates


def test_command_for_lora_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from palestra.training.adapters import add_lora

    model = qwen3()
    names = {name for name, _ in model.named_parameters()}
    add_lora(model, rank=9, alpha=0.0, targets="", seed=0)
    monkeypatch.setenv(PYTHON, "/opt/cpu/python")
    command = ServerSettings(arguments=("--seed", "1")).command(Path("/m"), port=8001, model=model, backend="x")
    assert command[0] == "/opt/cpu/python"
    assert command[command.index("--max-lora-rank") + 1] == "16" == str(max_lora_rank(model))
    assert "--load-format" not in command
    assert command[-2:] == ["--seed", "1"]
    assert set(base_weights(model)) == names


def test_settings_are_checked() -> None:
    with pytest.raises(BadValue, match="comma-separated list of GPU numbers such as 2,3; got 'a'"):
        parse_gpus("a")
    with pytest.raises(BadValue, match="has heads of size 8. Use another model, for example --model default:1M"):
        ServerSettings().check(qwen3())
    ServerSettings(gpus=("0",)).check(qwen3())
    with pytest.raises(BadValue, match="engine_servers=2 must divide the number of GPUs, 3"):
        ServerSettings(gpus=("0", "1", "2"), servers=2)


def test_another_environment_can_import_the_worker_and_nothing_else(tmp_path: Path) -> None:
    folder = link_package(tmp_path / "package")
    code = "import palestra.engines.vllm.launch, sys; print(sorted(m for m in sys.modules if m.startswith('palestra')))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["palestra"]


def test_weight_files_of_old_versions_are_deleted(tmp_path: Path) -> None:
    transfer = FileTransfer(tmp_path)
    for version in (1, 2, 3):
        transfer.prepare({"a": torch.ones(3)}, version)
    transfer.finished(3)
    assert [path.name for path in tmp_path.iterdir()] == ["version-3"]
    transfer.close()
    assert list(tmp_path.iterdir()) == []


def test_server_that_exits_reports_the_end_of_its_log(tmp_path: Path) -> None:
    async def start() -> None:
        client = VLLMClient(f"http://127.0.0.1:{free_port()}/v1", tokenizer=words(), concurrency=1)
        command = [sys.executable, "-S", "-m", "vllm.entrypoints.openai.api_server"]
        server = VLLMServer(client, process=LocalProcess(command, log=tmp_path / "log"))
        try:
            await server.start()
        finally:
            server.stop()
            await client.aclose()

    with pytest.raises(EngineFailed, match=rf"exited with code 1 while it started. Install vLLM, or set {PYTHON}"):
        asyncio.run(start())


def test_server_is_killed_with_the_trainer(tmp_path: Path) -> None:
    code = f"""
import asyncio, os, sys, time
from palestra.engines.vllm.process import LocalProcess
server = LocalProcess(["sleep", "1000"])
server.start()
open({str(tmp_path / "pid")!r} + ".part", "w").write(str(server.pid))
os.rename({str(tmp_path / "pid")!r} + ".part", {str(tmp_path / "pid")!r})
time.sleep(1000)
"""
    trainer = subprocess.Popen([sys.executable, "-c", code])
    try:
        _wait(lambda: (tmp_path / "pid").exists())
        pid = int((tmp_path / "pid").read_text())
        _wait(lambda: Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep"))
        os.kill(trainer.pid, signal.SIGKILL)
        trainer.wait()
        _wait(lambda: _gone(pid))
    finally:
        trainer.kill()
        trainer.wait()


def _wait(condition: Any) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
