"""Save and load checkpoints: folders with a model in Hugging Face format and the trainer's state."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from palestra.errors import StoreFailed
from palestra.folders import damage, delete_written, recover_folder, replace_folder, write_manifest
from palestra.training.distributed import full_tensor, shard_like
from palestra.training.learner import Learner

STATE = "trainer.pt"


def save(learner: Learner, folder: Path, state: dict[str, Any], files: Sequence[Path] = ()) -> None:
    """Write a checkpoint to a temporary folder, then replace `folder` with it.

    One complete checkpoint therefore remains if the process is killed or the disk is full. `files` are copied to the
    checkpoint; with hard links, damage to one checkpoint would damage all of them.
    With several processes, all must call this function to gather the weights; only the main process writes.
    """
    everything = {
        **state,
        "optimizer": learner.optimizer.state_dict(),
        "critic": {name: full_tensor(p.detach()) for name, p in _critic_parameters(learner)},
        "adaptive": learner.adaptive.state_dict(),
    }
    write_model = learner.policy.writer()

    def write(part: Path) -> None:
        write_model(part)
        torch.save(everything, part / STATE)
        for file in files:
            shutil.copyfile(file, part / file.name)

    learner.distributed.on_main(lambda: _replace(folder, write))


def save_model(learner: Learner, folder: Path) -> None:
    """Write only the model, atomically like `save`."""
    write = learner.policy.writer()
    learner.distributed.on_main(lambda: _replace(folder, write))


def _replace(folder: Path, write: Callable[[Path], None]) -> None:
    """Call `write` with a temporary folder, then move that folder to `folder`, replacing any previous one."""
    part = _temporary(folder)
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        write(part)
        write_manifest(part)
        for file in part.rglob("*"):
            _sync(file)
        replace_folder(part, folder)
        _sync(folder.parent)
    except (
        OSError,
        RuntimeError,
        SafetensorError,
    ) as err:  # torch and safetensors raise these exceptions if the disk is full
        shutil.rmtree(part, ignore_errors=True)
        recover_folder(folder)
        raise StoreFailed(f"cannot write the checkpoint {folder}: {err}. The previous checkpoint is intact") from err


def saved_config(folder: Path) -> dict[str, Any]:
    """Return the settings of the run that wrote a checkpoint, one table per section."""
    state = torch.load(folder / STATE, map_location="cpu", weights_only=True, mmap=True)
    tables: dict[str, Any] = json.loads(state["config"])
    return tables


def load_state(learner: Learner, folder: Path) -> dict[str, Any]:
    """Restore the optimizer and the critic and return the remaining state. Model weights are loaded separately."""
    device = torch.device("cpu") if learner.config.optimizer.offload else learner.policy.device
    state: dict[str, Any] = torch.load(folder / STATE, map_location=device, weights_only=True)
    learner.optimizer.load_state_dict(state.pop("optimizer"))
    learner.adaptive.load_state_dict(state.pop("adaptive"))
    critic = state.pop("critic")
    with torch.no_grad():
        for name, p in _critic_parameters(learner):
            p.copy_(shard_like(critic[name], p))
    return state


def _critic_parameters(learner: Learner) -> list[tuple[str, nn.Parameter]]:
    """Return the trained parameters of the critic's head and of its separate network, by name."""
    policy = learner.policy
    parts = {"head": policy.critic, "body": policy.critic_body}
    return [
        (f"{part}.{name}", p)
        for part, module in parts.items()
        if module is not None
        for name, p in module.named_parameters()
        if p.requires_grad
    ]


def checkpoints(folder: Path) -> list[Path]:
    """Return a run's checkpoints, oldest first; the last ones may be damaged."""
    numbered = [path for path in (folder / "checkpoints").glob("step-*") if path.name[5:].isdigit()]
    return sorted(numbered, key=lambda path: int(path.name.removeprefix("step-")))


def newest_intact(folder: Path, log: Callable[[str], None]) -> Path | None:
    """Return a run's newest checkpoint whose files match its manifest, and log the damaged ones."""
    for path in reversed(checkpoints(folder)):
        problem = damage(path)
        if problem is None:
            return path
        log(f"the checkpoint {path} is damaged ({problem}); using an older one")
    return None


def prune(folder: Path, keep: int) -> None:
    """Delete all but the newest `keep` checkpoints."""
    for path in checkpoints(folder)[: -keep or None]:
        delete_written(path)


def _temporary(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.part")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
