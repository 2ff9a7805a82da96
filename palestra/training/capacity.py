"""Compute which training settings fit on a number of GPUs: `palestra doctor --model NAME --gpus N`.

Weights, optimizer state and KV cache follow from the model's shape. Activations, logits and the reserve are estimates
for the packed forward pass in bfloat16 with float32 copies, which is the default for a pretrained model on a GPU. The
memory of an update is computed in `update_memory`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from palestra.errors import BadValue
from palestra.training.model_shape import ModelShape
from palestra.training.update_memory import (
    RESERVE,
    Parts,
    UpdateMemory,
    UpdateSizes,
    packed_activations,
    update_memory,
)

GB = 10**9
CONCURRENCY = 256  # default of --concurrency
MIN_CONVERSATIONS = 16  # number of full-length conversations that must fit in the KV cache
LORA_RANK = 16  # suggested if not all weights can be trained
VLLM_SHARE = 0.9  # default of vLLM's --gpu-memory-utilization
VLLM_OVERHEAD = 3 * GB  # activations and CUDA graphs in a vLLM server
MAX_PARALLEL = 8  # largest tensor-parallel size within a server

_FREED = ("activations", "logits", "micro-batch gradients", "gathered layers")  # parts that are freed after an update


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """GPUs to divide between the learner and the engine, and the length of conversations."""

    gpus: int
    memory: int  # bytes per GPU
    tokens: int  # maximum length of a conversation

    @property
    def usable(self) -> int:
        return int(self.memory * (1 - RESERVE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Assignment of the GPUs to learners and servers, the memory it needs in bytes per GPU, and the settings for it."""

    shape: ModelShape
    machine: Machine
    learners: int
    servers: int = 0  # vLLM servers; 0 means that the trainer's process samples
    gpus_per_server: int = 0
    lora_rank: int = 0
    offload: bool = False
    recomputes: bool = False
    micro_batch: int  # tokens
    learning: Parts
    sampling: Parts  # besides the KV cache
    cache: int  # bytes left for a KV cache, over all GPUs that share it

    @property
    def conversations(self) -> int:
        """Number of full-length conversations that can be sampled concurrently, over all GPUs."""
        per_cache = self.cache // (self.shape.cache_per_token * self.machine.tokens)
        return max(0, per_cache) * (self.servers or self.learners)

    @property
    def main_memory(self) -> int:
        """Bytes of main memory for float32 copies, their gradients and the optimizer's state."""
        return 20 * self.shape.parameters if self.offload else 0

    @property
    def fits(self) -> bool:
        return sum(self.learning.values()) <= self.machine.usable and self.conversations >= MIN_CONVERSATIONS

    def flags(self) -> list[str]:
        """Return the flags of `palestra train` for this plan."""
        flags = ["--model", self.shape.name]
        if self.servers:
            first = self.learners
            numbers = ",".join(str(number) for number in range(first, first + self.servers * self.gpus_per_server))
            flags += ["--engine", "vllm", "--engine-gpus", numbers, "--engine-servers", str(self.servers)]
        if self.lora_rank:
            flags += ["--lora-rank", str(self.lora_rank)]
        if self.offload:
            flags += ["--offload-optimizer"]
        if self.machine.tokens > self.micro_batch:
            flags += ["--token-budget", str(self.machine.tokens)]
        if self.conversations < CONCURRENCY:
            flags += ["--concurrency", str(self.conversations // (1 if self.servers else self.learners))]
        return flags

    @property
    def command(self) -> str:
        start = f"torchrun --nproc-per-node {self.learners} -m palestra" if self.learners > 1 else "palestra"
        return f"{start} train --env ENV {' '.join(self.flags())}"


def best_plan(shape: ModelShape, machine: Machine, *, lora_rank: int = 0) -> Plan | None:
    """Return the first plan that fits, in the order of `plans`, or None."""
    return next((plan for plan in plans(shape, machine, lora_rank=lora_rank) if plan.fits), None)


def plans(shape: ModelShape, machine: Machine, *, lora_rank: int = 0) -> Iterator[Plan]:
    """Yield plans in order of preference: all weights before LoRA, vLLM on separate GPUs before local sampling."""
    if machine.gpus < 1:
        raise BadValue(f"--gpus must be at least 1, got {machine.gpus}")
    for rank in [lora_rank] if lora_rank else [0, LORA_RANK]:
        for learners in range(max(1, machine.gpus // 2), machine.gpus):
            yield from _with_vllm(shape, machine, learners, rank)
        yield _local(shape, machine, rank, offload=False)
        if machine.gpus == 1 and not rank:
            yield _local(shape, machine, rank, offload=True)


def _with_vllm(shape: ModelShape, machine: Machine, learners: int, rank: int) -> Iterator[Plan]:
    """Yield plans with the smallest servers first, because tensor parallelism is slower."""
    engines = machine.gpus - learners
    sizes = [size for size in (1, 2, 4, MAX_PARALLEL) if engines % size == 0 and shape.key_heads % size == 0]
    update = learning_memory(shape, machine, learners=learners, lora_rank=rank)
    learning = update.parts
    if rank and learners > 1:
        learning["sampling copy"] = 2 * shape.parameters  # the base model, from which the servers start
    elif learners > 1:
        # The first process gathers all weights after each update, when the other parts of the peak are freed.
        peak = sum(learning[name] for name in _FREED)
        learning["gathered weights"] = max(0, 2 * shape.parameters - peak)
    for size in sizes:
        weights = {"weights": 2 * shape.parameters // size, "activations": VLLM_OVERHEAD}
        yield Plan(
            shape=shape,
            machine=machine,
            learners=learners,
            servers=engines // size,
            gpus_per_server=size,
            lora_rank=rank,
            recomputes=update.recomputes,
            micro_batch=update.micro_batch,
            learning=learning,
            sampling=weights,
            cache=(int(machine.memory * VLLM_SHARE) - sum(weights.values())) * size,
        )


def _local(shape: ModelShape, machine: Machine, rank: int, *, offload: bool) -> Plan:
    """Return a plan in which every process samples and learns on its own GPU."""
    update = learning_memory(shape, machine, learners=machine.gpus, lora_rank=rank, offload=offload)
    learning = update.parts
    if machine.gpus > 1:
        learning["sampling copy"] = 2 * shape.parameters
    resident = ("weights", "float32 copies", "optimizer", "sampling copy")
    sampling = {name: learning[name] for name in resident if name in learning}
    return Plan(
        shape=shape,
        machine=machine,
        learners=machine.gpus,
        lora_rank=rank,
        offload=offload,
        recomputes=update.recomputes,
        micro_batch=update.micro_batch,
        learning=learning,
        sampling=sampling,
        cache=machine.usable - sum(sampling.values()),  # the cache is released during updates
    )


def learning_memory(
    shape: ModelShape, machine: Machine, *, learners: int = 1, lora_rank: int = 0, offload: bool = False
) -> UpdateMemory:
    """Return the memory of an update with AdamW in each of the `learners` processes."""
    trained = shape.lora_parameters(lora_rank) if lora_rank else shape.parameters
    sizes = UpdateSizes(
        parameters=shape.parameters,
        trained=trained,
        optimizer=8 * trained,
        layers=shape.layers,
        hidden=shape.hidden,
        vocabulary=shape.vocabulary,
        stored=packed_activations(shape.hidden, shape.heads, shape.key_heads, shape.head_dim, shape.inner),
        lora=bool(lora_rank),
    )
    gathered = _gathered(shape, trained=not lora_rank) if learners > 1 else 0
    return update_memory(
        sizes,
        gpu_memory=machine.memory,
        conversation=machine.tokens,
        learners=learners,
        offload=offload,
        gathered=gathered,
    )


def _gathered(shape: ModelShape, *, trained: bool) -> int:
    """Size of the weights and gradients that FSDP gathers at a time: two blocks and all parameters outside blocks."""
    gradients = 6 if trained else 0  # in bfloat16, and in float32 to sum them over processes
    return (2 * 2 + gradients) * shape.layer_parameters + (2 + gradients) * shape.outer_parameters
