"""Build the paged scheduler for a model, and compare its results with the model's before use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from palestra.engines.local import loading
from palestra.engines.local.paged import kernels, reference, sampling_kernels
from palestra.engines.local.paged.block_manager import pages_for
from palestra.engines.local.paged.kv_memory import KVMemory, page_bytes
from palestra.engines.local.paged.layout import LOGPROB_TEMPERATURE, PAGE, STATE_WIDTH
from palestra.engines.local.paged.model import PagedModel
from palestra.engines.local.paged.runner import NO_CHUNKS, NO_INTS, Chunks, PagedRunner, StepInput
from palestra.engines.local.paged.scheduler import PagedScheduler
from palestra.engines.local.rounding import excess
from palestra.engines.local.transformers_runner import eval_mode

CHECK_SEQUENCES, CHECK_TOKENS, CHECK_CHUNKS = 8, 144, (100, 36)  # the chunks are prefilled, the rest is decoded
CHECK_LOGITS = 1 << 24  # maximum number of logits per forward pass in the check, which limits its memory
NO_SLOTS = np.zeros(0, np.int64)
NO_STATES = np.zeros((0, 1 + STATE_WIDTH), np.int32)


class CudaOps:
    """The Triton kernels."""

    add_rms_norm = staticmethod(kernels.add_rms_norm)
    rotate_and_store = staticmethod(kernels.rotate_and_store)
    gate = staticmethod(kernels.gate)
    extend_tables = staticmethod(kernels.extend_tables)
    apply_updates = staticmethod(kernels.apply_updates)
    mixture = staticmethod(kernels.mixture)
    decode_attention = staticmethod(kernels.decode_attention)
    prefill_attention = staticmethod(kernels.prefill_attention)
    prefill_tile_tokens = staticmethod(kernels.prefill_tile_tokens)
    sample = staticmethod(sampling_kernels.sample)


def build_scheduler(
    model: Any,
    device: torch.device,
    *,
    memory: int,
    context: int | None,
    max_running: int,
    prefill_tokens: int,
) -> tuple[PagedScheduler | None, str]:
    """Return a scheduler with up to `memory` bytes of KV cache, or None and the reason why the model has none."""
    reason = PagedModel.unsupported_reason(model)
    if reason is None and device.type == "cuda" and not hasattr(kernels, "triton"):
        reason = "Triton is not installed"
    if reason is not None:
        return None, reason
    ops: Any = CudaOps if device.type == "cuda" else reference
    config = model.config
    try:
        paged = PagedModel(model, ops, context or config.max_position_embeddings)
        reason = _mismatch(model, paged, ops, device)
    except Exception as err:  # noqa: BLE001  unsupported models and GPUs raise arbitrary exceptions
        reason = f"{type(err).__name__}: {err}"
    if reason is not None:
        return None, reason
    layers = len(paged.layers)
    pages = memory // page_bytes(paged.dtype, layers=layers, heads=paged.heads)
    longest = min(context or config.max_position_embeddings, (pages - 1) * PAGE)
    if longest < 2:
        return None, "the KV cache is too small"
    kv_memory = KVMemory(device, paged.dtype, layers=layers, heads=paged.heads, pages=pages)
    runner = PagedRunner(paged, ops, kv_memory, slots=max_running, max_pages=pages_for(longest))
    return PagedScheduler(runner, max_running=max_running, prefill_budget=prefill_tokens), ""


@torch.no_grad()
def _mismatch(model: Any, paged: PagedModel, ops: Any, device: torch.device) -> str | None:
    """Compare the distributions of more than 1,000 tokens with a forward pass; describe a mismatch, or return None."""
    tokens = min(CHECK_TOKENS, len(next(iter(paged.layers)).rotation[0]))
    per_sequence = pages_for(tokens)
    memory = KVMemory(
        device, paged.dtype, layers=len(paged.layers), heads=paged.heads, pages=CHECK_SEQUENCES * per_sequence + 1
    )
    runner = PagedRunner(paged, ops, memory, slots=CHECK_SEQUENCES, max_pages=per_sequence)
    memory.grow(memory.pages)
    vocabulary = loading.vocabulary_size(model)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(vocabulary, (CHECK_SEQUENCES, tokens), generator=generator)
    together = max(1, CHECK_LOGITS // (tokens * vocabulary))
    with eval_mode(model):
        hidden = forced_hidden(runner, ids.numpy().astype(np.int32), CHECK_CHUNKS)
        total = torch.zeros((), device=device)
        batches = torch.split(ids.to(device), together)
        for sequences, states in zip(batches, torch.split(hidden, together), strict=True):
            expected = model(input_ids=sequences, use_cache=False).logits.float().log_softmax(-1)
            actual = paged.logits(states).float().log_softmax(-1)
            total += (expected.exp() * (expected - actual)).sum()
        kl = total.item() / ids.numel()  # waits for the comparison, whose pages the next step overwrites
        reason = excess(kl, model, batches)
    if any(layer.experts is not None for layer in paged.layers):
        _try_step(runner)
    memory.close()
    weights_are_finite = all(bool(parameter.isfinite().all()) for parameter in model.parameters())
    return reason if weights_are_finite else None


def _try_step(runner: PagedRunner) -> None:
    """Run one step with a prefill; raises an exception if a mixture of experts cannot be captured as a CUDA graph.

    Expects the block tables that `forced_hidden` has set.
    """
    state = [0] * (1 + STATE_WIDTH)
    state[1 + LOGPROB_TEMPERATURE] = 0x3F800000  # 1.0
    slots, zero, one = np.zeros(1, np.int64), np.zeros(1, np.int32), np.ones(1, np.int32)
    chunks = Chunks(zero, zero, one, np.ones(1, np.bool_), zero)
    runner.launch(StepInput(NO_INTS, NO_INTS, np.array([state], np.int32), chunks, slots, slots)).wait()


def forced_hidden(runner: PagedRunner, ids: Any, chunks: Sequence[int]) -> torch.Tensor:
    """Return the hidden states (sequence, token) for given ids: prefill `chunks`, then decode the remaining tokens."""
    count, tokens = ids.shape
    pages = pages_for(tokens)
    device = runner.memory.device
    rows = np.arange(count, dtype=np.int32)
    indices = (rows[:, None] * runner.max_pages + np.arange(pages, dtype=np.int32)).ravel()
    table_pages = np.arange(1, len(indices) + 1, dtype=np.int32)
    update = StepInput(indices, table_pages, NO_STATES, NO_CHUNKS, NO_SLOTS, NO_SLOTS)
    runner.launch(update).wait()
    parts, start = [], 0
    for size in chunks:
        part = ids[:, start : start + size]
        starts, counts = np.full_like(rows, start), np.full_like(rows, part.shape[1])
        chunk = Chunks(rows, starts, counts, np.zeros(count, np.bool_), part.ravel())
        arrays = runner.prefill_arrays(chunk)
        inputs = torch.from_numpy(np.concatenate(arrays)).to(device)
        hidden = runner.prefill_hidden(inputs, [len(array) for array in arrays])
        parts.append(hidden.view(count, -1, hidden.shape[-1]))
        start = min(start + size, tokens)
    slots = torch.arange(count, dtype=torch.int32, device=device)
    for position in range(start, tokens):
        one = torch.from_numpy(np.ascontiguousarray(ids[:, position])).to(device)
        parts.append(runner.decode_hidden(one, torch.full_like(slots, position), slots)[:, None])
    return torch.cat(parts, 1)
