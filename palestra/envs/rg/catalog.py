"""Catalog of the `rg` family (data only): `rg:<name>` for each dataset, and `rg:<name>-l<level>` for each level."""

from __future__ import annotations

from palestra.envs.rg.levels import RATES, Rates
from palestra.spec import MAX_UNEARNED, EnvSpec

# Datasets whose answers are often the same, such as yes, no, or a small number.
_FEW_ANSWERS = frozenset(
    [
        "acre",
        "circuit_logic",
        "coin_flip",
        "course_schedule",
        "family_relationships",
        "game_of_life_halting",
        "gcd",
        "isomorphic_strings",
        "largest_island",
        "letter_counting",
        "mahjong_puzzle",
        "maze",
        "n_queens",
        "number_format",
        "ransom_note",
        "rotten_oranges",
        "self_reference",
        "shortest_path",
        "syllogism",
        "zebra_puzzles",
    ]
)
# Weak conclusions such as "P or Q" follow from most premises, and some sequences repeat a number.
_EASY = frozenset({"number_sequence", "propositional_logic"})


def _specs(name: str) -> list[EnvSpec]:
    words = name.replace("_", " ")
    specs = []
    for level, rates in enumerate(RATES[name], start=-1):
        if rates is None:
            continue
        specs.append(
            EnvSpec(
                id=f"rg:{name}" if level < 0 else f"rg:{name}-l{level}",
                entry_point="palestra.envs.rg.dataset:ReasoningGym",
                kwargs={"name": name} if level < 0 else {"name": name, "level": level},
                summary=f"reasoning-gym: {words}" if level < 0 else f"reasoning-gym: {words}, level {level}",
                reward_range=(-0.1, 1.0),
                expert_success=rates.expert,
                random_success=rates.random,
                echo_success=rates.echo,
                constant_success=rates.constant,
                rates_reason=_reason(name, rates),
                splits=("train", "test"),
                extra="rg",
            )
        )
    return specs


def _reason(name: str, rates: Rates) -> str:
    if max(rates.random, rates.echo or 0.0, rates.constant or 0.0) <= MAX_UNEARNED:
        return ""
    return "easy_by_design" if name in _EASY else "few_answers" if name in _FEW_ANSWERS else ""


SPECS = [spec for name in RATES for spec in _specs(name)]
