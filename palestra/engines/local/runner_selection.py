"""Select the fastest runner that reproduces the model's log-probabilities."""

from __future__ import annotations

import logging
from typing import Any

import torch

from palestra.engines.local import loading
from palestra.engines.local.decoder import NativeRunner
from palestra.engines.local.kv_cache import KVCache
from palestra.engines.local.prefix_cache import CacheEntry
from palestra.engines.local.rounding import excess
from palestra.engines.local.runner import Chunk, Runner, StepBatch
from palestra.engines.local.transformers_runner import RecomputeRunner, TransformersRunner, eval_mode

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
    prompts = [torch.tensor([ids], device=device) for ids in sequences]
    try:
        with eval_mode(model):
            reference = [model(input_ids=ids, use_cache=False).logits[0].float().log_softmax(-1) for ids in prompts]
            kls = []
            for spans in zip(*cuts, strict=True):
                chunks = [Chunk(entry, start, stop, True) for entry, (start, stop) in zip(entries, spans, strict=True)]
                actual = runner.forward(StepBatch.from_chunks(chunks)).float().log_softmax(-1)
                expected = torch.stack([row[chunk.stop - 1] for row, chunk in zip(reference, chunks, strict=True)])
                kls.append((expected.exp() * (expected - actual)).sum(-1))
            if all(bool(row.isfinite().all()) for row in reference):
                return excess(torch.cat(kls).mean().item(), model, prompts)
    except Exception as err:  # noqa: BLE001  unsupported models raise arbitrary exceptions
        return f"{type(err).__name__}: {err}"
    finally:
        for entry in entries:
            kv_cache.allocator.free(entry.offset, entry.size)
    return None
