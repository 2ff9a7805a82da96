"""Distributed training with torchrun: communication between processes and FSDP2 sharding of the weights.

Only numbers (rewards, values, counts) are gathered, never tokens. Every process computes the advantages for all
episodes and the denominators for the whole batch, but only the gradient of its own samples.
"""

from __future__ import annotations

import atexit
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from math import fsum
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from palestra.errors import BadValue, InfrastructureError
from palestra.rollout import RolloutResult
from palestra.rollout.metrics import compute_metrics
from palestra.rollout.types import Trajectory, Turn
from palestra.types import Action, Call

T = TypeVar("T")

# Messages of gloo's disconnection errors, which are plain RuntimeErrors.
_DISCONNECTED = re.compile("gloo|connection (closed|reset) by peer|broken pipe", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedContext:
    """Rank and size of the process group, and its collective operations. By default there is a single process."""

    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """True in the process that writes files and logs."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Return the values from all processes, ordered by rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the elementwise sums over all processes."""
        return [fsum(column) for column in zip(*self.gather(list(values)), strict=True)]

    def max(self, value: int) -> int:
        """Return the maximum over all processes."""
        return max(self.gather(value))

    def shard(self, items: Sequence[T]) -> list[T]:
        """Return this process's contiguous part of `items`."""
        count = len(items)
        return list(items[count * self.rank // self.size : count * (self.rank + 1) // self.size])

    def on_main(self, function: Callable[[], T]) -> T:
        """Call `function` in the main process, and return its result or raise its exception in every process."""
        outcome: list[Any] = [None, None]
        if self.is_main:
            try:
                outcome[0] = function()
            except Exception as err:  # noqa: BLE001  # re-raised below in every process
                outcome[1] = err
        if self.size > 1:
            dist.broadcast_object_list(outcome, src=0)
        if outcome[1] is not None:
            raise outcome[1]
        result: T = outcome[0]
        return result


def connect(device: str = "auto", *, timeout: float = 3600.0) -> DistributedContext:
    """Join the process group started by torchrun, or return a single-process context; set this process's GPU.

    `device` is the run's device, and `timeout` the number of seconds to wait for a process that is still sampling.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    uses_gpu = device != "cpu" and torch.cuda.is_available()
    gpu = assigned_gpu(device, torch.cuda.device_count()) if uses_gpu else None
    if gpu is not None:
        torch.cuda.set_device(gpu)  # before anything is stored on a GPU, so that no other GPU is used by mistake
    if size == 1:
        return DistributedContext()
    if not dist.is_available():
        raise BadValue("this build of torch has no torch.distributed; start without torchrun")
    if not dist.is_initialized():
        backend = "gloo" if gpu is None else "cpu:gloo,cuda:nccl"
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
        # The group is destroyed only at exit, since a second group would find stale addresses in torchrun's store.
        atexit.register(_disconnect)
    return DistributedContext(rank=int(os.environ["RANK"]), size=size)


def assigned_gpu(device: str, gpus: int) -> int | None:
    """Return which of the machine's `gpus` GPUs this process has to use, or None if it may use the current one.

    With torchrun, every process has its own GPU, whose number is the process's rank on its machine.
    """
    kind, _, number = device.partition(":")
    several = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if several and number:
        raise BadValue(
            f"with torchrun, every process has its own GPU, so --device {device} cannot apply to all of them; use "
            f"--device {kind}"
        )
    if not (several or number.isdigit()) or kind not in ("auto", "cuda"):
        return None  # an unknown device is reported when the model is loaded
    gpu = int(number or os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")))
    if gpu < gpus:
        return gpu
    if several:
        raise BadValue(
            f"torchrun started more processes than the {gpus} GPUs of this machine; use --nproc-per-node {gpus}"
        )
    raise BadValue(f"--device {device} does not exist; this process can use {gpus} GPUs, numbered from 0")


def _disconnect() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def explained_disconnection(distributed: DistributedContext) -> Iterator[None]:
    """Replace the errors of collective operations with InfrastructureError if another process has stopped."""
    try:
        yield
    except RuntimeError as err:
        known = isinstance(err, dist.DistError) or (type(err) is RuntimeError and _DISCONNECTED.search(str(err)))
        if distributed.size == 1 or not known:
            raise
        raise InfrastructureError(
            "another process of this run has stopped, so this one stops, too. The last checkpoint is intact; run the "
            "same command to continue from it"
        ) from err


def shard(
    policy: nn.Module,
    layers: Sequence[nn.Module],
    device: torch.device,
    distributed: DistributedContext,
    *,
    offload: bool = False,
) -> None:
    """Shard the weights in `policy` over all processes with FSDP2; each layer is gathered only while it is computed.

    All parameters outside the layers (embeddings, final norm, critic) form one unit, gathered for the whole pass. With
    `offload`, the shards of the weights and gradients are in main memory, where the optimizer updates them.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard

    mesh = init_device_mesh(device.type, (distributed.size,))
    precision = MixedPrecisionPolicy(reduce_dtype=torch.float32)  # sums of bfloat16 gradients would lose digits
    memory = CPUOffloadPolicy(pin_memory=device.type == "cuda") if offload else OffloadPolicy()
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=precision, offload_policy=memory)
    fully_shard(policy, mesh=mesh, mp_policy=precision, offload_policy=memory, reshard_after_forward=False)


def is_sharded(tensor: Tensor) -> bool:
    """Return whether this process holds only a part of the tensor."""
    return hasattr(tensor, "full_tensor")


def has_shards(model: nn.Module) -> bool:
    """Return whether any weight is sharded. Those outside the layers stay gathered after a pass without gradients."""
    return any(is_sharded(p) for p in model.parameters())


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the full tensor, gathered if it is sharded. Every process must call this function.

    Shards in main memory are gathered on the device that computes with them.
    """
    if not is_sharded(tensor):
        return tensor
    full: Tensor = tensor.to(tensor.device_mesh.device_type).full_tensor()  # type: ignore[attr-defined]
    return full


def shard_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Shard a tensor that is identical in every process in the same way as `like`, without communication."""
    if not is_sharded(like):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate

    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
    local = tensor.to(mesh.device_type)
    replicated: Any = DTensor.from_local(local, mesh, [Replicate()] * mesh.ndim, run_check=False)
    sharded: Tensor = replicated.redistribute(mesh, placements).to(like.device)
    return sharded


def gather_result(result: RolloutResult, distributed: DistributedContext) -> RolloutResult:
    """Return the combined rollouts from all processes, for metrics. Their trajectories have no texts or token ids."""
    if distributed.size == 1:
        return result
    own = (
        [without_tokens(t) for t in result.trajectories],
        [without_tokens(t) for t in result.failures],
        result.metrics["seconds"],
    )
    shards = distributed.gather(own)
    gathered = RolloutResult(
        trajectories=[t for shard in shards for t in shard[0]],
        failures=[t for shard in shards for t in shard[1]],
    )
    gathered.metrics = compute_metrics(gathered.trajectories, gathered.failures, max(shard[2] for shard in shards))
    return gathered


def without_tokens(trajectory: Trajectory) -> Trajectory:
    """Return a copy of the trajectory with its rewards and token counts but without texts and token ids."""
    return replace(
        trajectory, turns=tuple(_turn(turn) for turn in trajectory.turns), final_observation="", final_prompt=()
    )


def _turn(turn: Turn) -> Turn:
    info = {key: turn.info[key] for key in ("success", "ending", "invalid") if key in turn.info}
    return replace(turn, observation="", action=Action(text="", calls=tuple(map(_call, turn.action.calls))), info=info)


def _call(call: Call) -> Call:
    return replace(call, prompt_ids=[], ids=[0] * len(call.ids), logprobs=[], prompt=None)
