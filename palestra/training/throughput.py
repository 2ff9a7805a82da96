"""Metrics of a step's speed and memory."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from palestra.rollout.types import Trajectory


def learned_tokens(trajectories: Sequence[Trajectory]) -> int:
    """Return the number of tokens in the samples of the trajectories, prompts included."""
    total = 0
    for trajectory in trajectories:
        length = 0  # of the sample so far
        for call in (call for turn in trajectory.turns for call in turn.action.calls):
            if call.split is not None:
                total += length  # this call starts a new sample
            length = len(call.prompt_ids) + len(call.ids)
        total += length
    return total


def used_gpu_memory(device: torch.device) -> float | None:
    """Return the memory in use on a GPU in GiB, by all processes; None for other devices."""
    if device.type != "cuda":
        return None
    free, total = torch.cuda.mem_get_info(device)
    return (total - free) / 2**30


def throughput_metrics(
    trajectories: Sequence[Trajectory], updates: float, learning_seconds: float, memory: Sequence[float | None]
) -> dict[str, float]:
    """Return the tokens learned per second, if the step made `updates`, and the largest of its memory measurements."""
    metrics: dict[str, float] = {}
    if updates:
        metrics["learned_tokens_per_second"] = learned_tokens(trajectories) / max(learning_seconds, 1e-9)
    measured = [value for value in memory if value is not None]
    return metrics | ({"gpu_memory_gb": max(measured)} if measured else {})
