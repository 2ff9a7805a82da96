"""Report why episodes failed, and explain errors that end a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from palestra import errors
from palestra.errors import BadValue, EngineFailed, OutOfMemory, PalestraError, UsageError
from palestra.rollout import RolloutResult, Trajectory

MAX_CHARS = 500  # maximum length of an error message in a warning
_CPU_MEMORY = re.compile(r"DefaultCPUAllocator: ([^\n]*)")  # torch has no class for this error
_GPU_MEMORY = re.compile(r"(Tried to allocate .+?)\. GPU \d+ (has .+? is free)")  # the rest lists other processes


@contextmanager
def explained_memory_errors() -> Iterator[None]:
    """Replace torch's error for too little memory with one that names the settings that need less."""
    try:
        yield
    except RuntimeError as err:
        on_cpu = _CPU_MEMORY.search(str(err))
        if not on_cpu and not isinstance(err, torch.OutOfMemoryError):
            raise
        on_gpu = _GPU_MEMORY.search(str(err))
        cause = on_cpu[1].strip() if on_cpu else f"{on_gpu[1]}; the GPU {on_gpu[2]}" if on_gpu else str(err)
        raise OutOfMemory(
            f"not enough memory: {cause[:MAX_CHARS].rstrip('.')}. Lower --token-budget (tokens per micro-batch; the "
            "result is the same) or --kv-cache-gb (memory for sampling), or add --gradient-checkpointing on, "
            "--lora-rank 16 or --offload-optimizer. If the run has a checkpoint, it is intact. "
            "`palestra train --dry-run` estimates the memory"
        ) from err


def check_finished(result: RolloutResult, player: str, *, hint: str = "") -> None:
    """Raise an error with the most frequent cause of failure if no episode finished or the rollout stopped early.

    `player` names the player. `hint` is appended unless the cause is a usage error, whose message explains the fix.
    """
    if result.trajectories and result.stopped is None:
        return
    causes = Counter((t.failure.kind, t.failure.message) for t in result.failures if t.failure is not None)
    if not causes:
        raise EngineFailed(f"{player} finished no episode: {result.stopped or 'none was started'}")
    (kind, message), _ = causes.most_common(1)[0]
    usage = issubclass(getattr(errors, kind, PalestraError), UsageError)
    stopped = f"{player} finished {len(result.trajectories) or 'no'} episodes, {len(result.failures)} failed"
    raise (BadValue if usage else EngineFailed)(f"{stopped} ({kind}): {message}{'' if usage or not hint else hint}")


class CauseLog:
    """Describe the failed episodes of a run, once for each environment and kind of error."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    def new(self, failures: Sequence[Trajectory]) -> list[str]:
        """Return a warning with an example for every environment and kind of error that no earlier warning named."""
        warnings = []
        for trajectory in failures:
            failure, env_id = trajectory.failure, trajectory.env_id
            if failure is None or (env_id, failure.kind) in self._seen:
                continue
            self._seen.add((env_id, failure.kind))
            message = failure.message.strip()[:MAX_CHARS].rstrip(".")
            warnings.append(
                f"warning: an episode in {env_id} with seed {trajectory.seed} failed and is left out "
                f"({failure.kind}): {message}. Later failures of this kind are counted, but not described"
            )
        return warnings
