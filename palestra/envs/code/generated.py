"""Programs made up on the spot: ids of the generators. The random player's are wrong by construction. Data only."""

from __future__ import annotations

from palestra.spec import EnvSpec

_GENERATORS = {
    "Puzzles": ("puzzles:Puzzles", "write a function from its description; hidden tests judge it"),
    "Repair": ("repair:Repair", "find the bugs in a program; hidden tests judge it"),
}

GENERATED = [
    EnvSpec(
        id=f"code:{name}-v0-{level}",
        entry_point=f"palestra.envs.code.{entry}",
        kwargs={"level": level},
        summary=summary,
        reward_range=(-0.1, 1.0),
        expert_success=1.0,
        random_success=0.0,
    )
    for name, (entry, summary) in _GENERATORS.items()
    for level in ("easy", "hard", "random")
]
