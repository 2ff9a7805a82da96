"""What the ids of data-backed tasks state alike -> an EnvSpec each. Data only."""

from __future__ import annotations

from typing import Any

from palestra.spec import EnvSpec


def data_set(entry_point: str, env_id: str, summary: str, **kwargs: Any) -> EnvSpec:
    """An id that asks about the rows of a data set; a family names its class and its columns once, with `partial`."""
    return EnvSpec(
        id=env_id,
        entry_point=entry_point,
        kwargs=kwargs,
        summary=summary,
        reward_range=(-0.1, 1.0),
        extra="data",
        needs_data=True,
    )
