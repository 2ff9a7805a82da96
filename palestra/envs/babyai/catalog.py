"""Specs of the BabyAI environments: AgentGym's forty levels and AgentGym-RL's groups of these levels."""

from __future__ import annotations

from palestra.envs.babyai.levels import GROUPS, LEVELS, RANDOM
from palestra.spec import EnvSpec


def _spec(name: str, summary: str, random: float) -> EnvSpec:
    return EnvSpec(
        id=f"babyai:{name}-v0",
        entry_point="palestra.envs.babyai.env:BabyAI",
        kwargs={"level": name},
        summary=summary,
        reward_range=(0.0, 1.0),
        expert_success=1.0,
        random_success=random,
        splits=("train", "test"),
        extra="babyai",
    )


SPECS = [
    *(
        _spec(
            name,
            f"follow an instruction in rooms: {' '.join(levels) if len(levels) == 1 else f'{len(levels)} levels'}",
            RANDOM[name],
        )
        for name, levels in GROUPS.items()
    ),
    *(_spec(name, f"follow an instruction in rooms: level {name}", RANDOM[name]) for name in LEVELS),
]
