"""The `[ray]` section of the training config: run the parts of a training run on a Ray cluster."""

from __future__ import annotations

from dataclasses import dataclass

from palestra.options import option
from palestra.training.warm_start_section import Section


@dataclass(frozen=True, kw_only=True)
class RayConfig(Section):
    """`[ray]` section: the processes of a run on a Ray cluster and the resources that they reserve."""

    enabled: bool = option(
        False,
        "Run the learner, the vLLM servers and the environment workers as actors on the running Ray cluster, in one "
        "placement group.",
        flag="ray",
    )
    learners: int = option(
        1,
        "Number of learner processes with --ray, among which FSDP divides the weights; each reserves one GPU if the "
        "cluster has GPUs and --device is not cpu.",
        flag="ray_learners",
        at_least=1,
    )
    learner_cpus: int = option(
        1, "Number of CPUs that each learner process reserves with --ray.", flag="ray_learner_cpus", at_least=1
    )
    server_gpus: int = option(
        -1,
        "Number of GPUs that each vLLM server reserves with --ray (tensor parallelism); -1 means one if the cluster "
        "has GPUs and --device is not cpu, and otherwise none.",
        flag="ray_server_gpus",
        at_least=-1,
    )
    server_cpus: int = option(
        1, "Number of CPUs that each vLLM server reserves with --ray.", flag="ray_server_cpus", at_least=1
    )
