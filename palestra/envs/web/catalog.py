"""Specs for the web environments."""

from __future__ import annotations

from typing import Any

from palestra.spec import EnvSpec


def _suite(name: str, summary: str, random: float, echo: float, constant: float, **kwargs: Any) -> EnvSpec:
    return EnvSpec(
        id=f"web:{name}",
        entry_point="palestra.envs.web.suite.env:WebSuite",
        kwargs=kwargs,
        summary=summary,
        reward_range=(0.0, 1.0),
        expert_success=1.0,
        random_success=random,
        echo_success=echo,
        constant_success=constant,
        splits=("train", "test"),
    )


SPECS = [
    EnvSpec(
        id="web:File-v0",
        entry_point="palestra.envs.web.file:WebFile",
        summary="your own site or application in a browser, with tasks in a JSON file",
        reward_range=(0.0, 1.0),
        needs_data=True,
    ),
    _suite("Encyclopedia-v0", "read and edit an encyclopedia in a browser", 0.02, 0.0, 0.03, sites="encyclopedia"),
    _suite("Map-v0", "find places and routes on a map in a browser", 0.02, 0.0, 0.09, sites="map"),
    _suite("Shop-v0", "buy in a shop, and manage it on its dashboard, in a browser", 0.02, 0.0, 0.05, sites="shop"),
    _suite("Mixed-v0", "tasks on all sites, and across them, in a browser", 0.03, 0.0, 0.06),
    _suite("Mixed-v0-easy", "tasks on all sites in a browser, level 1", 0.0, 0.0, 0.0, level=1),
    _suite("Mixed-v0-medium", "tasks on all sites in a browser, level 2", 0.07, 0.0, 0.15, level=2),
    _suite("Mixed-v0-hard", "tasks on all sites and across them, level 3", 0.0, 0.0, 0.0, level=3),
    _suite(
        "Forge-v0",
        "tickets, wiki, forum and code of a project on a forge (needs fossil)",
        0.03,
        0.0,
        0.08,
        sites="forge",
    ),
    _suite("Forge-v0-easy", "a project on a forge, level 1", 0.0, 0.0, 0.0, sites="forge", level=1),
    _suite("Forge-v0-medium", "a project on a forge, level 2", 0.07, 0.0, 0.16, sites="forge", level=2),
    _suite("Forge-v0-hard", "a project on a forge, level 3", 0.0, 0.0, 0.0, sites="forge", level=3),
    _suite("Store-v0", "buy in a store, and manage it (needs django-oscar)", 0.03, 0.0, 0.05, sites="store"),
    _suite("Store-v0-easy", "a store and its dashboard, level 1", 0.0, 0.0, 0.0, sites="store", level=1),
    _suite("Store-v0-medium", "a store and its dashboard, level 2", 0.06, 0.0, 0.12, sites="store", level=2),
    _suite("Store-v0-hard", "a store and its dashboard, level 3", 0.0, 0.0, 0.0, sites="store", level=3),
]
