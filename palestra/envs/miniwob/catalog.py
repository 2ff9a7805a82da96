"""Specs for the MiniWoB environments, one per task; `ALIASES` maps MiniWoB's own names to their ids."""

from __future__ import annotations

from palestra.envs.miniwob.rates import EXPERT_RATES, RATES
from palestra.envs.miniwob.tasks import TASKS, Task
from palestra.spec import MAX_UNEARNED, EnvSpec


def _spec(task: Task) -> EnvSpec:
    random, echo, constant = RATES[task.name]
    return EnvSpec(
        id=f"miniwob:{task.title}-v0",
        entry_point="palestra.envs.miniwob.env:MiniWob",
        kwargs={"task": task.name},
        summary=f"MiniWoB++ task {task.name}, {task.turns} turns",
        reward_range=(0.0, 1.0),
        expert_success=EXPERT_RATES.get(task.name),
        random_success=random,
        echo_success=echo,
        constant_success=constant,
        rates_reason="easy_by_design" if max(random, echo, constant) > MAX_UNEARNED else "",
        extra="web",
    )


SPECS = [_spec(task) for task in TASKS.values()]
ALIASES = {f"miniwob:{task.name}": f"miniwob:{task.title}-v0" for task in TASKS.values()}
