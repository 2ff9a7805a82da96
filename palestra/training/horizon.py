"""ScalingInter: the maximum number of turns per episode as a function of the training step.

A schedule is written as `20` (constant), `5,10,15@100` (stages of 100 steps; the last value applies until the end of
the run) or `none`. It depends only on the step, so a resumed run follows the same schedule as an uninterrupted one.
"""

from __future__ import annotations

from dataclasses import dataclass

from palestra.errors import BadValue


@dataclass(frozen=True, slots=True)
class HorizonSchedule:
    """Horizon schedule in stages. Without stages, only the environment's limit applies."""

    stages: tuple[int, ...] = ()
    steps_per_stage: int = 1

    def __post_init__(self) -> None:
        if any(turns < 1 for turns in self.stages) or self.steps_per_stage < 1:
            raise BadValue(f"the turns and steps of a horizon must be at least 1, got {self}")

    @classmethod
    def parse(cls, text: str | int | None) -> HorizonSchedule:
        if text is None or str(text).strip().lower() in ("", "none"):
            return cls()
        turns, at, steps = str(text).partition("@")
        try:
            stages = tuple(int(part) for part in turns.split(","))
            schedule = cls(stages, int(steps) if at else 1)
        except ValueError as err:
            if isinstance(err, BadValue):
                raise
            raise BadValue(f"horizon must be a number (20), stages (5,10,15@100) or none; got {text!r}") from err
        if len(stages) > 1 and not at:
            raise BadValue(f"a horizon with stages needs the number of steps per stage, for example {text}@100")
        return schedule

    def at(self, step: int) -> int | None:
        """Return the maximum number of turns at `step` (0-based), or None for no limit."""
        if not self.stages:
            return None
        return self.stages[min(step // self.steps_per_stage, len(self.stages) - 1)]

    def __str__(self) -> str:
        if not self.stages:
            return "none"
        turns = ",".join(map(str, self.stages))
        return f"{turns}@{self.steps_per_stage}" if len(self.stages) > 1 else turns
