"""Create the specs for tasks that use datasets."""

from __future__ import annotations

from typing import Any

from palestra.spec import EnvSpec


def data_spec(entry_point: str, env_id: str, summary: str, **kwargs: Any) -> EnvSpec:
    """Return the spec for a task that uses a dataset.

    Catalogs set `entry_point` and the column names in `kwargs` with `functools.partial`.
    """
    return EnvSpec(
        id=env_id,
        entry_point=entry_point,
        kwargs=kwargs,
        summary=summary,
        reward_range=(-0.1, 1.0),
        extra="data",
        needs_data=True,
        splits=("train", "test") if "dataset" in kwargs and "data_split" not in kwargs else (),
    )
