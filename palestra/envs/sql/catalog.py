"""Specs of the SQL environments: five domains and random schemas with three levels each, a mix of domains, and BIRD."""

from __future__ import annotations

from typing import Any

from palestra.spec import EnvSpec


def _sql(name: str, summary: str, **kwargs: Any) -> EnvSpec:
    return EnvSpec(
        id=f"sql:{name}",
        entry_point="palestra.envs.sql.env:GeneratedSql",
        kwargs={**kwargs, "max_turns": 8},
        summary=summary,
        reward_range=(0.0, 1.0),
        expert_success=1.0,
        random_success=0.0,
        splits=("train", "test"),
    )


_DOMAINS = ("Shop", "Library", "School", "Flights", "Hospital")

SPECS = [
    *(_sql(f"{name}-v0", f"questions over a {name.lower()} database", domain=name.lower()) for name in _DOMAINS),
    *(
        _sql(
            f"{name}-v0-{level}", f"{level} questions over a {name.lower()} database", domain=name.lower(), level=level
        )
        for name in _DOMAINS
        for level in ("easy", "medium", "hard")
    ),
    _sql("Mixed-v0", "questions over databases of any domain"),
    _sql("Random-v0", "questions over a database with a randomly generated schema", domain="random"),
    *(
        _sql(f"Random-v0-{level}", f"{level} questions over randomly generated schemas", domain="random", level=level)
        for level in ("easy", "medium", "hard")
    ),
    EnvSpec(
        id="sql:BIRD",
        entry_point="palestra.envs.sql.bird:Bird",
        summary="BIRD's questions over its databases: questions=FILE, databases=FOLDER",
        reward_range=(0.0, 1.0),
        needs_data=True,
        splits=("train", "test"),
    ),
]
