"""Train agents: the `train` function, its configuration, the trainers and their reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palestra.training.api import train
    from palestra.training.config import TrainConfig
    from palestra.training.recipe import from_mapping, read_recipe
    from palestra.training.run import TrainingRun

__all__ = ["TrainConfig", "TrainingRun", "from_mapping", "read_recipe", "train"]

_MODULES = {
    "TrainConfig": "config",
    "TrainingRun": "run",
    "from_mapping": "recipe",
    "read_recipe": "recipe",
    "train": "api",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
