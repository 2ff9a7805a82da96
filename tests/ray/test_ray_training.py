"""Test `palestra train --ray` on a cluster of two nodes: learners and environment workers as actors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # psutil has no type hints
import pytest

from palestra.cli import EXIT_INTERRUPTED
from palestra.training import train
from palestra.training.recipe import from_mapping

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
SETTINGS: dict[str, Any] = {
    "env": "game:GuessTheNumber-v0-easy",
    "algorithm": "grpo",
    "group_size": 4,
    "episodes": 8,
    "concurrency": 8,
    "steps": 2,
    "warm_start": 0,
    "eval_episodes": 8,
    "save_every": 1,
    "max_tokens": 8,
    "device": "cpu",
    "threads": 1,
}
RAY = {"ray": True, "ray_learners": 2, "env_backend": "ray", "env_workers": 1}
FOREVER = {"steps": 100_000, "eval_every": 0}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes with two CPUs each; the run needs all four."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = str(ROOT)
    quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}
    two = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False, "_system_config": quick}
    )
    two.add_node(num_cpus=2)
    ray.init(address=two.address, log_to_driver=False)
    yield two
    ray.shutdown()
    two.shutdown()


def flags_of(settings: dict[str, Any]) -> list[str]:
    flags = []
    for name, value in settings.items():
        flags += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return flags


def start(cluster: Any, out: Path, **settings: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "palestra", "train", *flags_of({**SETTINGS, **RAY, **settings, "out": out})]
    environment = {**os.environ, "RAY_ADDRESS": cluster.address, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [*command, "--plain"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    end = time.monotonic() + 300
    while not condition():
        if process is not None and process.poll() is not None:
            raise AssertionError(f"the run ended with {process.returncode}: {process.communicate()[0]}")
        assert time.monotonic() < end
        time.sleep(0.1)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def is_free() -> bool:
    """Return whether all CPUs in the cluster are free and no actor or placement group is left."""
    import ray

    groups = [group for group in ray.util.placement_group_table().values() if group["state"] != "REMOVED"]
    free: dict[str, float] = ray.available_resources()
    return free.get("CPU") == 4.0 and not groups and not actors("LearnerActor")


def actors(name: str) -> list[psutil.Process]:
    """Return the processes of all actors of a class."""
    everything = psutil.process_iter(["cmdline"])
    return [p for p in everything if any(f"ray::{name}" in part for part in p.info["cmdline"] or ())]


def test_learners_and_env_workers_train_the_same_weights_as_one_process(
    cluster: Any, taught: str, tmp_path: Path
) -> None:
    import ray

    settings = {"model": taught, "optimizer": "muon", "lr": 1e-3}
    run = start(cluster, tmp_path / "ray", **settings)
    wait_for(lambda: bool(actors("EnvActor")), run)
    (group,) = (group for group in ray.util.placement_group_table().values() if group["state"] == "CREATED")
    assert len(set(group["bundles_to_node_id"].values())) == 2
    assert len(group["bundles"]) == 4
    output, _ = run.communicate(timeout=600)
    assert run.returncode == 0, output
    assert "running on 2 nodes of the Ray cluster: 2 learners with 1 CPU each, 2 environment workers" in output
    check_equal_to_one_process(tmp_path / "ray", settings, tmp_path / "alone")
    wait_for(is_free)


def check_equal_to_one_process(folder: Path, settings: dict[str, Any], alone: Path) -> None:
    """Check that a run has the same metrics as a run with the same settings in one process."""
    expected = train(from_mapping({**SETTINGS, **settings, "out": str(alone)})).rows
    assert any(row.get("signal") for row in expected), "at least one step must have a learning signal"
    for row, same in zip(rows_of(folder), expected, strict=True):
        for name in {"success", "eval_success", "grad_norm", "entropy"} & same.keys():
            assert row[name] == pytest.approx(same[name], rel=1e-2, abs=1e-4)


def test_four_learners_train_the_same_weights_as_one_process(cluster: Any, taught: str, tmp_path: Path) -> None:
    settings = {"model": taught, "optimizer": "adamw", "lr": 1e-3}
    where = {"ray_learners": 4, "env_backend": "inline", "env_workers": 0}
    run = start(cluster, tmp_path / "ray", **settings, **where)
    output, _ = run.communicate(timeout=600)
    assert run.returncode == 0, output
    assert "running on 2 nodes of the Ray cluster: 4 learners with 1 CPU each" in output
    check_equal_to_one_process(tmp_path / "ray", settings, tmp_path / "alone")
    wait_for(is_free)


def test_a_lost_learner_ends_the_run_and_the_same_command_continues_it(cluster: Any, tmp_path: Path) -> None:
    run = start(cluster, tmp_path, **FOREVER)
    wait_for(lambda: len(rows_of(tmp_path)) > 2, run)
    actors("LearnerActor")[0].kill()
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 3, output
    assert "the Ray cluster lost a process of this run: learner" in output
    assert "run the same command to continue from it" in " ".join(output.split())
    wait_for(is_free)
    steps = len(rows_of(tmp_path)) + 1
    run = start(cluster, tmp_path, **{**FOREVER, "steps": steps})
    output, _ = run.communicate(timeout=600)
    assert run.returncode == 0, output
    assert "resumed from" in output
    assert [row["step"] for row in rows_of(tmp_path)] == list(range(-1, steps))


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_frees_its_resources(cluster: Any, tmp_path: Path, kind: signal.Signals) -> None:
    run = start(cluster, tmp_path, **FOREVER)
    wait_for(lambda: len(rows_of(tmp_path)) > 1, run)
    run.send_signal(kind)
    output, _ = run.communicate(timeout=120)
    if kind is signal.SIGINT:
        assert run.returncode == EXIT_INTERRUPTED, output
        assert "stopped; run the same command to continue from the checkpoint" in output
    wait_for(is_free)


def test_errors_have_the_exit_code_of_a_run_without_ray(cluster: Any, tmp_path: Path) -> None:
    run = start(cluster, tmp_path / "a", ray_learners=5)
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 2, output
    assert "the Ray cluster has 4 CPUs, but this run needs 10: 5 learners" in output
    run = start(cluster, tmp_path / "b", model=str(tmp_path / "missing"))
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 2, output
    assert "missing" in output
    assert not (tmp_path / "b").exists()
    wait_for(is_free)


def test_no_cluster_is_running(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "palestra", "train", *flags_of({**SETTINGS, "ray": True, "out": tmp_path})]
    environment = {**os.environ, "RAY_ADDRESS": "127.0.0.1:1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert "no Ray cluster is running at RAY_ADDRESS=127.0.0.1:1 (Connection refused)" in " ".join(done.stderr.split())
