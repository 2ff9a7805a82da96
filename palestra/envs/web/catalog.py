"""Specs for the web environments."""

from __future__ import annotations

from palestra.spec import EnvSpec

SPECS = [
    EnvSpec(
        id="web:File-v0",
        entry_point="palestra.envs.web.file:WebFile",
        summary="your own site or application in a browser, with tasks in a JSON file",
        reward_range=(0.0, 1.0),
        needs_data=True,
    ),
]
