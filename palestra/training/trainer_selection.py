"""Choose the trainer for a config and run it in this process. torch is imported when training starts."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from palestra.errors import UsageError
from palestra.training.config import TrainConfig
from palestra.training.reporting.run_folder import delete_run, last_checkpoint
from palestra.training.run import TrainingRun

if TYPE_CHECKING:
    from palestra.training.trainer import Trainer


async def run_trainer(config: TrainConfig, **options: Any) -> TrainingRun:
    """Train in this process with the trainer for the config's algorithm."""
    is_new = not config.folder.exists()
    try:
        return await trainer_class(config)(config, **options).run()
    except UsageError:
        if is_new and os.environ.get("RANK", "0") == "0" and last_checkpoint(config.folder) is None:
            delete_run(config.folder)  # the run never started, because of a wrong setting
            with suppress(OSError):
                config.folder.rmdir()
        raise


def trainer_class(config: TrainConfig) -> type[Trainer]:
    """Return the trainer class for the config's algorithm."""
    kind = config.algorithm.trainer
    if kind == "online":
        if config.sampling.asynchronous:
            from palestra.training.async_trainer import AsyncTrainer

            return AsyncTrainer
        from palestra.training.sync_trainer import SyncTrainer

        return SyncTrainer
    if kind == "evolution":
        from palestra.training.evolve import EvolutionTrainer

        return EvolutionTrainer
    from palestra.training.offline import CloningTrainer, PreferenceTrainer

    return CloningTrainer if kind == "cloning" else PreferenceTrainer
