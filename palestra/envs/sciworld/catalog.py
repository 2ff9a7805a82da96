"""Specs for the ScienceWorld environments: six groups of task types with three splits each, and each task type."""

from __future__ import annotations

from palestra.envs.sciworld.tasks import GROUPS, TYPES, types_of
from palestra.spec import EnvSpec

# The constant player's success rates, measured on at least two episodes per type for each strategy. Types
# that are not listed have the rate 0. The animal with the shortest life is the same in some variations.
_CONSTANT = {"lifespan-shortest-lived": 0.09}


def _spec(name: str, tasks: str, summary: str, data_split: str | None = None) -> EnvSpec:
    types = types_of(tasks)  # each episode samples one task type uniformly
    return EnvSpec(
        id=f"sciworld:{name}",
        entry_point="palestra.envs.sciworld.env:SciWorld",
        kwargs={"tasks": tasks} if data_split is None else {"tasks": tasks, "data_split": data_split},
        summary=summary,
        reward_range=(-1.0, 1.0),
        expert_success=round(sum(task.expert for task in types) / len(types), 3),
        random_success=0.0,  # measured on 10 episodes per type, and on 80 for the types with the shortest solutions
        echo_success=0.0,  # measured on at least one episode per type for each strategy
        constant_success=round(sum(_CONSTANT.get(task.name, 0.0) for task in types) / len(types), 3),
        splits=("train", "test") if data_split is None else (),
        extra="sciworld",
    )


def _groups() -> list[EnvSpec]:
    specs = []
    for group, names in GROUPS.items():
        what = "all 30 task types" if group == "All" else f"{len(names)} types: {', '.join(names)}"
        for split in ("train", "dev", "test"):
            variant = "" if split == "train" else f"-{split}"
            data_split = None if split == "train" else split
            specs.append(_spec(f"{group}-v0{variant}", group, f"{what}; {split} variations", data_split))
    return specs


SPECS = [
    *_groups(),
    *(_spec(f"{task.title}-v0", task.name, f"{task.topic}, {task.variations} variations") for task in TYPES.values()),
]
