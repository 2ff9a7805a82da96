"""Choose the number of processes that play a run's episodes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from palestra.agents.base import Agent
from palestra.engines.base import Engine
from palestra.errors import PalestraError
from palestra.machine import usable_cores
from palestra.registry import EnvFactory
from palestra.rollout.worker_pool import RolloutWorkers, dump_agent
from palestra.training.config import TrainConfig
from palestra.workers.wire import dump_factories

EPISODES_PER_WORKER = 64  # concurrent episodes that keep a process busy
MAX_WORKERS = 12  # the engine's process cannot keep more workers busy
ENGINE_CORES = 2  # cores for the engine's thread and the event loop


@asynccontextmanager
async def rollout_workers(
    config: TrainConfig, agent: Callable[[], Agent], engine: Engine, log: Callable[[str], None]
) -> AsyncIterator[RolloutWorkers | None]:
    """Start the processes for a run's episodes; yield None if this process plays them."""
    count = config.sampling.rollout_workers
    if count is None:
        count = _default_count(config, agent, engine)
        if count:
            log(f"{count} processes play the episodes (--rollout-workers)")
    if count:
        async with RolloutWorkers(engine, workers=count) as pool:
            yield pool
    else:
        yield None


def _default_count(config: TrainConfig, agent: Callable[[], Agent], engine: Any) -> int:
    """Return the default number of processes; 0 plays episodes in this process.

    Processes are used on a GPU, where agents and environments take longer than the model. Environments that wait for
    tools, sandboxes or servers stay in this process, because each copy may use much memory.
    """
    if getattr(engine, "runner", "") != "paged" or config.env.backend != "inline" or config.env.tools:
        return 0
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # set by torchrun
    count = min(
        usable_cores() // processes - ENGINE_CORES, config.sampling.concurrency // EPISODES_PER_WORKER, MAX_WORKERS
    )
    return count if count >= 2 and _can_be_sent(config, agent(), engine) else 0


def _can_be_sent(config: TrainConfig, agent: Agent, engine: Engine) -> bool:
    """Return whether the agent and all environments can be pickled, and all environments reply immediately."""
    settings = [(name, config.env.kwargs) for name in config.env.weights]
    settings += [(name, config.eval_kwargs) for name in config.eval_envs]
    try:
        dump_agent(agent, engine)
        for name, kwargs in settings:
            factory = EnvFactory.of(name, kwargs=kwargs, wrappers=config.env.all_wrappers)
            dump_factories([factory])
            env = factory()
            env.close()
            if not env.inline:
                return False
    except (PalestraError, OSError):
        return False
    return True
