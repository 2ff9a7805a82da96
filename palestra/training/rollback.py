"""Restore earlier weights of a run if its success rate on held-out tasks falls clearly below the best one.

Among evaluations of equally good weights, the best one is rarely the newest. So the weights that are kept are those of
the newest evaluation that is not clearly below the best one. They are written to a file after every such evaluation.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from palestra.errors import StoreFailed
from palestra.training.learner import Learner

FILE = "best.pt"  # trainable weights of the model at the newest evaluation that is about as good as the best one
ABOUT_AS_GOOD = 1.0  # largest difference from the best evaluation, in standard errors


class Rollback:
    """Keeps the weights of an evaluation in a file, which is part of every checkpoint.

    With several processes, all must call its methods with the same arguments.
    """

    def __init__(self, learner: Learner, folder: Path, *, errors: float) -> None:
        self._learner = learner
        self.path = folder / FILE
        self._errors = errors  # number of standard errors; 0: never restore weights
        self.best = -1.0  # success rate of the best evaluation
        self.success = -1.0  # success rate of the evaluation whose weights are kept
        self.step = 0  # number of steps before that evaluation

    def observe(self, success: float, episodes: int, step: int) -> str | None:
        """Save the current weights if their evaluation is about as good as the best one, or restore the saved ones.

        If the weights were restored, with a new optimizer state and half the learning rate, returns a warning.
        """
        if not self._errors:
            return None
        if self.best < 0 or not fell(self.best, success, episodes, min(ABOUT_AS_GOOD, self._errors)):
            self.best = max(self.best, success)
            self.success, self.step = success, step
            self._save()
            return None
        if not fell(self.best, success, episodes, self._errors):
            return None
        self._learner.optimizer.restore(torch.load(self.path, map_location="cpu", weights_only=True))
        self._learner.reshard()
        self._learner.adaptive.lower_rate()
        return (
            f"warning: success on held-out tasks fell to {success:.1%} after step {step}, by more than "
            f"{self._errors:g} standard errors below the best evaluation ({self.best:.1%}). Restored the weights after "
            f"step {self.step} ({self.success:.1%}) and halved the learning rate; --rollback 0 disables this"
        )

    @property
    def files(self) -> list[Path]:
        """Files to include in a checkpoint."""
        return [self.path] if self.success >= 0 else []

    def state(self) -> dict[str, Any]:
        return {"rollback": {"best": self.best, "success": self.success, "step": self.step}}

    def load(self, state: Mapping[str, Any], checkpoint: Path) -> None:
        """Restore the state and the weights that were saved in a checkpoint."""
        saved = state["rollback"]
        self.success, self.step = saved["success"], saved["step"]
        self.best = saved.get("best", self.success)  # older checkpoints contain the best weights
        self._learner.distributed.on_main(lambda: self._replace(checkpoint / FILE))

    def _save(self) -> None:
        weights = self._learner.optimizer.snapshot()
        part = self.path.with_name(f".{FILE}.part")

        def write() -> None:
            try:
                torch.save(weights, part)
                part.replace(self.path)
            except (OSError, RuntimeError) as err:  # torch raises RuntimeError if the disk is full
                part.unlink(missing_ok=True)
                raise StoreFailed(f"cannot write {self.path}: {err}") from err

        self._learner.distributed.on_main(write)

    def _replace(self, saved: Path) -> None:
        self.path.unlink(missing_ok=True)
        if saved.exists():
            shutil.copyfile(saved, self.path)


def fell(best: float, success: float, episodes: int, errors: float) -> bool:
    """Return whether `success` is below `best` by more than `errors` standard errors of their difference.

    Both are fractions of `episodes`. One success and one failure are added to each, so that a rate of 0 or 1 also has a
    standard error.
    """
    rates = [(rate * episodes + 1) / (episodes + 2) for rate in (best, success)]
    variance = sum(rate * (1 - rate) / (episodes + 2) for rate in rates)
    return best - success > errors * math.sqrt(variance)
