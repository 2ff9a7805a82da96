"""Catalog of the family `rg` (data only): `rg:<name>` for each data set, and `rg:<name>-l<level>` for each level."""

from __future__ import annotations

from palestra.envs.rg.levels import RATES
from palestra.spec import EnvSpec


def _specs(name: str) -> list[EnvSpec]:
    words = name.replace("_", " ")
    specs = []
    for level, rates in enumerate(RATES[name], start=-1):
        if rates is None:
            continue
        expert, random = rates
        specs.append(
            EnvSpec(
                id=f"rg:{name}" if level < 0 else f"rg:{name}-l{level}",
                entry_point="palestra.envs.rg.dataset:ReasoningGym",
                kwargs={"name": name} if level < 0 else {"name": name, "level": level},
                summary=f"reasoning-gym: {words}" if level < 0 else f"reasoning-gym: {words}, level {level}",
                reward_range=(-0.1, 1.0),
                expert_success=expert,
                random_success=random,
                splits=("train", "test"),
                extra="rg",
            )
        )
    return specs


SPECS = [spec for name in RATES for spec in _specs(name)]
