"""Compute which training settings fit on a number of GPUs: `palestra doctor --model NAME --gpus N`.

Weights, optimizer state and KV cache follow from the model's shape. Activations, logits and the reserve are estimates
for the packed forward pass in bfloat16 with float32 copies, which is the default for a pretrained model on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from palestra.errors import BadValue
from palestra.training.model_shape import ModelShape

GB = 10**9
RESERVE = 0.06  # share of a GPU for its CUDA context and fragmentation
MICRO_BATCH, LARGE_MICRO_BATCH = 16_384, 32_768  # default numbers of tokens per micro-batch
CONCURRENCY = 256  # default of --concurrency
MIN_CONVERSATIONS = 16  # number of full-length conversations that must fit in the KV cache
LORA_RANK = 16  # suggested if not all weights can be trained
GPU_FRACTION = 0.75  # maximum size of the activations, as a fraction of the GPU memory that the update leaves free
LOGITS_BYTES = 4 << 29  # bfloat16 logits of a block and their gradients (token_logprobs.GPU_BLOCK)
LOGITS_SHARE = 4 / 128  # the same as a share of a small GPU's memory
VLLM_SHARE = 0.9  # default of vLLM's --gpu-memory-utilization
VLLM_OVERHEAD = 3 * GB  # activations and CUDA graphs in a vLLM server
MAX_PARALLEL = 8  # largest tensor-parallel size within a server

Parts = dict[str, int]  # bytes by purpose
_FREED = ("activations", "logits", "bfloat16 gradients", "gathered layers")  # parts that are freed after an update


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
    learning, recomputes, micro_batch = _learning(shape, machine, learners, rank, offload=False)
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
            recomputes=recomputes,
            micro_batch=micro_batch,
            learning=learning,
            sampling=weights,
            cache=(int(machine.memory * VLLM_SHARE) - sum(weights.values())) * size,
        )


def _local(shape: ModelShape, machine: Machine, rank: int, *, offload: bool) -> Plan:
    """Return a plan in which every process samples and learns on its own GPU."""
    learning, recomputes, micro_batch = _learning(shape, machine, machine.gpus, rank, offload=offload)
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
        recomputes=recomputes,
        micro_batch=micro_batch,
        learning=learning,
        sampling=sampling,
        cache=machine.usable - sum(sampling.values()),  # the cache is released during updates
    )


def _learning(
    shape: ModelShape, machine: Machine, learners: int, rank: int, *, offload: bool
) -> tuple[Parts, bool, int]:
    """Return an update's peak memory per GPU, whether it recomputes activations, and its micro-batch in tokens."""
    trained = shape.lora_parameters(rank) if rank else shape.parameters
    on_gpu = 0 if offload else trained // learners
    parts = {
        "weights": 2 * (shape.parameters + (trained if rank else 0)) // learners,
        "float32 copies": 4 * on_gpu,
        "copies for --kl-backtrack": 4 * on_gpu,
        "gradients": 4 * on_gpu,
        "optimizer": 8 * on_gpu,
        "gathered layers": _gathered(shape, trained=not rank) if learners > 1 else 0,
        "logits": int(min(LOGITS_BYTES, LOGITS_SHARE * machine.memory)) + _head_gradient(shape, trained=not rank),
    }
    own_gradients = 2 * trained // learners  # one micro-batch, in bfloat16; allocated as its activations are freed
    free = machine.usable - sum(parts.values()) - own_gradients
    limit = GPU_FRACTION * free
    large = shape.layers * activation_bytes_per_layer(shape, LARGE_MICRO_BATCH) <= limit
    micro_batch = LARGE_MICRO_BATCH if large else MICRO_BATCH
    tokens = max(micro_batch, machine.tokens)
    per_layer = activation_bytes_per_layer(shape, tokens)
    recomputes = shape.layers * per_layer > limit
    inputs = 2 * tokens * shape.hidden
    parts["activations"] = shape.layers * inputs + per_layer if recomputes else shape.layers * per_layer
    parts["bfloat16 gradients"] = max(0, own_gradients - parts["activations"] - parts["logits"])
    return parts, recomputes, micro_batch


def _gathered(shape: ModelShape, *, trained: bool) -> int:
    """Size of the weights and gradients that FSDP gathers at a time: two blocks and all parameters outside blocks."""
    gradients = 6 if trained else 0  # in bfloat16, and in float32 to sum them over processes
    return (2 * 2 + gradients) * shape.layer_parameters + (2 + gradients) * shape.outer_parameters


def _head_gradient(shape: ModelShape, *, trained: bool) -> int:
    """Size of the output layer's gradient: a float32 sum over blocks of tokens, and one block's bfloat16 gradient."""
    return 6 * shape.vocabulary * shape.hidden if trained else 0


def activation_bytes_per_layer(shape: ModelShape, tokens: int) -> int:
    """Size of the bfloat16 activations that the packed forward pass of one block stores for the backward pass."""
    return 2 * tokens * packed_activations(shape.hidden, shape.heads, shape.key_heads, shape.head_dim, shape.inner)


def packed_activations(hidden: int, heads: int, key_heads: int, head_dim: int, inner: int) -> int:
    """Return how many values the packed forward pass of one block stores per token for the backward pass.

    These are the residual sums, the norms, queries and keys before and after rotation, values, attention outputs, and
    the MLP's gate and up projections and their product.
    """
    return 5 * hidden + 4 * (heads + key_heads) * head_dim + 3 * inner
