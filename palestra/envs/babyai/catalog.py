"""The registered BabyAI levels: AgentGym's forty, and the groups of AgentGym-RL. Data only."""

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
        extra="babyai",
    )


SPECS = [
    *(
        _spec(
            name,
            f"rooms and a mission: {' '.join(levels) if len(levels) == 1 else f'{len(levels)} levels'}",
            RANDOM[name],
        )
        for name, levels in GROUPS.items()
    ),
    *(_spec(name, f"rooms and a mission: the level {name}", RANDOM[name]) for name in LEVELS),
]
