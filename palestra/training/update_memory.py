"""Compute the memory of a training update from the sizes of the model, for `palestra doctor` and `--dry-run`.

Weights, copies, gradients and optimizer state follow from the number of parameters and equal those that the learner
allocates. Activations and logits are estimates.
"""

from __future__ import annotations

from dataclasses import dataclass

MICRO_BATCH, LARGE_MICRO_BATCH = 16_384, 32_768  # default numbers of tokens per micro-batch
GPU_FRACTION = 0.75  # maximum size of the activations, as a fraction of the GPU memory that the update leaves free
CPU_LIMIT = 2 << 30  # maximum bytes of activations per pass; constant, so that runs are reproducible across machines
RESERVE = 0.06  # share of a GPU for its CUDA context and fragmentation
CONTEXT = 650_000_000  # bytes of the CUDA context, measured on an H200
LOGITS_BLOCK = 1 << 25  # maximum number of logits that are stored
GPU_BLOCK = 1 << 29  # maximum number of logits per block on a GPU; larger ones are not faster
GPU_BLOCK_FRACTION = 1 / 128  # maximum number of logits per block, per byte of GPU memory

Parts = dict[str, int]  # bytes by purpose


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSizes:
    """Sizes of a model and of its optimizer that determine how much memory an update needs."""

    parameters: int  # of the model, without LoRA adapters
    trained: int  # parameters that are trained: all of them, or those of the adapters
    optimizer: int  # bytes of optimizer state
    layers: int
    hidden: int
    vocabulary: int
    stored: int  # numbers that the forward pass of one layer stores per token for the backward pass
    itemsize: int = 2  # bytes per weight
    lora: bool = False
    packed: bool = True  # whether the forward pass is the one in `packed_decoder`
    backtracks: bool = True  # whether a step can be scaled back (--kl-backtrack)

    def activations(self, tokens: int) -> int:
        """Return the size of all layers' activations for a pass over `tokens` tokens."""
        return self.layers * self.stored * self.itemsize * tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMemory:
    """Peak memory of an update in each process."""

    parts: Parts
    recomputes: bool  # whether activations are recomputed in the backward pass
    micro_batch: int  # tokens


def update_memory(
    sizes: UpdateSizes,
    *,
    gpu_memory: int | None,
    conversation: int = 0,
    token_budget: int = 0,
    batch: int | None = None,
    recompute: str = "auto",
    learners: int = 1,
    offload: bool = False,
    gathered: int = 0,
) -> UpdateMemory:
    """Return the peak memory of an update with all `learners` processes.

    `gpu_memory` is the size of each GPU, None on a CPU; `conversation` the number of tokens in the longest
    conversation; `batch` the number of tokens in all conversations, if it is known; `recompute` the value of
    --gradient-checkpointing; and `gathered` the size of the layers that FSDP gathers at a time.
    """
    on_gpu = 0 if offload else sizes.trained // learners
    masters = sizes.itemsize < 4  # weights in a lower precision than float32 have copies in float32
    parts = {
        "weights": sizes.itemsize * (sizes.parameters + (sizes.trained if sizes.lora else 0)) // learners,
        "float32 copies": 4 * on_gpu if masters else 0,
        "copies for --kl-backtrack": 4 * on_gpu if sizes.backtracks else 0,
        "gradients": 4 * on_gpu,
        "optimizer": 0 if offload else sizes.optimizer // learners,
        "gathered layers": gathered,
    }
    # Gradients of one micro-batch in the precision of the weights, allocated as its activations are freed
    own_gradients = sizes.itemsize * sizes.trained // learners if masters else 0
    most = max(token_budget or (LARGE_MICRO_BATCH if sizes.packed else MICRO_BATCH), conversation)
    parts["logits"] = _logits(sizes, most if batch is None else min(most, batch), gpu_memory)
    limit = float(CPU_LIMIT)
    if gpu_memory is not None:
        limit = GPU_FRACTION * (gpu_memory - CONTEXT - sum(parts.values()) - own_gradients)
    large = sizes.packed and sizes.activations(LARGE_MICRO_BATCH) <= limit
    micro_batch = token_budget or (LARGE_MICRO_BATCH if large else MICRO_BATCH)
    tokens = max(micro_batch, conversation)
    if batch is not None:
        tokens = min(tokens, batch)
    stored = sizes.activations(tokens)
    recomputes = stored > limit if recompute == "auto" else recompute == "on"
    if recomputes:  # only the inputs of all layers are stored
        stored = sizes.layers * sizes.itemsize * tokens * sizes.hidden + stored // sizes.layers
    parts["activations"] = stored
    parts["micro-batch gradients"] = max(0, own_gradients - stored - parts["logits"])
    return UpdateMemory(parts=parts, recomputes=recomputes, micro_batch=micro_batch)


def _logits(sizes: UpdateSizes, tokens: int, gpu_memory: int | None) -> int:
    """Return the size of the logits of a block, of two results of the same size, and of the output layer's gradient.

    That gradient is a float32 sum over blocks of tokens, and one block's gradient in the precision of the weights.
    """
    block = LOGITS_BLOCK if gpu_memory is None else min(GPU_BLOCK, int(GPU_BLOCK_FRACTION * gpu_memory))
    logits = tokens * sizes.vocabulary
    blocks = logits > LOGITS_BLOCK and not sizes.lora
    gradient = (4 + sizes.itemsize) * sizes.vocabulary * sizes.hidden if blocks else 0
    return 3 * sizes.itemsize * min(block, logits) + gradient


def packed_activations(hidden: int, heads: int, key_heads: int, head_dim: int, inner: int) -> int:
    """Return how many values the packed forward pass of one block stores per token for the backward pass.

    These are two residual sums and their norms, queries and keys before and after rotation, values, attention outputs,
    the MLP's gate and up projections and their product, and, for conversations of different lengths, one more copy of
    the tensors of the attention.
    """
    return 4 * hidden + 4 * (heads + key_heads) * head_dim + 3 * inner
