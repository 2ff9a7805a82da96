"""Test `palestra train --ray` with a vLLM server on a local Ray cluster; the server is killed during training."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import palestra
from tests.vllm.test_training import SHORT, check_steps, save_model, servers_of

ROOT = Path(__file__).parents[2]


@pytest.mark.filterwarnings("ignore")
def test_server_in_a_ray_actor_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    folder = tmp_path / "run"
    killed: list[int] = []

    def kill_server(rows: Sequence[Mapping[str, Any]]) -> None:
        if rows[-1]["step"] == 0:
            killed.append(min(servers_of(folder)))
            os.killpg(os.getpgid(killed[0]), signal.SIGKILL)

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    try:
        settings = {**SHORT, "warm_start": 64, "episodes": 16, "concurrency": 16, "device": "cpu", "ray": True}
        settings |= {"model": save_model(tmp_path / "model", tied=True), "out": str(folder), "progress": False}
        palestra.train(**settings, on_metrics=kill_server)
        assert killed
        check_steps(folder, 3, updates=False)
        assert servers_of(folder) == []
    finally:
        ray.shutdown()
        cluster.shutdown()
