"""Descriptions of the papers' questions and of the training runs that answer them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from palestra.algorithms.registry import options_of

Row = dict[str, Any]  # result of a run in a data file

# Defaults of the first runs that have changed since: all runs that are compared have the same value.
EARLIER: dict[str, Any] = {"entropy_failed": 1.0, "kl_unsolved": 0.0}

# Settings for a small pretrained model, as in recipes/gpu/smollm2_guess_the_number.toml: it rarely writes a valid
# action and learns the format from a scripted player's episodes. The rates are those that models with at most 135M
# parameters have by default.
PRETRAINED: dict[str, Any] = {"warm_start": 512, "warm_lr": 5e-5, "lr": 5e-5}


# Imitation of the expert by a pretrained model: it plays half of the turns in three of the four rounds itself.
IMITATION: dict[str, Any] = {"warm_rounds": 4, "warm_batch": 32, "warm_lr": 4e-4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A training run: its place in the tables, its settings, and the evaluations of its model after training."""

    question: str
    task: str
    variant: str
    seed: int
    settings: Mapping[str, Any]  # settings for `palestra train`, without seed, folder and hardware
    evaluations: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # name -> flags for `palestra eval`
    start: Run | None = None  # run whose model is trained further
    start_step: int | None = None  # number of its checkpoint (0: after the warm start); None: its last model

    def __post_init__(self) -> None:
        options = options_of(self.settings.get("algorithm", "rebn"))
        earlier = {name: number for name, number in EARLIER.items() if name in options}
        object.__setattr__(self, "settings", {**earlier, **self.settings})

    @property
    def model(self) -> str:
        return str(self.start.model if self.start else self.settings["model"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question: the runs that answer it, given the results so far, and the text for the documentation."""

    plan: Callable[[Sequence[int], Mapping[str, Any], Sequence[Row]], list[Run]]  # seeds, model setting, results
    report: Callable[[Sequence[Row]], str]
    seeds: Sequence[int] = tuple(range(11, 19))


def model_settings(name: str | None) -> dict[str, Any]:
    """Return the settings for `--model`; without a name, each question has its own model."""
    if name is None:
        return {}
    return {"model": name} if is_untrained(name) else {"model": name, **PRETRAINED}


def with_model(settings: Mapping[str, Any], model: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` with those of `model_settings`; if the model imitates an expert, as many episodes as given."""
    merged = {**settings, **model}
    if merged.get("warm_player") == "expert" and not is_untrained(merged["model"]):
        merged |= {"warm_start": settings["warm_start"], **IMITATION}
    return merged


def is_untrained(model: str) -> bool:
    return model.startswith("default:")


def warm_start(settings: Mapping[str, Any], *, task: str, seed: int) -> Run:
    """Return a run that trains on a scripted player's episodes, and whose checkpoint 0 several variants can start from.

    It has one small step of RL, which is not used.
    """
    return Run(
        question="warm start",
        task=task,
        variant="warm start",
        seed=seed,
        settings={**settings, "steps": 1, "episodes": 16, "eval_episodes": 16},
    )


def from_warm_start(
    question: str,
    task: str,
    variant: str,
    seed: int,
    base: Mapping[str, Any],
    settings: Mapping[str, Any],
    evaluations: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> Run:
    """Return a run with `base` and `settings`; all runs with the same base and seed start from the same model."""
    return Run(
        question=question,
        task=task,
        variant=variant,
        seed=seed,
        settings={**base, **settings},
        evaluations=evaluations,
        start=warm_start(base, task=task, seed=seed),
        start_step=0,
    )
