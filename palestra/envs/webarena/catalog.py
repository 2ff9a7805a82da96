"""Specs for WebArena's tasks: `webarena:All-v0`, `webarena:Verified-v0`, and `webarena:<n>` for one task."""

from __future__ import annotations

from dataclasses import replace

from palestra.spec import EnvId, EnvSpec

TASKS = 812  # in both sets


def _spec(name: str, summary: str, dataset: str) -> EnvSpec:
    return EnvSpec(
        id=f"webarena:{name}",
        entry_point="palestra.envs.webarena.env:WebArena",
        kwargs={"dataset": dataset},
        summary=summary,
        reward_range=(0.0, 1.0),
        needs_data=True,
    )


SPECS = [
    _spec("All-v0", "WebArena's 812 tasks, on the sites that you run", "original"),
    _spec("Verified-v0", "the 812 revised tasks of WebArena Verified, on the sites that you run", "verified"),
]


def resolve(env_id: str) -> EnvSpec | None:
    """Return the spec of one task, such as `webarena:12`."""
    name = EnvId.parse(env_id).name
    if env_id != f"webarena:{name}" or not name.isdecimal() or int(name) >= TASKS:
        return None
    return replace(SPECS[0], id=env_id, kwargs={"dataset": "original", "task": int(name)}, seeded=False)
