"""Registry of algorithms by name: built-in, registered in Python, or installed as entry points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, TypeVar, overload

from palestra.algorithms.base import Algorithm, AlgorithmConfig
from palestra.algorithms.options import flat_name
from palestra.errors import BadValue
from palestra.plugins import PluginRegistry

ALGORITHMS: PluginRegistry[type[Algorithm[Any]]] = PluginRegistry(
    "algorithm",
    group="algorithms",
    built_in={
        "reinforce": "palestra.algorithms.reinforce:Reinforce",
        "rebn": "palestra.algorithms.rebn:ReBN",
        "grpo": "palestra.algorithms.grpo:GRPO",
        "dr_grpo": "palestra.algorithms.dr_grpo:DrGRPO",
        "dapo": "palestra.algorithms.dapo:DAPO",
        "gspo": "palestra.algorithms.gspo:GSPO",
        "cispo": "palestra.algorithms.cispo:CISPO",
        "gigpo": "palestra.algorithms.gigpo:GiGPO",
        "rloo": "palestra.algorithms.rloo:RLOO",
        "reinforce_pp": "palestra.algorithms.reinforce_pp:ReinforcePP",
        "reinforce_pp_baseline": "palestra.algorithms.reinforce_pp_baseline:ReinforcePPBaseline",
        "ppo": "palestra.algorithms.ppo:PPO",
        "ppo_token": "palestra.algorithms.ppo:TokenPPO",
        "distill": "palestra.algorithms.distill:Distill",
        "agentevol": "palestra.algorithms.agentevol:AgentEvol",
        "sft": "palestra.algorithms.sft:SFT",
        "dpo": "palestra.algorithms.dpo:DPO",
    },
    add_with="the decorator palestra.algorithms.register",
)
get_algorithm = ALGORITHMS.get
algorithm_names = ALGORITHMS.names

A = TypeVar("A", bound=type[Algorithm[Any]])


@overload
def register(algorithm: A) -> A: ...
@overload
def register(*, overwrite: bool = ...) -> Callable[[A], A]: ...
def register(algorithm: A | None = None, *, overwrite: bool = False) -> A | Callable[[A], A]:
    """Register an algorithm class under its `name`; can be used as a decorator."""

    def add(algorithm: A) -> A:
        name = getattr(algorithm, "name", None)
        if not isinstance(name, str) or not name:
            raise BadValue(f"{algorithm.__name__} must have a class attribute `name`, a string")
        if not issubclass(getattr(algorithm, "config_class", object), AlgorithmConfig):
            raise BadValue(f"{algorithm.__name__}.config_class must be a subclass of AlgorithmConfig")
        ALGORITHMS.register(name, algorithm, overwrite=overwrite)
        return algorithm

    return add if algorithm is None else add(algorithm)


def options_of(algorithm: str | type[Algorithm[Any]]) -> list[str]:
    """Return the names of an algorithm's options, as used in Python and on the command line."""
    kind = get_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    return [flat_name(item) for item in fields(kind.config_class)]


def make_algorithm(name: str, **options: Any) -> Algorithm[Any]:
    """Construct the algorithm called `name` with options of its config."""
    kind = get_algorithm(name)
    return kind(make_config(kind, options))


def make_config(kind: type[Algorithm[Any]], options: dict[str, Any]) -> AlgorithmConfig:
    """Construct an algorithm's config from options named by field or flag; raise BadValue for unknown options."""
    names = {key: item.name for item in fields(kind.config_class) for key in (item.name, flat_name(item))}
    for key in options:
        if key not in names:
            close = get_close_matches(key, names, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise BadValue(f"{kind.name} has no option {key!r}.{hint} Its options: {', '.join(options_of(kind))}.")
    return kind.config_class(**{names[key]: value for key, value in options.items()})
