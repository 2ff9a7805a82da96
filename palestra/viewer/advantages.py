"""Recompute the advantages of a training step from its stored rewards, where that is possible."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palestra.algorithms import ALGORITHMS, Episode
from palestra.algorithms.registry import configured
from palestra.errors import BadValue
from palestra.viewer.index import Index


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnAdvantages:
    """Advantages per turn, or the reason why there are none; `source` describes how they were computed."""

    advantages: list[float] | None
    source: str


def advantages(
    index: Index, config: Mapping[str, Any], run: str, file: str, n: int, step: int | None
) -> TurnAdvantages:
    """Return the advantages of one episode, computed as in training from the rewards of all episodes of its step."""
    algo = config.get("algo")
    if not isinstance(algo, str) or algo not in ALGORITHMS:
        source = f"{algo} learns without advantages" if algo else "nothing was trained on this episode"
        return TurnAdvantages(advantages=None, source=source)
    if step is None:
        return TurnAdvantages(advantages=None, source="the episode does not record the training step that used it")
    try:
        algorithm = configured(config)
    except (BadValue, KeyError, TypeError) as err:
        return TurnAdvantages(advantages=None, source=f"cannot read the settings of the run: {err}")
    if algorithm.needs_critic:
        return TurnAdvantages(advantages=None, source=f"{algo} used a critic, whose values are not stored")
    if algorithm.needs_reference:
        return TurnAdvantages(advantages=None, source="the KL penalty of the rewards is not stored")
    batch = index.batch(run, step)
    place = next((i for i, row in enumerate(batch) if row["file"] == file and row["n"] == n), None)
    if place is None:
        return TurnAdvantages(advantages=None, source="the episode was excluded from the loss")
    try:
        credit = algorithm.credit([_episode(row) for row in batch])
    except BadValue as err:
        return TurnAdvantages(advantages=None, source=str(err))
    source = f"recomputed with {algo} from the stored rewards of the {len(batch)} episodes of step {step}"
    return TurnAdvantages(advantages=credit.advantages[place], source=source)


def _episode(row: Mapping[str, Any]) -> Episode:
    return Episode(rewards=json.loads(row["rewards"]), group=row["grp"], env_id=row["env"], seed=int(row["seed"]))
