"""ScalingInter: how many turns an episode may take, as a pure function of the step.

A schedule reads `20` (fixed), `5,10,15@100` (stages of 100 steps each, the last one stays) or `none`. Because nothing
but the step decides, a resumed run has the schedule of an uninterrupted one.
"""

from __future__ import annotations

from dataclasses import dataclass

from palestra.errors import BadValue


@dataclass(frozen=True, slots=True)
class HorizonSchedule:
    stages: tuple[int, ...] = ()  # empty: the task's own budget alone
    steps_per_stage: int = 1

    def __post_init__(self) -> None:
        if any(turns < 1 for turns in self.stages) or self.steps_per_stage < 1:
            raise BadValue(f"a horizon has turns and steps from 1 up, got {self}")

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
            raise BadValue(f"a horizon reads 20, or 5,10,15@100, or none; got {text!r}") from err
        if len(stages) > 1 and not at:
            raise BadValue(f"stages need the number of steps each lasts: {text}@100")
        return schedule

    def at(self, step: int) -> int | None:
        """Most turns of an episode in `step` (0-based); None: no limit beside the task's."""
        if not self.stages:
            return None
        return self.stages[min(step // self.steps_per_stage, len(self.stages) - 1)]

    def __str__(self) -> str:
        if not self.stages:
            return "none"
        turns = ",".join(map(str, self.stages))
        return f"{turns}@{self.steps_per_stage}" if len(self.stages) > 1 else turns
