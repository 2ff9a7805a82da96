"""Compute and check the resources that a training run reserves on a Ray cluster. Imports neither torch nor Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from palestra.errors import BadValue
from palestra.training.config import TrainConfig

Resources = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class RayPlan:
    """The processes of a run on a Ray cluster, and one bundle of resources for each of them."""

    config: TrainConfig  # with the numbers of processes chosen for the cluster
    learners: int
    learner_gpus: int
    servers: int  # vLLM servers
    env_workers: int  # for all learners together

    @classmethod
    def of(cls, config: TrainConfig, nodes: Sequence[Resources]) -> RayPlan:
        """Return the plan for a cluster with these nodes; raise BadValue if it is too small."""
        sampling, ray = config.sampling, config.ray
        if sampling.engine_kwargs.get("colocate"):
            raise BadValue("with --ray, vLLM servers reserve their own GPUs; remove colocate from --engine-kwargs")
        gpus = _total(nodes, "GPU") if config.run.device != "cpu" else 0
        servers = (sampling.engine_servers or 1) if sampling.engine == "vllm" and not sampling.engine_url else 0
        server_gpus = min(1, int(gpus)) if ray.server_gpus < 0 else ray.server_gpus
        config = replace(
            config,
            sampling=replace(sampling, engine_servers=servers) if servers else sampling,
            ray=replace(ray, server_gpus=server_gpus),
        )
        workers = 0
        if config.env.backend == "ray":
            rest = _total(nodes, "CPU") - ray.learners * ray.learner_cpus - servers * ray.server_cpus
            each = config.env.workers or max(1, int(rest) // ray.learners)
            config = replace(config, env=replace(config.env, workers=each))
            workers = each * ray.learners
        plan = cls(
            config=config,
            learners=ray.learners,
            learner_gpus=min(1, int(gpus)),
            servers=servers,
            env_workers=workers,
        )
        plan.check(nodes)
        return plan

    @property
    def bundles(self) -> list[dict[str, float]]:
        """Resources of the learners, then of the servers, then of the environment workers."""
        ray = self.config.ray
        learner = _bundle(ray.learner_cpus, self.learner_gpus)
        server = _bundle(ray.server_cpus, ray.server_gpus)
        return [learner] * self.learners + [server] * self.servers + [_bundle(1, 0)] * self.env_workers

    def check(self, nodes: Sequence[Resources]) -> None:
        """Raise BadValue if the whole cluster has too few resources for the run."""
        for name in ("CPU", "GPU"):
            needed, there = _total(self.bundles, name), _total(nodes, name)
            if needed > there:
                raise BadValue(
                    f"the Ray cluster has {there:g} {name}s, but this run needs {needed:g}: {self.describe()}. Add "
                    "nodes, or lower --ray-learners, --engine-servers, --env-workers or the resources of each"
                )
        for bundle in self.bundles:
            if not any(all(node.get(name, 0) >= amount for name, amount in bundle.items()) for node in nodes):
                raise BadValue(
                    f"no node of the Ray cluster has {_text(bundle)}, which one process of this run reserves; lower "
                    "--ray-learner-cpus, --ray-server-cpus or --ray-server-gpus"
                )

    def describe(self) -> str:
        """Return the number and the resources of each kind of process."""
        ray = self.config.ray
        parts = [_count(self.learners, "learner", _bundle(ray.learner_cpus, self.learner_gpus))]
        if self.servers:
            parts.append(_count(self.servers, "vLLM server", _bundle(ray.server_cpus, ray.server_gpus)))
        if self.env_workers:
            parts.append(_count(self.env_workers, "environment worker", _bundle(1, 0)))
        return ", ".join(parts)


def server_options(config: TrainConfig) -> dict[str, Any]:
    """Return the options of `VLLMEngine` for the resources that its servers reserve on a Ray cluster."""
    servers = config.sampling.engine_servers
    # Ray assigns the GPUs, so only their number matters here.
    return {"servers": servers, "gpus": [str(number) for number in range(servers * config.ray.server_gpus)]}


def _bundle(cpus: float, gpus: float) -> dict[str, float]:
    return {"CPU": float(cpus), **({"GPU": float(gpus)} if gpus else {})}


def _total(bundles: Sequence[Resources], name: str) -> float:
    return sum(bundle.get(name, 0.0) for bundle in bundles)


def _count(number: int, what: str, bundle: Resources) -> str:
    return f"{number} {what}{'s' if number > 1 else ''} with {_text(bundle)}{' each' if number > 1 else ''}"


def _text(bundle: Resources) -> str:
    return " and ".join(f"{amount:g} {name}{'s' if amount != 1 else ''}" for name, amount in bundle.items())
