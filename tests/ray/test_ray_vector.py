"""Test the `ray` backend on a cluster of two nodes, one of which is killed by a test."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # psutil has no type hints
import pytest

from palestra.agents import ExpertAgent
from palestra.errors import EnvFailed, UnknownKeyword
from palestra.rollout import collect
from palestra.vector import VectorEnv, make_vec
from tests.vector.envs import Trouble
from tests.vector.oracle import OneEnv, seen
from tests.vector.test_send_recv import transcript

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class TwoNodes:
    """Ray cluster with a head node and another node, which have one CPU each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}
        self.cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "include_dashboard": False, "_system_config": quick},
        )
        self.other = self.cluster.add_node(num_cpus=1)

    def raylet_of(self, node: Any) -> int:
        return int(node.all_processes["raylet"][0].process.pid)

    def kill_other(self) -> None:
        """Kill all processes on the other node without a shutdown, like a power failure."""
        below = psutil.Process(self.raylet_of(self.other)).children(recursive=True)
        self.cluster.remove_node(self.other, allow_graceful=False)
        for process in below:
            if process.is_running():
                process.kill()


@pytest.fixture(scope="module")
def nodes() -> Iterator[TwoNodes]:
    import ray

    os.environ["RAY_DEDUP_LOGS"] = "0"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        two = TwoNodes()
        ray.init(
            address=two.cluster.address,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": str(ROOT)}},
        )
        yield two
        ray.shutdown()
        two.cluster.shutdown()


def raylet_pids(vec: VectorEnv) -> list[int]:
    """Return, for each env, the process id of the raylet on its node."""
    _, infos = vec.reset()
    pids = [info["pid"] for info in infos]
    return [psutil.Process(pid).parents()[1].pid for pid in pids]


def test_transcripts_equal_those_of_other_backends(nodes: TwoNodes) -> None:
    ids: list[Any] = ["game:GuessTheNumber-v0-hard", Trouble, "game:Sokoban-v0-easy"] * 2
    with make_vec(ids, seed=5) as vec:
        expected = transcript(vec, random.Random(0))
    with make_vec(ids, seed=5, backend="ray", workers=2) as vec:
        assert transcript(vec, random.Random(1)) == expected
        with pytest.raises(EnvFailed, match="nothing"):
            vec.call("nothing")


def test_failures_stay_inside_their_actor(nodes: TwoNodes) -> None:
    with make_vec(Trouble, num_envs=6, backend="ray", workers=2, step_timeout=1.0) as vec:
        envs = [OneEnv(Trouble(), 0, i, "same_step") for i in range(6)]
        assert vec.reset()[0] == [env.reset() for env in envs]
        for actions in (["a"] * 6, ["exit", "b", "raise", "hang", "c", "kill"], ["d"] * 6):
            outcome = vec.step(actions)
            expected = [env.step(action) for env, action in zip(envs, actions, strict=True)]
            assert [seen(*five) for five in zip(*outcome, strict=True)] == expected
        found = {(failure.index, failure.cause) for failure in vec.failures}
        assert found == {(0, "died"), (2, "raised"), (3, "deadline"), (5, "died")}


def test_rollouts_run_in_actors(nodes: TwoNodes) -> None:
    def play(**options: Any) -> list[Any]:
        game = "game:GuessTheNumber-v0-easy"
        result = asyncio.run(collect(ExpertAgent(), game, episodes=6, concurrency=3, seed=2, **options))
        assert result.failures == []
        return [[turn.observation for turn in trajectory.turns] for trajectory in result.trajectories]

    assert play(env_backend="ray", env_workers=2) == play()


def test_usage_errors_reach_the_driver(nodes: TwoNodes) -> None:
    with pytest.raises(UnknownKeyword, match="Did you mean turns"):
        make_vec(Trouble, backend="ray", workers=1, trns=3)


def test_the_loss_of_a_node(nodes: TwoNodes) -> None:
    """Check that envs on the lost node fail and continue on the other node, and that other envs are not affected."""

    async def drive(vec: VectorEnv, envs: list[OneEnv], lost: set[int]) -> dict[int, int]:
        sent = dict.fromkeys(range(8), "sleep 0.02")
        failed: dict[int, int] = {}
        steps = 0
        vec.send(sent)
        async for item in vec:
            steps += 1
            action = sent.pop(item.index)
            if item.failure is not None:
                assert item.failure.cause == "node"
                failed[item.index] = failed.get(item.index, 0) + 1
                action = "raise"  # all failures have the same result in the reference implementation
            assert seen(*item[1:]) == envs[item.index].step(action)
            if steps == 40:
                await asyncio.to_thread(nodes.kill_other)
            if steps < 400 or len(failed) < len(lost):
                sent[item.index] = f"sleep 0.0{steps % 3}"
                vec.send({item.index: sent[item.index]})
        assert not sent
        return failed

    with make_vec(Trouble, num_envs=8, backend="ray", workers=2, seed=3, turns=50) as vec:
        where = raylet_pids(vec)
        lost = {i for i in range(8) if where[i] == nodes.raylet_of(nodes.other)}
        assert len(lost) == 4  # the envs are distributed evenly over both nodes
        envs = [OneEnv(Trouble(turns=50), 3, i, "same_step") for i in range(8)]
        assert vec.reset(seed=3)[0] == [env.reset() for env in envs]
        failed = asyncio.run(drive(vec, envs, lost))
        assert failed == dict.fromkeys(lost, 1)
        head = nodes.raylet_of(nodes.cluster.head_node)
        assert set(raylet_pids(vec)) == {head}


def test_a_program_joins_the_running_cluster(nodes: TwoNodes) -> None:
    code = (
        "import palestra\n"
        "with palestra.make_vec('game:GuessTheNumber-v0-easy', num_envs=2, backend='ray', workers=1) as vec:\n"
        "    vec.reset(); print(vec.step(['\\\\boxed{11}'] * 2).infos[0]['invalid'])\n"
    )
    env = {**os.environ, "RAY_ADDRESS": nodes.cluster.address}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, done.stdout) == (0, "rule\n"), done.stderr
