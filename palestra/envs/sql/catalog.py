"""Specs for the SQL environments: five domains and random schemas with three levels each, mixed domains, and BIRD."""

from __future__ import annotations

from typing import Any

from palestra.spec import EnvSpec

# The constant player's success rate, which is the share of the most frequent question; the echo player solves none.
_CONSTANT = {
    "Shop-v0": 0.11,
    "Library-v0": 0.07,
    "School-v0": 0.11,
    "Flights-v0": 0.08,
    "Hospital-v0": 0.12,
    "Shop-v0-easy": 0.26,
    "Shop-v0-medium": 0.09,
    "Shop-v0-hard": 0.14,
    "Library-v0-easy": 0.22,
    "Library-v0-medium": 0.21,
    "Library-v0-hard": 0.14,
    "School-v0-easy": 0.26,
    "School-v0-medium": 0.31,
    "School-v0-hard": 0.13,
    "Flights-v0-easy": 0.25,
    "Flights-v0-medium": 0.05,
    "Flights-v0-hard": 0.31,
    "Hospital-v0-easy": 0.33,
    "Hospital-v0-medium": 0.32,
    "Hospital-v0-hard": 0.27,
    "Mixed-v0": 0.03,
    "Random-v0": 0.0,
    "Random-v0-easy": 0.0,
    "Random-v0-medium": 0.0,
    "Random-v0-hard": 0.0,
}


def _sql(name: str, summary: str, **kwargs: Any) -> EnvSpec:
    return EnvSpec(
        id=f"sql:{name}",
        entry_point="palestra.envs.sql.env:GeneratedSql",
        kwargs={**kwargs, "max_turns": 8},
        summary=summary,
        reward_range=(0.0, 1.0),
        expert_success=1.0,
        random_success=0.0,
        echo_success=0.0,
        constant_success=_CONSTANT[name],
        splits=("train", "test"),
    )


_DOMAINS = ("Shop", "Library", "School", "Flights", "Hospital")

SPECS = [
    *(_sql(f"{name}-v0", f"questions about a {name.lower()} database", domain=name.lower()) for name in _DOMAINS),
    *(
        _sql(
            f"{name}-v0-{level}", f"{level} questions about a {name.lower()} database", domain=name.lower(), level=level
        )
        for name in _DOMAINS
        for level in ("easy", "medium", "hard")
    ),
    _sql("Mixed-v0", "questions about databases in any domain"),
    _sql("Random-v0", "questions about a database with a randomly generated schema", domain="random"),
    *(
        _sql(f"Random-v0-{level}", f"{level} questions about randomly generated schemas", domain="random", level=level)
        for level in ("easy", "medium", "hard")
    ),
    EnvSpec(
        id="sql:BIRD",
        entry_point="palestra.envs.sql.bird:Bird",
        summary="questions about BIRD's databases; requires questions=FILE and databases=FOLDER",
        reward_range=(0.0, 1.0),
        needs_data=True,
        splits=("train", "test"),
    ),
]
