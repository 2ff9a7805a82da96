"""Specs for the TextCraft environments: one per crafting depth, and one with goals of all depths."""

from __future__ import annotations

from palestra.spec import EnvSpec

_RANDOM = {1: 0.32, 2: 0.05, 3: 0.003, 4: 0.0}  # the random player's measured success rate by depth


def _spec(name: str, depth: int | None, summary: str, random: float) -> EnvSpec:
    return EnvSpec(
        id=f"textcraft:{name}-v0",
        entry_point="palestra.envs.textcraft.env:TextCraft",
        kwargs={"depth": 1, "max_turns": 8}
        if depth == 1
        else {"depth": depth},  # with 30 turns, random play often succeeds
        summary=summary,
        reward_range=(0.0, 1.0),
        expert_success=1.0,
        random_success=random,
        echo_success=0.0,
        constant_success=0.0,
        splits=("train", "test"),
        extra="textcraft",
    )


SPECS = [
    *(
        _spec(
            f"Depth{depth}",
            depth,
            f"craft a Minecraft item that takes {depth} level{'s' * (depth > 1)} of crafting",
            random,
        )
        for depth, random in _RANDOM.items()
    ),
    _spec("All", None, "craft Minecraft items that take one to four levels of crafting", 0.23),
]
