"""Select the scheduler and runner for a model and a device, and the size of its KV cache."""

from __future__ import annotations

import logging
from typing import Any

import torch

from palestra.engines.local import runner
from palestra.engines.local.kv_cache import KVCache
from palestra.engines.local.paged.build import build_scheduler
from palestra.engines.local.paged.scheduler import PagedScheduler
from palestra.engines.local.runner_selection import select_runner
from palestra.engines.local.scheduler import Scheduler
from palestra.errors import BadValue
from palestra.machine import main_memory

logger = logging.getLogger(__name__)


def select_scheduler(
    model: Any,
    device: torch.device,
    *,
    only: str | None,
    kv_cache_gb: float | None,
    context: int | None,
    max_running: int,
    prefill_tokens: int,
) -> tuple[Scheduler | PagedScheduler, int]:
    """Return the fastest scheduler whose results match the model's, and its maximum sequence length in tokens.

    `only` names a runner to use instead of the fastest one.
    """
    if only == "paged" or (only is None and device.type in ("cuda", "cpu") and runner.launch_bound(device)):
        scheduler, reason = build_scheduler(
            model,
            device,
            memory=_cache_bytes(kv_cache_gb, device),
            context=context,
            max_running=max_running,
            prefill_tokens=prefill_tokens,
        )
        if scheduler is not None:
            return scheduler, min(context or 1 << 40, scheduler.max_tokens)
        logger.warning("%s does not use the paged runner, which is faster (%s)", type(model).__name__, reason)
        only = None
    kv_cache = KVCache(max_tokens=128)  # just large enough to select a runner, which determines the bytes per token
    selected = select_runner(model, kv_cache, device, only)
    per_token = kv_cache.bytes_per_token
    # A runner without a cache needs no memory.
    kv_cache.set_capacity(_cache_bytes(kv_cache_gb, device) // per_token if per_token else 1 << 40)
    if kv_cache.max_tokens == 0:
        raise BadValue(f"kv_cache_gb={kv_cache_gb} is too small: a token takes {per_token} bytes; raise kv_cache_gb")
    return (
        Scheduler(selected, kv_cache, max_running=max_running, prefill_budget=prefill_tokens),
        min(context or kv_cache.largest_block, kv_cache.largest_block),
    )


def _cache_bytes(kv_cache_gb: float | None, device: torch.device) -> int:
    """Return the cache's capacity in bytes."""
    if kv_cache_gb is not None:
        return int(kv_cache_gb * 2**30)
    return default_cache_bytes(torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None)


def default_cache_bytes(free_gpu_memory: int | None) -> int:
    """Return the default capacity in bytes: 60% of the free GPU memory, or without a GPU 25% of the main memory."""
    return int(0.25 * main_memory() if free_gpu_memory is None else 0.6 * max(0, free_gpu_memory))
