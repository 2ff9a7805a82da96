"""Test the resources that a training run reserves on a Ray cluster; tests/ray runs it on a real cluster."""

from __future__ import annotations

from typing import Any

import pytest

from palestra.errors import BadValue
from palestra.training.config import TrainConfig
from palestra.training.ray_resources import RayPlan, server_options
from palestra.training.recipe import from_mapping

GPU_NODES = [{"CPU": 16.0, "GPU": 4.0}, {"CPU": 16.0, "GPU": 4.0}]
CPU_NODES = [{"CPU": 2.0}, {"CPU": 2.0}]


def config_of(**settings: Any) -> TrainConfig:
    return from_mapping({"env": "game:GuessTheNumber-v0-easy", "ray": True, **settings})


def test_learners_servers_and_env_workers_have_one_bundle_each() -> None:
    config = config_of(
        ray_learners=4,
        ray_learner_cpus=2,
        engine="vllm",
        engine_servers=2,
        ray_server_gpus=2,
        env_backend="ray",
        env_workers=2,
    )
    plan = RayPlan.of(config, GPU_NODES)
    learner, server, worker = {"CPU": 2.0, "GPU": 1.0}, {"CPU": 1.0, "GPU": 2.0}, {"CPU": 1.0}
    assert plan.bundles == [learner] * 4 + [server] * 2 + [worker] * 8
    assert server_options(plan.config) == {"servers": 2, "gpus": ["0", "1", "2", "3"]}


def test_defaults_depend_on_the_cluster() -> None:
    config = config_of(engine="vllm", env_backend="ray")
    assert RayPlan.of(config, CPU_NODES).bundles == [{"CPU": 1.0}] * 4  # learner, server, two environment workers
    assert RayPlan.of(config, CPU_NODES).config.env.workers == 2
    assert RayPlan.of(config, GPU_NODES).bundles[:2] == [{"CPU": 1.0, "GPU": 1.0}] * 2
    assert RayPlan.of(config_of(device="cpu"), GPU_NODES).bundles == [{"CPU": 1.0}]
    assert RayPlan.of(config_of(engine="vllm", engine_url=("http://a/v1",)), CPU_NODES).servers == 0


def test_cluster_that_is_too_small() -> None:
    with pytest.raises(BadValue, match=r"has 4 CPUs, but this run needs 5: 5 learners with 1 CPU each. Add nodes"):
        RayPlan.of(config_of(ray_learners=5), CPU_NODES)
    with pytest.raises(BadValue, match="no node of the Ray cluster has 3 CPUs, which one process of this run reserves"):
        RayPlan.of(config_of(ray_learner_cpus=3), CPU_NODES)
    with pytest.raises(BadValue, match=r"has 8 GPUs, but this run needs 9: .*, 1 vLLM server with 1 CPU and 8 GPUs"):
        RayPlan.of(config_of(engine="vllm", ray_server_gpus=8), GPU_NODES)


def test_settings_that_do_not_apply_to_a_cluster() -> None:
    with pytest.raises(BadValue, match="--engine-gpus is for a single machine; with --ray, use --engine-servers"):
        config_of(engine="vllm", engine_gpus="0,1")
    with pytest.raises(BadValue, match="remove colocate"):
        RayPlan.of(config_of(engine="vllm", engine_kwargs={"colocate": True}), GPU_NODES)
