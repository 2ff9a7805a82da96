"""Checkpoints: a folder each, in Hugging Face format plus the trainer's state; whole, or not there at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from palestra.errors import StoreFailed
from palestra.training.distributed import cut_like, whole
from palestra.training.learner import Learner

STATE = "trainer.pt"


def save(learner: Learner, folder: Path, state: dict[str, Any]) -> None:
    """Write `folder` beside its old self, then swap: a kill at any moment, or a full disk, leaves one whole checkpoint.

    Where there are several processes all must call, for the weights are put together; the first one writes.
    """
    critic = learner.policy.critic
    everything = {
        **state,
        "optimiser": learner.optimiser.state_dict(),
        "critic": None if critic is None else {name: whole(p.detach()) for name, p in critic.named_parameters()},
    }
    write_model = learner.policy.writer()

    def write(part: Path) -> None:
        write_model(part)
        torch.save(everything, part / STATE)

    learner.world.once(lambda: _swap(folder, write))


def save_model(learner: Learner, folder: Path) -> None:
    """The model alone, for every command that takes one; else as `save`."""
    write = learner.policy.writer()
    learner.world.once(lambda: _swap(folder, write))


def _swap(folder: Path, write: Callable[[Path], None]) -> None:
    """Have `write` fill a folder beside `folder`, and put it in its place."""
    part, old = _aside(folder, "part"), _aside(folder, "old")
    mend(folder)
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        write(part)
        for file in part.rglob("*"):
            _synced(file)
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
        _synced(folder.parent)
        shutil.rmtree(old, ignore_errors=True)
    except (OSError, RuntimeError, SafetensorError) as err:  # torch and safetensors say a full disk in their own words
        shutil.rmtree(part, ignore_errors=True)
        mend(folder)
        raise StoreFailed(f"the checkpoint {folder} could not be written: {err}. The one before it is whole") from err


def mend(folder: Path) -> None:
    """Undo what a kill in the middle of a swap left: the old folder is aside, the new one not yet in its place."""
    old = _aside(folder, "old")
    if not old.exists():
        return
    if folder.exists():
        shutil.rmtree(old, ignore_errors=True)
    else:
        old.rename(folder)


def load_state(learner: Learner, folder: Path) -> dict[str, Any]:
    """Optimiser and critic as they were; the rest of the state is returned. The weights were loaded with the model."""
    state: dict[str, Any] = torch.load(folder / STATE, map_location=learner.policy.device, weights_only=True)
    learner.optimiser.load_state_dict(state.pop("optimiser"))
    critic = state.pop("critic")
    if critic is not None and learner.policy.critic is not None:
        with torch.no_grad():
            for name, p in learner.policy.critic.named_parameters():
                p.copy_(cut_like(critic[name], p))
    return state


def checkpoints(folder: Path) -> list[Path]:
    """Those of a run that are whole, oldest first."""
    found = [path for path in (folder / "checkpoints").glob("step-*") if (path / STATE).exists()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))


def prune(folder: Path, keep: int) -> None:
    """Leave the newest `keep`; the best model has a folder of its own."""
    for path in checkpoints(folder)[: -keep or None]:
        shutil.rmtree(path, ignore_errors=True)


def _aside(folder: Path, kind: str) -> Path:
    return folder.with_name(f".{folder.name}.{kind}")


def _synced(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
