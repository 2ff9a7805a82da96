"""Compare the settings of a resumed run with those of its checkpoint. Does not import torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palestra.algorithms.registry import options_of

# Settings that may change when a run is resumed: its length, what is stored, and where environments run.
CHANGEABLE = {
    ("run", "steps"),
    ("run", "out"),
    ("run", "keep"),
    ("run", "store"),
    ("run", "tensorboard"),
    ("run", "wandb"),
    ("run", "mlflow"),
    ("eval", "target"),
    ("eval", "rollback"),
    ("warm_start", "evaluate"),  # has no effect on a run with a checkpoint
    ("env", "backend"),
    ("env", "workers"),
    ("env", "step_timeout"),
    ("env", "reset_timeout"),
    ("sampling", "rollout_workers"),
    ("sampling", "engine_url"),
    ("sampling", "engine_gpus"),
    ("sampling", "engine_servers"),
    ("sampling", "engine_kwargs"),
    ("ray", "enabled"),
    ("ray", "learners"),
    ("ray", "learner_cpus"),
    ("ray", "server_gpus"),
    ("ray", "server_cpus"),
}

# Settings that older runs do not have, and the value with which they were made.
ADDED: Mapping[tuple[str, str], Any] = {
    ("algorithm", "entropy_failed"): 1.0,
    ("algorithm", "kl_unsolved"): 0.0,
    ("warm_start", "observation_weight"): 1.0,
    ("warm_start", "evaluate"): False,
    ("warm_start", "ignore_small_gradients"): False,
    ("warm_start", "rounds"): 1,
    ("warm_start", "own_actions"): 0.5,
}


def with_added(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's settings, one table per section, with those that did not exist when it was made."""
    tables = {section: dict(table) for section, table in saved.items()}
    for (section, key), value in ADDED.items():
        if section in tables and (section != "algorithm" or key in options_of(tables[section]["name"])):
            tables[section].setdefault(key, value)
    return tables


def changed_settings(saved: Mapping[str, Any], tables: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the section and key of every changed setting that must not change when a run is resumed."""
    keys = {(section, key) for section, table in tables.items() for key in {**table, **saved.get(section, {})}}
    return sorted(
        (section, key)
        for section, key in keys - CHANGEABLE
        if saved.get(section, {}).get(key) != tables[section].get(key)
    )
