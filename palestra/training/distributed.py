"""One process or several under torchrun: who one is, what the others say, and the learner's weights cut up among them.

Numbers are gathered (rewards, values, counts), never tokens: every process knows the credit of every episode and the
denominators of the whole batch, and computes the gradient of its own share.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import fsum
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from palestra.errors import BadValue

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All processes of a run, seen from one of them. The default is a run with one process, where nothing is sent."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Is this the process that writes files and speaks?"""
        return self.rank == 0

    def gather(self, mine: T) -> list[T]:
        """What every process has, by rank."""
        if self.size == 1:
            return [mine]
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, mine)
        return found

    def total(self, mine: Sequence[float]) -> list[float]:
        """The sums over all processes."""
        return [fsum(column) for column in zip(*self.gather(list(mine)), strict=True)]

    def most(self, mine: int) -> int:
        """The largest over all processes."""
        return max(self.gather(mine))

    def share(self, everything: Sequence[T]) -> list[T]:
        """This process's part; the parts in order are everything."""
        count = len(everything)
        return list(everything[count * self.rank // self.size : count * (self.rank + 1) // self.size])

    def once(self, act: Callable[[], T]) -> T:
        """Have the first process do it; all get the outcome, or its exception."""
        outcome: list[Any] = [None, None]
        if self.first:
            try:
                outcome[0] = act()
            except Exception as err:  # noqa: BLE001  # raised below, in every process
                outcome[1] = err
        if self.size > 1:
            dist.broadcast_object_list(outcome, src=0)
        if outcome[1] is not None:
            raise outcome[1]
        found: T = outcome[0]
        return found


def connect(*, patience: float = 3600.0) -> World:
    """The processes torchrun started, or this one alone; `patience`: seconds to wait for others who still play."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return World()
    if not dist.is_available():
        raise BadValue("this build of torch cannot run in several processes; start without torchrun")
    rank = int(os.environ["RANK"])
    backend = "gloo"
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
        backend = "cpu:gloo,cuda:nccl"
    if not dist.is_initialized():
        dist.init_process_group(backend, timeout=timedelta(seconds=patience))
        # Once and for all: processes that part and meet again find each other's old addresses in torchrun's store.
        atexit.register(_part)
    return World(rank=rank, size=size)


def _part() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def shard(policy: nn.Module, layers: Sequence[nn.Module], device: torch.device, world: World) -> None:
    """Cut `policy`'s weights up among all processes (FSDP2); a layer is whole only while it computes.

    What is outside of the layers (embeddings, the last norm, the critic) is one more unit, whole for a whole pass.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (world.size,))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(policy, mesh=mesh, reshard_after_forward=False)


def is_cut(tensor: Tensor) -> bool:
    """Is it only this process's part of a tensor?"""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """The whole of a tensor that may be cut up; then every process must ask for it."""
    return tensor.full_tensor() if is_cut(tensor) else tensor  # type: ignore[attr-defined]


def cut_like(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, the same in every process, cut up as `like` is; nothing is sent."""
    if not is_cut(like):
        return tensor
    from torch.distributed.tensor import DTensor, Replicate

    mesh, placements = like.device_mesh, like.placements  # type: ignore[attr-defined]
    same: Any = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
    found: Tensor = same.redistribute(mesh, placements)
    return found
