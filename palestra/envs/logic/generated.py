"""Logic made up on the spot: ids of the generator. A guess is right once in two or three. Data only."""

from __future__ import annotations

from palestra.spec import EnvSpec

GENERATED = [
    EnvSpec(
        id=f"logic:Rules-v0-d{depth}{'' if world == 'closed' else '-open'}",
        entry_point="palestra.envs.logic.rules:Rules",
        kwargs={"depth": depth, "world": world},
        summary=f"does it follow from the facts and rules, {depth} steps "
        f"deep{', or is it unknown' if chance < 0.5 else ''}",
        reward_range=(-0.1, 1.0),
        expert_success=1.0,
        random_success=chance,
    )
    for world, chance in (("closed", 0.5), ("open", 0.333))
    for depth in (0, 1, 2, 3, 5)
]
