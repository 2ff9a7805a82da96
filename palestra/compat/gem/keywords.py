"""Translate the keyword arguments of GEM's environments to Palestra's."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from palestra.envs.tasks.data import DataTask
from palestra.keywords import accepted_keywords

logger = logging.getLogger(__name__)

_DATA = {  # datasets: GEM's name -> Palestra's name
    "answer_key": "answer",
    "dataset_name": "dataset",
    "image_key": "images",
    "question_key": "question",
    "split": "data_split",
    "test_key": "tests",
}
_RENAMED: dict[str, dict[str, str]] = {  # by class name
    "WebShop": {
        "format_error_reward": "error_reward",
        "observation_mode": "mode",
        "show_attrs": "show_attributes",
        "split": "data_split",
    },
    "Sokoban": {"room_size": "dim_room"},
}
_reported: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments for building a Palestra environment."""

    kwargs: dict[str, Any]
    seed: int | None = None  # seed of the first episode
    extract_boxed: bool | None = None  # accept only boxed answers (True), only tagged answers (False), or both (None)


def translate(cls: type, given: dict[str, Any]) -> Arguments:
    """Return Palestra's arguments for `cls`; log one warning for each keyword argument that has no effect."""
    kwargs = dict(given)
    if not isinstance(kwargs.get("dataset"), str | None):
        kwargs.pop("dataset_name", None)  # the rows were passed, so the name is only a label
        kwargs.pop("split", None)
    names = _DATA if issubclass(cls, DataTask) else _RENAMED.get(cls.__name__, {})
    for theirs, ours in names.items():
        if theirs in kwargs:
            kwargs[ours] = kwargs.pop(theirs)
    seed = kwargs.pop("seed", None)
    extract_boxed: bool | None = None
    if issubclass(cls, DataTask):
        # GEM shuffles a dataset with the constructor's seed and then plays it row by row.
        kwargs.setdefault("shuffle_seed", 0 if seed is None else seed)
        seed = 0
        if kwargs.pop("eval", False):
            kwargs["shuffle"] = False
        extract_boxed = kwargs.pop("extract_boxed", None)
        is_code = cls.__name__ == "CodeProblems"
        penalty = kwargs.pop("use_format_error_reward", is_code)
        kwargs.setdefault("format_error_reward", -0.1 if penalty else 0.0)
        if cls.__name__ == "MathProblems":
            kwargs.setdefault("format_note", False)  # GEM's prompt is the bare question
    elif cls.__name__ == "ReasoningGym":
        kwargs["dataset_seed"] = 42 if seed is None else seed
        kwargs.setdefault("size", 500)
        kwargs.setdefault("format_note", False)
        kwargs.setdefault("format_error_reward", 0.0)
        seed = 0
    accepted = accepted_keywords(cls)
    if accepted is not None:
        for name in sorted(kwargs.keys() - accepted):
            kwargs.pop(name)
            _report(cls.__name__, name)
    return Arguments(kwargs, seed, extract_boxed)


def _report(name: str, keyword: str) -> None:
    if (name, keyword) not in _reported:
        _reported.add((name, keyword))
        logger.warning("the keyword argument %r has no effect in Palestra's %s", keyword, name)
