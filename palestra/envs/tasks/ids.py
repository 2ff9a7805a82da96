"""Create the specs of tasks over data sets."""

from __future__ import annotations

from typing import Any

from palestra.spec import EnvSpec


def data_spec(entry_point: str, env_id: str, summary: str, **kwargs: Any) -> EnvSpec:
    """Return the spec of a task over a data set; catalogs pass the class and its columns with `functools.partial`."""
    return EnvSpec(
        id=env_id,
        entry_point=entry_point,
        kwargs=kwargs,
        summary=summary,
        reward_range=(-0.1, 1.0),
        extra="data",
        needs_data=True,
    )
