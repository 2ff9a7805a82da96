"""Recompute the advantages in a training step from its stored rewards, if possible."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palestra.algorithms import Episode, PolicyGradient, algorithm_names, get_algorithm, make_algorithm
from palestra.errors import BadValue
from palestra.viewer.index import Index


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAdvantages:
    """Advantages per turn, or the reason why they are unavailable; `source` describes how they were computed."""

    advantages: list[float] | None
    source: str


def advantages(
    index: Index, config: Mapping[str, Any], run: str, file: str, n: int, step: int | None
) -> TurnAdvantages:
    """Recompute one episode's advantages from the rewards of all episodes in its step, as in training."""
    table = config.get("algorithm")
    name = table.get("name") if isinstance(table, Mapping) else None
    if not isinstance(table, Mapping) or not isinstance(name, str):
        return _unknown("the episode was not used for training")
    if name not in algorithm_names() or not issubclass(get_algorithm(name), PolicyGradient):
        return _unknown(f"{name} does not use advantages")
    if step is None:
        return _unknown("the episode does not record the training step that used it")
    try:
        algorithm = make_algorithm(name, **{key: value for key, value in table.items() if key != "name"})
    except (BadValue, TypeError) as err:
        return _unknown(f"cannot read the run's settings: {err}")
    assert isinstance(algorithm, PolicyGradient)  # noqa: S101  # narrows the type
    if algorithm.needs_critic:
        return _unknown(f"{name} used a critic, whose values are not stored")
    if algorithm.config.kl_in_reward:
        return _unknown("the KL penalty in the rewards is not stored")
    if algorithm.config.reward_hook or algorithm.config.advantage_hook:
        return _unknown("a hook changed the rewards or advantages, and its results are not stored")
    batch = index.batch(run, step)
    place = next((i for i, row in enumerate(batch) if row["file"] == file and row["n"] == n), None)
    if place is None:
        return _unknown("the episode was excluded from the loss")
    try:
        rows = algorithm.advantages([_episode(row) for row in batch]).advantages
    except BadValue as err:
        return _unknown(str(err))
    source = f"recomputed with {name} from the stored rewards of the {len(batch)} episodes of step {step}"
    return TurnAdvantages(advantages=rows[place], source=source)


def _unknown(reason: str) -> TurnAdvantages:
    return TurnAdvantages(advantages=None, source=reason)


def _episode(row: Mapping[str, Any]) -> Episode:
    return Episode(rewards=json.loads(row["rewards"]), group=row["grp"], env_id=row["env"], seed=int(row["seed"]))
