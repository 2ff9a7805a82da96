"""A name and options -> an algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from palestra.algorithms.base import Algorithm
from palestra.algorithms.grpo import GRPO
from palestra.algorithms.ppo import PPO, TokenPPO
from palestra.algorithms.reinforce import ReBN, Reinforce
from palestra.algorithms.reinforce_pp import ReinforcePP
from palestra.algorithms.rloo import RLOO
from palestra.errors import BadValue

ALGORITHMS: dict[str, type[Algorithm]] = {
    kind.name: kind for kind in (Reinforce, ReBN, GRPO, RLOO, ReinforcePP, PPO, TokenPPO)
}  # add your own under its name


def make_algorithm(name: str, **options: Any) -> Algorithm:
    """The algorithm `name`; `options` are its fields."""
    if name not in ALGORITHMS:
        near = get_close_matches(name.lower().replace("-", "_").replace("++", "_pp"), ALGORITHMS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise BadValue(f"no algorithm {name!r}.{hint} There are: {', '.join(ALGORITHMS)}.")
    kind = ALGORITHMS[name]
    known = options_of(name)
    for option in options:
        if option not in known:
            near = get_close_matches(option, known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise BadValue(f"{name} has no option {option!r}.{hint} It takes: {', '.join(known)}.")
    return kind(**options)


def configured(settings: Mapping[str, Any]) -> Algorithm:
    """The algorithm that the settings of a training run name, with the options it has."""
    name = settings["algo"]
    options: dict[str, Any] = {"gamma": settings["gamma"]}
    if settings["kl"] and settings["kl_in"] == "reward":
        options["beta"] = settings["kl"]
    elif name == "reinforce_pp":
        options["beta"] = 0.0
    if name == "grpo":
        options["normalise"] = settings["normalise"]
    if name in ("grpo", "rloo"):
        options["lone"] = "zero"  # a failure may leave one of a group alone
    else:
        options["per_env"] = settings["normalise_per_env"]
    if name == "rebn":
        options["per_turn"] = settings.get("normalise_per_turn", False)  # runs of before have none
    if name in ("ppo", "ppo_token"):
        options["lam"] = settings["lam"]
    return make_algorithm(name, **options)


def options_of(name: str) -> list[str]:
    """What the algorithm `name` may be told."""
    return [field.name for field in fields(ALGORITHMS[name])]
