"""Select the fastest runner that reproduces the model's log-probabilities."""

from __future__ import annotations

import logging
from typing import Any

import torch

from palestra.engines.local import loading
from palestra.engines.local.decoder import NativeRunner
from palestra.engines.local.kv_cache import KVCache
from palestra.engines.local.prefix_cache import CacheEntry
from palestra.engines.local.runner import Chunk, Runner, StepBatch
from palestra.engines.local.transformers_runner import RecomputeRunner, TransformersRunner

logger = logging.getLogger(__name__)


def select_runner(model: Any, kv_cache: KVCache, device: torch.device, only: str | None = None) -> Runner:
    """Return the fastest runner whose log-probabilities match the model's."""
    reasons = []
    runner_classes: dict[str, Any] = {"native": NativeRunner, "transformers": TransformersRunner}
    for name, runner_class in runner_classes.items():
        if only not in (None, name):
            continue
        reason = runner_class.unsupported_reason(model)
        if reason is None:
            kv_cache.release()
            runner: Runner = runner_class(model, kv_cache, device)
            reason = _mismatch(model, runner, kv_cache, device)
        if reason is None:
            return runner
        reasons.append(f"{name}: {reason}")
    kv_cache.release()
    if only != "recompute":
        logger.warning("%s runs without a KV cache, which is slow (%s)", type(model).__name__, reasons)
    return RecomputeRunner(model, kv_cache, device)


@torch.no_grad()
def _mismatch(model: Any, runner: Runner, kv_cache: KVCache, device: torch.device) -> str | None:
    """Compare the runner with the model on two short sequences; describe the mismatch, or return None."""
    vocabulary = loading.vocabulary_size(model)
    generator = torch.Generator().manual_seed(0)
    sequences = [torch.randint(vocabulary, (length,), generator=generator).tolist() for length in (11, 7)]
    # Chunks of each sequence: a new prompt, its continuation, then single tokens.
    cuts = [((0, 6), (6, 9), (9, 10), (10, 11)), ((0, 3), (3, 5), (5, 6), (6, 7))]
    entries = []
    for ids in sequences:
        offset = kv_cache.allocate(64)
        if offset is None:
            return "the cache is too small for the comparison"
        entries.append(CacheEntry(ids, None, offset, 64))
    tolerance = 1e-3 if model.dtype == torch.float32 else 0.5  # lower precisions have larger rounding errors
    if device.type != "cpu" and torch.get_float32_matmul_precision() != "highest":
        tolerance = max(tolerance, 0.1)  # TF32
    was_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        reference = [model(input_ids=torch.tensor([s], device=device), use_cache=False).logits[0] for s in sequences]
        for spans in zip(*cuts, strict=True):
            chunks = [Chunk(entry, start, stop, True) for entry, (start, stop) in zip(entries, spans, strict=True)]
            actual = runner.forward(StepBatch.from_chunks(chunks)).float().log_softmax(-1)
            expected = torch.stack([logits[chunk.stop - 1] for logits, chunk in zip(reference, chunks, strict=True)])
            error = (actual - expected.float().log_softmax(-1)).abs().max().item()
            if not error <= tolerance and expected.isfinite().all():
                return f"log-probabilities differ from the model's by {error:.2g}"
    except Exception as err:  # noqa: BLE001  unsupported models raise arbitrary exceptions
        return f"{type(err).__name__}: {err}"
    finally:
        for module in was_training:
            module.training = True
        for entry in entries:
            kv_cache.allocator.free(entry.offset, entry.size)
    return None
