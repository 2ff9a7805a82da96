"""Run a training run on a Ray cluster: the learner, the vLLM servers and the environment workers as actors.

One placement group reserves the resources of all processes at once, so that two runs cannot each hold half of what they
need. Ray ends the actors with this process, even if it is killed; the vLLM servers end with their actors.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any

from palestra.concurrency import run_sync
from palestra.engines.vllm.process import free_port
from palestra.engines.vllm.ray_host import ServerActor, actor_name
from palestra.errors import BadValue, InfrastructureError
from palestra.optional import require
from palestra.plugins import import_modules
from palestra.training.config import TrainConfig
from palestra.training.ray_resources import RayPlan
from palestra.training.run import TrainingRun
from palestra.training.trainer_selection import run_trainer

if TYPE_CHECKING:
    from palestra.training.trainer import Log, OnMetrics

POLL_SECONDS = 0.5  # time between two requests for the learner's messages
PLACEMENT_SECONDS = 1800.0  # maximum time to wait until other jobs have freed resources
ADDRESS_SECONDS = 10.0  # maximum time to connect to the cluster
END_SECONDS = 15.0  # maximum time to wait for the errors of other learners, or for killed actors
FORWARDED = ("PALESTRA_", "HF_", "WANDB_", "NCCL_", "GLOO_", "VLLM_")  # environment variables that learners receive


class LearnerActor:
    """Ray actor that is one process of the learner. `messages` can be called while `train` is running."""

    def __init__(self, variables: Mapping[str, str], folder: str) -> None:
        os.environ.update(variables)
        with suppress(OSError):
            os.chdir(folder)  # resolve relative paths as in the process that started the run
        self._lock = Lock()
        self._messages: list[tuple[str, Any]] = []
        self._rows_sent = 0

    def address(self) -> tuple[str, int]:
        """Return the IP address of the actor's node and a free port of it."""
        address: str = require("ray", extra="ray").util.get_node_ip_address()
        return address, free_port(address)

    def train(
        self, config: TrainConfig, *, rank: int, size: int, master: tuple[str, int], resume: bool, metrics: bool
    ) -> TrainingRun:
        """Train as process `rank` of `size`, with the variables that torchrun would set."""
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": "0"}  # each actor sees its own GPU
        os.environ |= {"MASTER_ADDR": master[0], "MASTER_PORT": str(master[1])}
        import_modules(config.env.imports)
        return run_sync(
            run_trainer(config, resume=resume, log=self._add_line, on_metrics=self._add_rows if metrics else None)
        )

    def messages(self) -> list[tuple[str, Any]]:
        """Return the lines of the log and the rows of the metrics since the last call."""
        with self._lock:
            messages, self._messages = self._messages, []
        return messages

    def _add_line(self, line: str) -> None:
        with self._lock:
            self._messages.append(("line", line))

    def _add_rows(self, rows: Sequence[Mapping[str, Any]]) -> None:
        with self._lock:
            self._messages.append(("rows", [dict(row) for row in rows[self._rows_sent :]]))
        self._rows_sent = len(rows)


def train_on_ray(config: TrainConfig, *, resume: bool, log: Log, on_metrics: OnMetrics | None) -> TrainingRun:
    """Train on the running Ray cluster, and return the finished run. All actors end with this function."""
    ray: Any = require("ray", extra="ray")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise BadValue("--ray starts the learner's processes itself; start it without torchrun, with --ray-learners")
    with _connected(ray):
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        absolute = replace(config, run=replace(config.run, out=str(config.folder.absolute())))
        plan = RayPlan.of(absolute, nodes)
        with _placement_group(ray, plan, log) as group:
            return _Run(ray, plan, group).train(resume=resume, log=log, on_metrics=on_metrics)


class _Run:
    """The actors of one run."""

    def __init__(self, ray: Any, plan: RayPlan, group: Any) -> None:
        self._ray = ray
        self._plan = plan
        ray_config = plan.config.ray
        # Workers inherit their node's environment. Ray displays these variables, so only the path is passed.
        path = os.environ.get("PYTHONPATH")
        shared: dict[str, Any] = {"runtime_env": {"env_vars": {"PYTHONPATH": path}}} if path else {}
        variables = {name: value for name, value in os.environ.items() if name.startswith(FORWARDED)}

        def options(bundle: int, cpus: int, gpus: int) -> dict[str, Any]:
            strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
                placement_group=group,
                placement_group_bundle_index=bundle,
                placement_group_capture_child_tasks=True,  # environment workers
            )
            return {**shared, "num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": strategy}

        self._learners = [
            ray.remote(LearnerActor)
            .options(**options(rank, ray_config.learner_cpus, plan.learner_gpus), max_concurrency=2)
            .remote(variables, str(Path.cwd()))
            for rank in range(plan.learners)
        ]
        self._servers = [
            ray.remote(ServerActor)
            .options(
                **options(plan.learners + index, ray_config.server_cpus, ray_config.server_gpus),
                name=actor_name(group, index),
                max_concurrency=4,  # so that its state can be read while the server is stopping
            )
            .remote()
            for index in range(plan.servers)
        ]

    def train(self, *, resume: bool, log: Log, on_metrics: OnMetrics | None) -> TrainingRun:
        """Train in all learner actors; return the result of the first one."""
        ray, rows = self._ray, []
        calls: list[Any] = []
        try:
            ray.get([server.free_port.remote() for server in self._servers])  # wait until the actors exist
            master = ray.get(self._learners[0].address.remote())
            calls = [
                learner.train.remote(
                    self._plan.config,
                    rank=rank,
                    size=self._plan.learners,
                    master=master,
                    resume=resume,
                    metrics=on_metrics is not None,
                )
                for rank, learner in enumerate(self._learners)
            ]
            running = calls
            while running:
                done, running = ray.wait(running, timeout=POLL_SECONDS)
                for kind, value in ray.get(self._learners[0].messages.remote()):
                    if kind == "line":
                        log(value)
                    elif on_metrics is not None:
                        rows += value
                        on_metrics(rows)
                if done:
                    ray.get(done)  # raises the error of a learner that has failed
            result: TrainingRun = ray.get(calls[0])
        except ray.exceptions.RayError as err:
            raise self._explain(calls, err) from err
        else:
            return result
        finally:
            self._stop(calls)

    def _explain(self, calls: list[Any], first: Exception) -> Exception:
        """Return the error that ended the run, not the errors that it caused in other learners."""
        ray = self._ray
        ray.wait(calls, num_returns=len(calls), timeout=END_SECONDS)  # the cause may be reported later
        ready, _ = ray.wait(calls, num_returns=len(calls), timeout=0) if calls else ([], [])
        raised: list[Exception] = []
        lost: list[str] = []
        for rank, call in enumerate(calls):
            if call not in ready:
                continue
            try:
                ray.get(call)
            except ray.exceptions.RayTaskError as err:
                raised.append(err.cause)
            except ray.exceptions.RayError as err:
                lost.append(f"learner {rank} ({' '.join(str(err).split())[:300]})")
        causes = [err for err in raised if type(err) is not InfrastructureError]
        if causes:
            return causes[0]
        text = ", ".join(lost) or " ".join(str(first).split())[:300]
        return InfrastructureError(
            f"the Ray cluster lost a process of this run: {text}. The last checkpoint is intact; run the same command "
            "to continue from it"
        )

    def _stop(self, calls: list[Any]) -> None:
        """Kill all actors and wait until the learners have ended, so that the run can be started again."""
        for actor in [*self._learners, *self._servers]:
            with suppress(self._ray.exceptions.RayError):
                self._ray.kill(actor)
        if calls:
            with suppress(self._ray.exceptions.RayError):
                self._ray.wait(calls, num_returns=len(calls), timeout=END_SECONDS)


@contextmanager
def _connected(ray: Any) -> Iterator[None]:
    """Connect to the running cluster unless this process is connected already."""
    if ray.is_initialized():
        yield
        return
    _check_address(os.environ.get("RAY_ADDRESS", ""))
    try:
        ray.init(address="auto", log_to_driver=False)
    except ConnectionError as err:
        raise BadValue(
            "no Ray cluster is running; start one with `ray start --head`, or set RAY_ADDRESS to its address"
        ) from err
    try:
        yield
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Raise BadValue if nothing listens at the address of the cluster; Ray itself would try for a minute."""
    host, _, port = address.rpartition(":")
    if "/" in host or not port.isdigit():
        return  # not host:port
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ADDRESS_SECONDS).close()
    except OSError as err:
        raise BadValue(
            f"no Ray cluster is running at RAY_ADDRESS={address} ({err.strerror or err}); start one with `ray start "
            "--head`, or correct the address"
        ) from err


@contextmanager
def _placement_group(ray: Any, plan: RayPlan, log: Log) -> Iterator[Any]:
    """Reserve the resources of all processes, and free them at the end."""
    group = ray.util.placement_group(plan.bundles, strategy="PACK")
    try:
        end = monotonic() + PLACEMENT_SECONDS
        waited = False
        while not group.wait(timeout_seconds=1):
            if not waited:
                waited = True
                log(f"waiting until the Ray cluster has free resources for {plan.describe()}")
            if monotonic() > end:
                raise InfrastructureError(
                    f"the Ray cluster had no free resources for {plan.describe()} within {PLACEMENT_SECONDS:g} s; "
                    "`ray status` shows which are in use"
                )
        nodes = set(ray.util.placement_group_table(group)["bundles_to_node_id"].values())
        log(f"running on {len(nodes)} node{'s' if len(nodes) > 1 else ''} of the Ray cluster: {plan.describe()}")
        yield group
    finally:
        with suppress(ray.exceptions.RayError):
            ray.util.remove_placement_group(group)
