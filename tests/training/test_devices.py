"""Test that every process of a run gets its own GPU: learners, vLLM servers and rollout workers."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from palestra.engines.vllm.commands import ServerSettings, parse_gpus, visible_gpus
from palestra.engines.vllm.process import LocalProcess
from palestra.engines.vllm.ray_host import ServerActor
from palestra.errors import BadValue
from palestra.training.distributed import assigned_gpu, connect
from palestra.training.sampling_engine import server_gpus

VISIBLE = "CUDA_VISIBLE_DEVICES"


def torchrun_variables(local_rank: int, size: int) -> dict[str, str]:
    """Return the variables that torchrun sets for a process on the second of two machines."""
    group = {"WORLD_SIZE": str(2 * size), "LOCAL_WORLD_SIZE": str(size), "GROUP_RANK": "1", "ROLE_NAME": "default"}
    ranks = {"RANK": str(size + local_rank), "LOCAL_RANK": str(local_rank), "ROLE_RANK": str(local_rank)}
    store = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    return group | ranks | store


def test_torchrun_processes_use_the_gpu_of_their_local_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for local_rank in range(4):
        for name, value in torchrun_variables(local_rank, 4).items():
            monkeypatch.setenv(name, value)
        assert assigned_gpu("auto", 4) == assigned_gpu("cuda", 8) == local_rank
    with pytest.raises(BadValue, match="more processes than the 3 GPUs of this machine; use --nproc-per-node 3"):
        assigned_gpu("auto", 3)
    with pytest.raises(BadValue, match="--device cuda:1 cannot apply to all of them; use --device cuda"):
        assigned_gpu("cuda:1", 4)


def test_a_single_process_uses_the_given_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert assigned_gpu("cuda:2", 4) == 2
    assert assigned_gpu("auto", 4) is assigned_gpu("cuda", 4) is None  # the current GPU
    with pytest.raises(BadValue, match="--device cuda:4 does not exist; this process can use 4 GPUs, numbered from 0"):
        assigned_gpu("cuda:4", 4)
    chosen: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for device in ("cuda:2", "auto", "cpu"):
        connect(device)
    assert chosen == [2]


def test_servers_do_not_use_the_gpus_of_learners() -> None:
    assert server_gpus("2,3", [0, 1], colocate=False) == ("2", "3")
    assert server_gpus("", [0, 1], colocate=False) == ()  # on the CPU
    assert server_gpus("", [0, 1], colocate=True) == ("0", "1")
    assert server_gpus("1", [0, 1], colocate=True) == ("1",)
    with pytest.raises(BadValue, match="engine_gpus contains 1, which the learner uses; choose other GPUs, or share"):
        server_gpus("1,2", [0, 1], colocate=False)
    with pytest.raises(BadValue, match="colocate runs vLLM servers on the learner's GPU, but the learner uses the CPU"):
        server_gpus("", [], colocate=True)


def test_engine_gpus_count_the_visible_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VISIBLE, raising=False)
    assert visible_gpus(("2", "3")) == ("2", "3")
    monkeypatch.setenv(VISIBLE, "4, 5,GPU-8c,7")
    assert visible_gpus(("2", "3")) == ("GPU-8c", "7")
    with pytest.raises(BadValue, match="engine_gpus contains 4, but CUDA_VISIBLE_DEVICES=4, 5,GPU-8c,7 has 4 GPUs"):
        visible_gpus(("3", "4"))


def printed_variables(server: LocalProcess | ServerActor, log: Path) -> dict[str, str]:
    """Wait until a server that runs `env` has ended, and return the environment variables that it printed."""
    while server.exit_code() is None:
        time.sleep(0.01)
    server.stop()
    return dict(line.split("=", 1) for line in log.read_text().splitlines() if "=" in line)


def test_servers_see_only_their_gpus_and_do_not_join_the_learners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torchrun = torchrun_variables(0, 2)
    for name, value in {**torchrun, VISIBLE: "0,1,2,3"}.items():
        monkeypatch.setenv(name, value)
    settings = ServerSettings(gpus=visible_gpus(parse_gpus("2,3")), servers=2)
    server = LocalProcess(["env"], settings.environment(tmp_path, 1), tmp_path / "log")
    server.start()
    variables = printed_variables(server, tmp_path / "log")
    assert variables[VISIBLE] == "3"
    assert not torchrun.keys() & variables.keys()


def test_servers_of_a_ray_actor_see_the_gpus_that_ray_assigned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "6")  # as Ray sets it for an actor with one GPU
    for settings, visible in ((ServerSettings(gpus=("0",)), "6"), (ServerSettings(), "")):
        actor, log = ServerActor(), tmp_path / f"log{visible}"
        actor.start(["env"], settings.environment(tmp_path, 0), log)
        assert printed_variables(actor, log)[VISIBLE] == visible
