"""Specs of the TextCraft environments, one per crafting depth."""

from __future__ import annotations

from palestra.spec import EnvSpec

_RANDOM = {1: 0.74, 2: 0.05, 3: 0.003, 4: 0.0}  # measured success rate of the random player by depth

SPECS = [
    EnvSpec(
        id=f"textcraft:Depth{depth}-v0",
        entry_point="palestra.envs.textcraft.env:TextCraft",
        kwargs={"depth": depth},
        summary=f"craft a Minecraft item that takes {depth} level{'s' * (depth > 1)} of crafting",
        reward_range=(0.0, 1.0),
        expert_success=1.0,
        random_success=random,
        splits=("train", "test"),
        extra="textcraft",
    )
    for depth, random in _RANDOM.items()
]
