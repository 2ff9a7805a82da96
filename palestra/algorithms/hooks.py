"""Reward and advantage hooks: user-defined functions between sampling and the loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from palestra.algorithms.episode import Advantages, Episode
from palestra.errors import BadValue
from palestra.plugins import PluginRegistry, import_object
from palestra.rollout.types import Trajectory

RewardHook = Callable[[Sequence[Trajectory]], Sequence[Sequence[float]]]
AdvantageHook = Callable[[Sequence[Episode], Advantages], Advantages]

REWARD_HOOKS: PluginRegistry[RewardHook] = PluginRegistry(
    "reward hook", group="reward_hooks", built_in={}, add_with="palestra.algorithms.register_reward_hook"
)
ADVANTAGE_HOOKS: PluginRegistry[AdvantageHook] = PluginRegistry(
    "advantage hook", group="advantage_hooks", built_in={}, add_with="palestra.algorithms.register_advantage_hook"
)


def register_reward_hook(name: str, hook: RewardHook, *, overwrite: bool = False) -> None:
    """Make a reward hook available as `--reward-hook NAME`."""
    REWARD_HOOKS.register(name, hook, overwrite=overwrite)


def register_advantage_hook(name: str, hook: AdvantageHook, *, overwrite: bool = False) -> None:
    """Make an advantage hook available as `--advantage-hook NAME`."""
    ADVANTAGE_HOOKS.register(name, hook, overwrite=overwrite)


def with_hook_rewards(name: str, trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """Return the trajectories with the rewards that the hook returns; unchanged if `name` is empty."""
    if not name:
        return list(trajectories)
    rewards = _hook(REWARD_HOOKS, name)(trajectories)
    if len(rewards) != len(trajectories):
        raise BadValue(f"the reward hook {name!r} returned {len(rewards)} lists for {len(trajectories)} trajectories")
    changed = []
    for trajectory, row in zip(trajectories, rewards, strict=True):
        if len(row) != len(trajectory.turns):
            raise BadValue(
                f"the reward hook {name!r} returned {len(row)} rewards for a trajectory with "
                f"{len(trajectory.turns)} turns"
            )
        turns = [replace(turn, reward=float(reward)) for turn, reward in zip(trajectory.turns, row, strict=True)]
        changed.append(replace(trajectory, turns=tuple(turns)))
    return changed


def with_hook_advantages(name: str, episodes: Sequence[Episode], advantages: Advantages) -> Advantages:
    """Return the advantages that the hook returns; unchanged if `name` is empty."""
    if not name:
        return advantages
    result = _hook(ADVANTAGE_HOOKS, name)(episodes, advantages)
    if not isinstance(result, Advantages):
        raise BadValue(f"the advantage hook {name!r} must return Advantages, got {type(result).__name__}")
    if [len(row) for row in result.advantages] != [len(row) for row in advantages.advantages]:
        raise BadValue(f"the advantage hook {name!r} must return advantages of the same shape")
    return result


def _hook(registry: PluginRegistry[Any], name: str) -> Any:
    return import_object(name) if ":" in name else registry.get(name)
